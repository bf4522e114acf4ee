// E2B's control plane: the log of one sandbox, in both forms that clients ask for. Routes for
// Service (api/service.h).
//
// The log tells what happened to the sandbox and what was run in it. Output is never in it.
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> log_routes();

}  // namespace caisson::api::e2b
