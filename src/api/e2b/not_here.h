// Endpoints of E2B's control plane that this server does not have: 501 with a sentence that says
// what is missing, so that a client's error is no riddle. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> routes_not_here();

}  // namespace caisson::api::e2b
