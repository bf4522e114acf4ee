// E2B's control plane: one sandbox's life. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> sandbox_routes();

// The id that a path begins with. Old clients write it as "ID-CLIENT"; an id itself has no dash.
std::string sandbox_id(const Call& call);

}  // namespace caisson::api::e2b
