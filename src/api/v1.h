// Our own API, under /v1: sandboxes, and commands in them. docs/openapi.yaml describes it. Routes
// for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api {

std::span<const Route> v1_routes();

}  // namespace caisson::api
