// How clients name a template: [NAMESPACE/]NAME[:TAG], where NAME may be a template's id and
// NAMESPACE is a team's slug. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::db {

inline constexpr std::string_view kDefaultTag = "default";

struct TemplateReference {
  std::string space;  // empty: the caller's own
  std::string name;   // [a-z0-9-_]
  std::string tag;    // [a-z0-9-_.]
  bool operator==(const TemplateReference&) const = default;
};

// Without a tag it is kDefaultTag. Errors: invalid_argument, saying what was found and what is
// allowed.
Result<TemplateReference> parse_template_reference(std::string_view text);
// The same for a tag, and for a name, alone.
Status check_template_tag(std::string_view tag);
Status check_template_name(std::string_view name);

}  // namespace caisson::db
