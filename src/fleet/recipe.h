// A client's spec laid over a recipe. Pure.
#pragma once

#include <string_view>

#include "fleet/host.h"

namespace caisson::fleet {

// `spec`: JSON (policy/document.h). Its image and its variables are not looked at, nor is its time,
// which is the sandbox's own. Errors: invalid_argument with the key's path, also for what a server
// does not do for a client: open paths of its host.
Result<Recipe> lay_over(const Recipe& recipe, std::string_view spec);

// `asked`, but with the limits of `usual` where it has those of `before`: nobody asked for them.
Recipe merge_limits(const Recipe& usual, const Recipe& before, Recipe asked);

}  // namespace caisson::fleet
