#include "policy/document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/encoding.h"
#include "base/json.h"
#include "policy/complain.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/network_document.h"
#include "policy/node.h"
#include "policy/read_node.h"
#include "policy/units.h"

namespace caisson::policy {
namespace {

constexpr std::string_view kBelowNetwork = "(secrets stand below network: network.secrets)";

// Fills one member of the values from the node at `path`.
using ReadKey = Status (*)(const Node& node, const std::string& path, SpecValues& values);
struct Key {
  std::string_view name;
  ReadKey read;
};

Status read_members(const Node& node, const std::string& path, std::span<const Key> keys,
                    SpecValues& values) {
  std::vector<std::string_view> names;
  for (const Key& key : keys) names.push_back(key.name);
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path.empty() ? "spec" : path,
                         "a mapping with the keys " + alternatives(names.data(), names.size())));
  }
  const auto read = [&](const std::string& name, const Node& value,
                        const std::string& below) -> Status {
    const auto match = std::ranges::find(keys, name, &Key::name);
    if (match == keys.end()) return fail(unknown_key(name, value, below, names));
    return match->read(value, below, values);
  };
  return for_each_key(node, path, read);
}

Status read_command(const Node& node, const std::string& path, std::vector<std::string>& words) {
  TRY_ASSIGN(words, read_words(node, path, "[python3, main.py]"));
  return {};
}

Status read_env(const Node& node, const std::string& path, SpecValues& values) {
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, "a mapping such as {LANG: C.UTF-8}"));
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string& name = node.keys[i];
    const Node& value = node.items[i];
    const std::string below = key_below(path, name);
    TRY_ASSIGN(std::string text, read_text(value, below));
    if (!values.env.emplace(name, std::move(text)).second) {
      return fail(wrong_at(value, below, "the key twice", "each key once"));
    }
  }
  return {};
}

// One item of `files` while its keys come in.
struct FileItem {
  std::optional<std::string> from, out, to;
  std::optional<GrantMode> mode;
};

Result<FileItem> read_file_item(const Node& node, const std::string& path) {
  constexpr std::array<std::string_view, 4> kKeys = {"from", "to", "mode", "out"};
  constexpr std::string_view kForms = "{from: …, to: …, mode: ro, rw or copy} or {out: …, to: …}";
  if (node.kind != Node::Kind::kMap) return fail(wrong_at(node, path, kForms));
  FileItem item;
  const auto read = [&](const std::string& name, const Node& value,
                        const std::string& below) -> Status {
    if (name == "mode") return read_enum(value, below, kGrantModeNames, item.mode.emplace());
    std::optional<std::string>* target = name == "from"  ? &item.from
                                         : name == "out" ? &item.out
                                         : name == "to"  ? &item.to
                                                         : nullptr;
    if (target == nullptr) return fail(unknown_key(name, value, below, kKeys));
    TRY_ASSIGN(*target, read_word(value, below, "a path"));
    return {};
  };
  TRY(for_each_key(node, path, read));
  if (item.from.has_value() == item.out.has_value()) {
    return fail(
        wrong_at(node, path, item.from ? "both from and out" : "neither from nor out", kForms));
  }
  if (!item.to.has_value()) {
    return fail(wrong_at(node, key_below(path, "to"), "nothing",
                         item.from ? "the path inside" : "a path of this host"));
  }
  if (item.out.has_value() && item.mode.has_value()) {
    return fail(
        wrong_at(node, key_below(path, "mode"), to_string(*item.mode), "no mode beside out"));
  }
  return item;
}

Status read_files(const Node& node, const std::string& path, SpecValues& values) {
  if (node.kind != Node::Kind::kList) {
    return fail(wrong_at(node, path, "a list such as [{from: ./src, to: /srv/src, mode: ro}]"));
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(FileItem item, read_file_item(node.items[i], path + "[" + std::to_string(i) + "]"));
    if (item.from.has_value()) {
      values.grants.push_back(
          {std::move(*item.from), std::move(*item.to), item.mode.value_or(GrantMode::kReadOnly)});
    } else {
      values.outputs.push_back({std::move(*item.out), std::move(*item.to)});
    }
  }
  return {};
}

template <std::size_t Index>
Status read_limit(const Node& node, const std::string& path, SpecValues& values) {
  constexpr const LimitRule& kRule = kLimitRules[Index];
  if (!is_scalar(node) || node.kind == Node::Kind::kBool) {
    return fail(wrong_at(node, path, describe(kRule.unit)));
  }
  auto value = parse_limit(kRule.unit, node.text);
  if (!value.has_value()) {
    Error error = std::move(value.error()).with(path);
    if (node.line == 0) return fail(std::move(error));
    return fail(std::move(error).with("line " + std::to_string(node.line)));
  }
  values.limits.*kRule.value = *value;
  return {};
}

