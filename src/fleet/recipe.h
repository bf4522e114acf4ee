// A client's spec laid over a recipe, and recipes as text. Pure.
#pragma once

#include <string_view>

#include "base/json.h"
#include "fleet/host.h"

namespace caisson::fleet {

// `spec`: JSON (policy/document.h). Its image and its variables are not looked at, nor is its time,
// which is the sandbox's own. Errors: invalid_argument with the key's path, also for what a server
// does not do for a client: open paths of its host.
Result<Recipe> lay_over(const Recipe& recipe, std::string_view spec);

// `asked`, but with the limits of `usual` where it has those of `before`: nobody asked for them.
Recipe merge_limits(const Recipe& usual, const Recipe& before, Recipe asked);

// As a spec in JSON, with everything written out, and back. Error: invalid_argument, of a recipe
// that no sandbox could be made of.
Result<json::Value> recipe_json(const Recipe& recipe);
Result<Recipe> parse_recipe(const json::Value& value);

}  // namespace caisson::fleet
