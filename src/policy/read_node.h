// What the readers of documents share: how a refusal shows what stands at a node, and how a
// mapping is gone through. Internal to this folder; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "policy/complain.h"
#include "policy/names.h"
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

// A text; {base64: …} is one that need not be UTF-8.
Result<std::string> read_text(const Node& node, const std::string& path);
// A text that, where it is given, is not empty.
Result<std::string> read_word(const Node& node, const std::string& path, std::string_view allowed);
Result<bool> read_truth(const Node& node, const std::string& path);
// A list of texts; `example` shows one.
Result<std::vector<std::string>> read_words(const Node& node, const std::string& path,
                                            std::string_view example);

// A whole number from `least` to `most`, in decimal digits without a leading zero.
Result<std::uint32_t> read_number(const Node& node, const std::string& path, std::uint32_t least,
                                  std::uint32_t most, std::string_view allowed);
// A list of texts as a document has it.
json::Value list_of(const std::vector<std::string>& words);

template <typename Enum, std::size_t N>
Status read_enum(const Node& node, const std::string& path,
                 const std::array<std::string_view, N>& names, Enum& value) {
  if (is_scalar(node)) {
    if (const auto index = index_of(names, node.text)) {
      value = static_cast<Enum>(*index);
      return {};
    }
  }
  return fail(wrong_at(node, path, alternatives(names.data(), N)));
}

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