template <std::size_t... Index>
constexpr auto limit_keys(std::index_sequence<Index...>) {
  return std::array<Key, sizeof...(Index)>{Key{kLimitRules[Index].key, read_limit<Index>}...};
}
constexpr auto kLimitKeys = limit_keys(std::make_index_sequence<kLimitRules.size()>());

Status read_secrets(const Node& node, const std::string& path, SpecValues&) {
  if (node.kind != Node::Kind::kList || !node.items.empty()) {
    const std::string found =
        node.kind == Node::Kind::kList ? "a list that is not empty" : describe_found(node);
    return fail(wrong_at(node, path, found, "an empty list " + std::string(kBelowNetwork)));
  }
  return {};
}

constexpr std::array<Key, 18> kKeys = {{
    {"image",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.image, read_word(node, path, "an image's name"));
       return {};
     }},
    {"wall", [](const Node& node, const std::string& path,
                SpecValues& values) { return read_enum(node, path, kWallNames, values.wall); }},
    {"emulation",
     [](const Node& node, const std::string& path, SpecValues& values) {
       return read_enum(node, path, kEmulationNames, values.allow_emulation);
     }},
    {"command", [](const Node& node, const std::string& path,
                   SpecValues& values) { return read_command(node, path, values.command); }},
    {"entrypoint",
     [](const Node& node, const std::string& path, SpecValues& values) {
       return read_command(node, path, values.entrypoint.emplace());
     }},
    {"env", read_env},
    {"user",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.user, read_word(node, path, "a user"));
       return {};
     }},
    {"privileges",
     [](const Node& node, const std::string& path, SpecValues& values) {
       return read_enum(node, path, kPrivilegesNames, values.privileges);
     }},
    {"profile",
     [](const Node& node, const std::string& path, SpecValues& values) {
       return read_enum(node, path, kProfileNames, values.profile);
     }},
    {"on_refusal",
     [](const Node& node, const std::string& path, SpecValues& values) {
       return read_enum(node, path, kOnRefusalNames, values.on_refusal);
     }},
    {"workdir",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.workdir, read_word(node, path, "an absolute path"));
       return {};
     }},
    {"hostname",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.hostname, read_word(node, path, "a host name"));
       return {};
     }},
    {"files", read_files},
    {"layer", [](const Node& node, const std::string& path,
                 SpecValues& values) { return read_enum(node, path, kLayerNames, values.layer); }},
    {"limits", [](const Node& node, const std::string& path,
                  SpecValues& values) { return read_members(node, path, kLimitKeys, values); }},
    {"require_hard_limits",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.require_hard_limits, read_truth(node, path));
       return {};
     }},
    {"network",
     [](const Node& node, const std::string& path, SpecValues& values) -> Status {
       TRY_ASSIGN(values.network, read_network(node, path));
       return {};
     }},
    {"secrets", read_secrets},
}};

}  // namespace

Node tree_of_json(const json::Value& value) {
  Node node;
  switch (value.kind()) {
    case json::Value::Kind::kNull:
      break;
    case json::Value::Kind::kBool:
      node.kind = Node::Kind::kBool;
      node.text = *value.as_bool() ? "true" : "false";
      break;
    case json::Value::Kind::kInteger:
    case json::Value::Kind::kUnsigned:
      node.kind = Node::Kind::kNumber;
      node.text = json::serialize(value);
      break;
    case json::Value::Kind::kDouble: {
      node.kind = Node::Kind::kNumber;
      std::array<char, 40> buffer;
      const auto end =
          std::to_chars(buffer.data(), buffer.data() + buffer.size(), *value.as_double());
      node.text.assign(buffer.data(), end.ptr);
      break;
    }
    case json::Value::Kind::kString:
      node.kind = Node::Kind::kText;
      node.text = *value.as_string();
      break;
    case json::Value::Kind::kArray:
      node.kind = Node::Kind::kList;
      for (const json::Value& item : *value.as_array()) node.items.push_back(tree_of_json(item));
      break;
    case json::Value::Kind::kObject:
      node.kind = Node::Kind::kMap;
      for (const json::Member& member : *value.as_object()) {
        node.keys.push_back(member.key);
        node.items.push_back(tree_of_json(member.value));
      }
      break;
  }
  return node;
}

Result<Node> parse_json_tree(std::string_view text, std::string_view what) {
  auto value = json::parse(
      text, {.bytes = kMaxDocumentBytes, .depth = kMaxDocumentDepth, .values = kMaxDocumentNodes});
  if (!value.has_value()) return fail(std::move(value.error()).with(what));
  return tree_of_json(*value);
}

Result<SpecValues> parse_spec(std::string_view text, Format format) {
  return parse_spec(text, format, SpecValues());
}

Result<SpecValues> parse_spec(std::string_view text, Format format, SpecValues values) {
  TRY_ASSIGN(const Node root,
             format == Format::kYaml ? parse_yaml_tree(text) : parse_json_tree(text));
  if (format == Format::kYaml && root.kind == Node::Kind::kNull) return values;
  TRY(read_members(root, "", kKeys, values));
  return values;
}

}  // namespace caisson::policy
