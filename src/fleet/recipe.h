// A recipe as a spec's values, and a client's spec laid over it. Pure, but for who we are: only
// root holds a layer on disk.
#pragma once

#include <string_view>

#include "fleet/maker.h"
#include "policy/server_config.h"

namespace caisson::fleet {

policy::SpecValues values_of(const Recipe& recipe);

// `spec`: JSON (policy/document.h). Its image and its variables are not looked at, nor is its time,
// which is the sandbox's own. Errors: invalid_argument with the key's path, also for what a server
// does not do for a client: open paths of its host.
Result<Recipe> lay_over(const Recipe& recipe, std::string_view spec);

// Error: invalid_argument, with the key of the limit that is above the operator's.
Status check_maxima(const Recipe& recipe, const policy::ServedLimits& most);

}  // namespace caisson::fleet
