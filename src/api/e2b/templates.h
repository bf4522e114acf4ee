// E2B's control plane: which templates there are. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> template_routes();

}  // namespace caisson::api::e2b
