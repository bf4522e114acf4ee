// Rules about secrets as part of a document: the mapping `secrets` of a network policy, from each
// secret's name to its rule. Writing gives the canonical form, and reading that gives the same
// rules. Internal to this folder. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <caisson/secrets.h>

#include "base/error.h"
#include "base/json.h"
#include "policy/node.h"

namespace caisson::policy {

// In the document's order; checked (check_secrets). Error: invalid_argument with the line where it
// is known, the key below `path`, what was found there and what is allowed.
Result<std::vector<SecretRule>> read_secrets(const Node& node, const std::string& path);
// A source alone. Errors: the same, but for what check_source() says.
Result<SecretSource> read_source(const Node& node, const std::string& path);
json::Value source_tree(const SecretSource& source);
// The mapping with every choice written out.
json::Value secrets_tree(std::span<const SecretRule> rules);

}  // namespace caisson::policy
