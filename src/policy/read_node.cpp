#include "policy/read_node.h"

#include <charconv>

#include "base/encoding.h"

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

Result<std::string> read_text(const Node& node, const std::string& path) {
  if (is_text(node)) return node.text;
  if (node.kind == Node::Kind::kMap && node.items.size() == 1 && node.keys[0] == "base64") {
    const Node& encoded = node.items[0];
    if (is_text(encoded)) {
      if (auto bytes = base64_decode(encoded.text)) return std::move(*bytes);
    }
    return fail(wrong_at(encoded, key_below(path, "base64"), "base64 with its padding"));
  }
  if (node.kind == Node::Kind::kNumber || node.kind == Node::Kind::kBool) {
    return fail(wrong_at(node, path, "a text (in quotes)"));
  }
  if (node.kind == Node::Kind::kNull) {
    return fail(wrong_at(node, path, "a text; write \"\" where it is meant to be empty"));
  }
  return fail(wrong_at(node, path, "a text"));
}

Result<std::string> read_word(const Node& node, const std::string& path, std::string_view allowed) {
  TRY_ASSIGN(std::string word, read_text(node, path));
  if (word.empty()) {
    return fail(wrong_at(node, path, "an empty text",
                         std::string(allowed) + "; leave the key away for the default"));
  }
  return word;
}

Result<bool> read_truth(const Node& node, const std::string& path) {
  if (node.kind == Node::Kind::kPlain || node.kind == Node::Kind::kBool) {
    if (node.text == "true" || node.text == "false") return node.text == "true";
  }
  return fail(wrong_at(node, path, "true or false"));
}

Result<std::vector<std::string>> read_words(const Node& node, const std::string& path,
                                            std::string_view example) {
  if (node.kind != Node::Kind::kList) {
    return fail(wrong_at(node, path, "a list such as " + std::string(example)));
  }
  std::vector<std::string> words;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(words.emplace_back(),
               read_text(node.items[i], path + "[" + std::to_string(i) + "]"));
  }
  return words;
}

Result<std::uint32_t> read_number(const Node& node, const std::string& path, std::uint32_t least,
                                  std::uint32_t most, std::string_view allowed) {
  std::uint32_t number = 0;
  const std::string_view text = node.text;
  const bool scalar = node.kind == Node::Kind::kPlain || node.kind == Node::Kind::kNumber;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  const bool padded = text.size() > 1 && text.front() == '0';
  if (!scalar || !whole || padded || number < least || number > most)
    return fail(wrong_at(node, path, allowed));
  return number;
}

json::Value list_of(const std::vector<std::string>& words) {
  json::Value list = json::Value::array();
  for (const std::string& word : words) list.push(word);
  return list;
}

}  // namespace caisson::policy
