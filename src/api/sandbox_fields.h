// What both APIs read alike of a body about a sandbox, with the bounds that both have. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "api/body.h"

namespace caisson::api {

// The longest time that a body may name; a team's quota is lower.
inline constexpr std::int64_t kMostSeconds = 2147483647;
// The longest name of a template.
inline constexpr std::size_t kMostTemplateName = 256;

using Texts = std::map<std::string, std::string>;

// Empty where there is none. Errors: invalid_argument, with the path of what is wrong.
Result<Texts> read_metadata(const Object& body, std::string_view key);
// Names without = and values, both without zero bytes.
Result<Texts> read_env(const Object& body, std::string_view key);

Error no_such_sandbox(std::string_view id);

}  // namespace caisson::api
