// What must hold for every text that is read as a spec.
#pragma once

#include "policy/document.h"
#include "policy/flags.h"

namespace caisson::fuzz {

inline void check_document(std::string_view text, policy::Format format) {
  const auto values = policy::parse_spec(text, format);
  if (!values.has_value()) {
    VERIFY(values.error().code() == Code::kInvalidArgument);
    VERIFY(values.error().message().contains("found "));
    VERIFY(values.error().message().contains("; allowed "));
    VERIFY(values.error().message().size() < 2000);
    return;
  }
  // Flags that say nothing change nothing.
  VERIFY(policy::merge(*values, {}) == *values);
  const auto spec = SandboxSpec::validate(*values);
  if (!spec.has_value()) {
    VERIFY(spec.error().message().contains(": found "));
    VERIFY(spec.error().message().contains("; allowed is "));
    return;
  }
  for (const policy::Format printed : {policy::Format::kYaml, policy::Format::kJson}) {
    const std::string canonical = policy::print_spec(*spec, printed);
    const auto again = policy::parse_spec(canonical, printed);
    // The canonical form escapes: a text of odd characters can grow beyond what a document may be.
    if (canonical.size() > (1 << 20)) continue;
    VERIFY(again.has_value());
    VERIFY(*again == *values);
  }
}

}  // namespace caisson::fuzz
