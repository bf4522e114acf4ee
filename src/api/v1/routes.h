// Our own API, under /v1: sandboxes, commands in them, their files, and what is to be known of
// them. docs/api.yaml describes it. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::v1 {

std::span<const Route> sandbox_routes();
std::span<const Route> command_routes();
std::span<const Route> file_routes();
std::span<const Route> fact_routes();

}  // namespace caisson::api::v1
