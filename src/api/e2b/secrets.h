// The resource /secrets of E2B's API: what a team keeps here for sandboxes that are never told it.
// No answer has a value.
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> secret_routes();

}  // namespace caisson::api::e2b
