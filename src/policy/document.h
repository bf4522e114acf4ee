// A spec as a document: YAML or JSON with the same keys. Reading gives SpecValues or an error that
// names the key's path, what was found and what is allowed; writing gives the canonical form, and
// reading that gives the same spec. Text that is not UTF-8 (an argument, a path) is written as
// {base64: …}. The document's reader is the only one who knows the keys. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "policy/spec.h"

namespace caisson::policy {

enum class Format { kYaml, kJson };

// At most 1 MiB, 16 levels and 20'000 values. What a document does not say has its default; an
// empty YAML document is the default spec. The values are not validated yet.
Result<SpecValues> parse_spec(std::string_view text, Format format);
// The same, where what the document does not say is as in `defaults`.
Result<SpecValues> parse_spec(std::string_view text, Format format, SpecValues defaults);

// Every limit and choice is written out, empty values are left away.
std::string print_spec(const SandboxSpec& spec, Format format);

}  // namespace caisson::policy
