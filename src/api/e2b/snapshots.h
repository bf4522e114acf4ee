// Snapshots of sandboxes, and forks, as E2B's clients ask for them.
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> snapshot_routes();

}  // namespace caisson::api::e2b
