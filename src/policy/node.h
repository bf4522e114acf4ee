// What a document says before anybody knows what it means: a tree of scalars, lists and mappings
// with their places, the same for YAML and JSON. Internal to this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace caisson::policy {

inline constexpr std::size_t kMaxDocumentBytes = 1 << 20;
inline constexpr std::size_t kMaxDocumentDepth = 16;
inline constexpr std::size_t kMaxDocumentNodes = 20'000;

struct Node {
  enum class Kind {
    kNull,
    kPlain,   // an unquoted YAML scalar: text, number or truth value, as its key wants it
    kText,    // a quoted scalar, a JSON string
    kNumber,  // a JSON number
    kBool,    // a JSON truth value
    kList,
    kMap,
  };
  Kind kind = Kind::kNull;
  std::string text;  // of the four scalar kinds, as it is written
  // Of a list and of a mapping, in the document's order; keys[i] is the key of items[i], and a key
  // may occur twice here.
  std::vector<Node> items;
  std::vector<std::string> keys;
  int line = 0;  // 1 is the first; 0: unknown
};

// One YAML document in UTF-8. Anchors, aliases, tags and further documents are refused, so that a
// small text cannot become a large tree and each value stands where it is read. `what` is what an
// error calls the whole.
Result<Node> parse_yaml_tree(std::string_view text, std::string_view what = "spec");
Node tree_of_json(const json::Value& value);
Result<Node> parse_json_tree(std::string_view text, std::string_view what = "spec");

}  // namespace caisson::policy
