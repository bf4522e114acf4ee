// What the readers of documents share: how a refusal shows what stands at a node, and how a
// mapping is gone through. Internal to this folder; pure functions.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/complain.h"
#include "policy/node.h"

namespace caisson::policy {

inline bool is_text(const Node& node) {
  return node.kind == Node::Kind::kPlain || node.kind == Node::Kind::kText;
}
inline bool is_scalar(const Node& node) {
  return is_text(node) || node.kind == Node::Kind::kNumber || node.kind == Node::Kind::kBool;
}

// A text in quotes, "the number 5", true, "a list", "a mapping" or "nothing".
std::string describe_found(const Node& node);

// wrong() with the node's line before it, where that is known.
Error wrong_at(const Node& node, std::string_view path, std::string_view found,
               std::string_view allowed);
Error wrong_at(const Node& node, std::string_view path, std::string_view allowed);

// A key that is none of `names`; says which of them is perhaps meant.
Error unknown_key(const std::string& name, const Node& value, const std::string& path,
                  std::span<const std::string_view> names);

// Hands each key of a mapping, with its value and the value's path, to `read`; a key that stands
// there twice is an error.
template <typename Read>
Status for_each_key(const Node& node, const std::string& path, Read read) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string& name = node.keys[i];
    const Node& value = node.items[i];
    const std::string below = key_below(path, name);
    if (!seen.insert(name).second) {
      return fail(wrong_at(value, below, "the key twice", "each key once"));
    }
    TRY(read(name, value, below));
  }
  return {};
}

}  // namespace caisson::policy
