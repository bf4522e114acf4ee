// E2B's control plane: one sandbox's life. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> sandbox_routes();

}  // namespace caisson::api::e2b
