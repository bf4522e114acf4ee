#include "policy/read_node.h"

namespace caisson::policy {

std::string describe_found(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kPlain:
    case Node::Kind::kText:
      return quote(node.text);
    case Node::Kind::kNumber:
      return "the number " + node.text;
    case Node::Kind::kBool:
      return node.text;
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a mapping";
  }
  return "";
}

Error wrong_at(const Node& node, std::string_view path, std::string_view found,
               std::string_view allowed) {
  Error error = wrong(path, found, allowed);
  if (node.line == 0) return error;
  return std::move(error).with("line " + std::to_string(node.line));
}

Error wrong_at(const Node& node, std::string_view path, std::string_view allowed) {
  return wrong_at(node, path, describe_found(node), allowed);
}

Error unknown_key(const std::string& name, const Node& value, const std::string& path,
                  std::span<const std::string_view> names) {
  const std::string_view near = nearest(name, names.data(), names.size());
  std::string allowed = alternatives(names.data(), names.size());
  if (!near.empty()) allowed += "; perhaps " + std::string(near) + " is meant";
  return wrong_at(value, path, "an unknown key", allowed);
}

}  // namespace caisson::policy
