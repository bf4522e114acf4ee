// A network policy as part of a document: the mapping below `network`, and the same as a file of
// its own. Writing gives the canonical form, and reading that gives the same policy. Internal to
// this folder but for the functions on texts. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <caisson/network.h>

#include "base/error.h"
#include "base/json.h"
#include "policy/document.h"
#include "policy/node.h"

namespace caisson::policy {

// "deny" is no policy (nullopt), "allow-public" one without rules; else a mapping. The texts in it
// are not judged yet (CompiledNetwork).
Result<std::optional<NetworkPolicy>> read_network(const Node& node, const std::string& path);
// "deny", or the mapping with every choice written out.
json::Value network_tree(const std::optional<NetworkPolicy>& policy);

// As text, which is the same for equal policies.
std::string written(const NetworkPolicy& policy);

// A policy that is a file of its own: the same mapping at the top, which may be below the key
// `network` as in a spec. Error: invalid_argument with line, key, found and allowed; also of what
// CompiledNetwork refuses.
Result<NetworkPolicy> parse_network_policy(std::string_view text, Format format);
// What network_tree() wrote of a valid policy: it says more than its author did, so it may be
// larger than a document.
Result<NetworkPolicy> parse_written_network_policy(std::string_view text);

}  // namespace caisson::policy
