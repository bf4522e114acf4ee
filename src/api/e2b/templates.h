// E2B's control plane: templates, their builds and their tags. Routes for Service (api/service.h).
#pragma once

#include <span>

#include "api/call.h"

namespace caisson::api::e2b {

// Which there are; making, changing and removing one.
std::span<const Route> template_routes();
// Building one, its log, and the files that a build copies.
std::span<const Route> template_build_routes();
std::span<const Route> template_tag_routes();

}  // namespace caisson::api::e2b
