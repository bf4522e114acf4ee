#include "policy/secret_document.h"

#include <algorithm>
#include <array>
#include <utility>

#include "policy/read_node.h"
#include "policy/secret_check.h"
#include "policy/units.h"

namespace caisson::policy {
namespace {

using Path = const std::string&;

// Indexed by the enumerator's value.
constexpr std::array<std::string_view, 5> kSourceNames = {"env", "file", "command", "fd", "vault"};
constexpr std::array<std::string_view, 5> kShapeNames = {"length", "prefix", "jwt", "aws", "none"};
constexpr std::array<std::string_view, 6> kPlaceNames = {"header", "basic", "query",
                                                         "path",   "json",  "form"};
constexpr std::array<std::string_view, 3> kHalfNames = {"any", "user", "password"};
constexpr std::array<std::string_view, 2> kViolationNames = {"block", "terminate"};

enum class SecretKind { kValue, kSigV4 };
constexpr std::array<std::string_view, 2> kKindNames = {"value", "sigv4"};
constexpr std::array<std::string_view, 3> kPartNames = {"access_key", "secret_key",
                                                        "session_token"};

constexpr std::string_view kAllowedShape = "length, prefix:TEXT, jwt, aws or none";
constexpr std::string_view kAllowedPlace =
    "{header: NAME}, {basic: any|user|password}, query:NAME, path, json:/POINTER or form:NAME";
constexpr std::string_view kAllowedSource =
    "a mapping with one of the keys env, file, command, fd and vault, such as {env: GITHUB_TOKEN}";

// Whether a number makes sense is secret_check's to say.
constexpr std::uint32_t kMostNumber = 0x7fffffff;

template <typename Names, typename Enum>
std::string_view name_of(const Names& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

Result<std::uint64_t> read_ttl(const Node& node, Path path) {
  constexpr std::string_view kAllowed = "a time such as 1h, 1s to 365d";
  if (!is_scalar(node) || node.kind == Node::Kind::kBool)
    return fail(wrong_at(node, path, kAllowed));
  const auto value = parse_limit(LimitUnit::kDuration, node.text);
  if (!value || !*value) return fail(wrong_at(node, path, kAllowed));
  return **value;
}

Result<SecretShape> read_shape(const Node& node, Path path) {
  if (!is_text(node)) return fail(wrong_at(node, path, kAllowedShape));
  const std::size_t colon = node.text.find(':');
  const auto kind = index_of(kShapeNames, std::string_view(node.text).substr(0, colon));
  const bool prefix = kind && static_cast<SecretShape::Kind>(*kind) == SecretShape::Kind::kPrefix;
  // A prefix has a text, and nothing else has one.
  if (!kind || prefix != (colon != std::string::npos))
    return fail(wrong_at(node, path, kAllowedShape));
  SecretShape shape{static_cast<SecretShape::Kind>(*kind), ""};
  if (prefix) shape.prefix = node.text.substr(colon + 1);
  return shape;
}

Result<SecretPlace> made_place(const Node& node, Path path, std::string_view kind,
                               std::string_view name) {
  const auto index = index_of(kPlaceNames, kind);
  if (!index) return fail(wrong_at(node, path, kAllowedPlace));
  SecretPlace place;
  place.kind = static_cast<SecretPlace::Kind>(*index);
  if (place.kind != SecretPlace::Kind::kBasic) {
    place.name = name;
    return place;
  }
  const auto half = index_of(kHalfNames, name);
  if (!half) return fail(wrong_at(node, path, kAllowedPlace));
  place.half = static_cast<SecretPlace::Half>(*half);
  return place;
}

// KIND:NAME, or {KIND: NAME}.
Result<SecretPlace> read_place(const Node& node, Path path) {
  if (node.kind == Node::Kind::kMap && node.items.size() == 1 && is_text(node.items[0]))
    return made_place(node.items[0], key_below(path, node.keys[0]), node.keys[0],
                      node.items[0].text);
  if (!is_text(node)) return fail(wrong_at(node, path, kAllowedPlace));
  const std::string_view text = node.text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  return made_place(node, path, text.substr(0, colon),
                    text.substr(std::min(colon + 1, text.size())));
}

Result<std::vector<SecretPlace>> read_places(const Node& node, Path path) {
  if (node.kind != Node::Kind::kList)
    return fail(wrong_at(node, path, "a list such as [{header: authorization}, {basic: any}]"));
  std::vector<SecretPlace> places;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(places.emplace_back(),
               read_place(node.items[i], path + "[" + std::to_string(i) + "]"));
  }
  return places;
}

Result<SecretInjection> read_injection(const Node& node, Path path) {
  constexpr std::array<std::string_view, 3> kKeys = {"header", "prefix", "scrub"};
  if (node.kind != Node::Kind::kMap)
    return fail(
        wrong_at(node, path, "a mapping such as {header: authorization, prefix: \"Bearer \"}"));
  SecretInjection injection;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "header") {
      TRY_ASSIGN(injection.header, read_text(value, below));
    } else if (name == "prefix") {
      TRY_ASSIGN(injection.prefix, read_text(value, below));
    } else if (name == "scrub") {
      TRY_ASSIGN(injection.scrub, read_truth(value, below));
    } else {
      return fail(unknown_key(name, value, below, kKeys));
    }
    return {};
  };
  TRY(for_each_key(node, path, read));
  return injection;
}

Status read_key(const std::string& name, const Node& value, Path below, SecretRule& rule) {
  constexpr std::array<std::string_view, 10> kKeys = {
      "kind",         "env",         "source", "shape", "hosts", "in", "max_occurrences",
      "on_violation", "passthrough", "inject"};
  if (name == "kind") return {};
  if (name == "on_violation") return read_enum(value, below, kViolationNames, rule.on_violation);
  if (name == "env") {
    TRY_ASSIGN(rule.env, read_word(value, below, "the name of a variable"));
  } else if (name == "source") {
    TRY_ASSIGN(rule.source, read_source(value, below));
  } else if (name == "shape") {
    TRY_ASSIGN(rule.shape, read_shape(value, below));
  } else if (name == "hosts") {
    TRY_ASSIGN(rule.hosts, read_words(value, below, "[api.example.com]"));
  } else if (name == "in") {
    TRY_ASSIGN(rule.in, read_places(value, below));
  } else if (name == "max_occurrences") {
    TRY_ASSIGN(rule.max_occurrences, read_number(value, below, 0, kMostNumber, "1 to 64"));
  } else if (name == "passthrough") {
    TRY_ASSIGN(rule.passthrough, read_words(value, below, "[logs.example.com]"));
  } else if (name == "inject") {
    TRY_ASSIGN(rule.inject, read_injection(value, below));
  } else {
    return fail(unknown_key(name, value, below, kKeys));
  }
  return {};
}

Result<SecretRule> read_value(const std::string& name, const Node& node, Path path) {
  SecretRule rule;
  rule.name = name;
  const auto read = [&](const std::string& key, const Node& item, Path below) {
    return read_key(key, item, below, rule);
  };
  TRY(for_each_key(node, path, read));
  return rule;
}

// Credentials that sign: what all parts have, and each part's.
struct Credentials {
  SecretRule common;
  SecretSigning signing;
  std::array<std::optional<SecretSource>, kPartNames.size()> sources;
  // What programs that sign look for.
  std::array<std::string, kPartNames.size()> variables = {
      "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
};

Status read_variables(const Node& node, Path path, Credentials& made) {
  if (node.kind != Node::Kind::kMap)
    return fail(wrong_at(node, path,
                         "a mapping such as {access_key: AWS_ACCESS_KEY_ID, secret_key: "
                         "AWS_SECRET_ACCESS_KEY}"));
  made.variables = {};
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    const auto part = index_of(kPartNames, name);
    if (!part) return fail(unknown_key(name, value, below, kPartNames));
    TRY_ASSIGN(made.variables[*part], read_word(value, below, "the name of a variable"));
    return {};
  };
  return for_each_key(node, path, read);
}

Status read_signing_key(const std::string& name, const Node& value, Path below, Credentials& made) {
  constexpr std::array<std::string_view, 9> kKeys = {"kind",       "env",           "access_key",
                                                     "secret_key", "session_token", "hosts",
                                                     "services",   "regions",       "on_violation"};
  if (name == "kind") return {};
  if (name == "env") return read_variables(value, below, made);
  if (name == "on_violation")
    return read_enum(value, below, kViolationNames, made.common.on_violation);
  if (const auto part = index_of(kPartNames, name)) {
    TRY_ASSIGN(made.sources[*part], read_source(value, below));
  } else if (name == "hosts") {
    TRY_ASSIGN(made.common.hosts, read_words(value, below, "[s3.example.com]"));
  } else if (name == "services") {
    TRY_ASSIGN(made.signing.services, read_words(value, below, "[s3, dynamodb]"));
  } else if (name == "regions") {
    TRY_ASSIGN(made.signing.regions, read_words(value, below, "[eu-central-1]"));
  } else {
    return fail(unknown_key(name, value, below, kKeys));
  }
  return {};
}

Status read_credentials(const std::string& name, const Node& node, Path path,
                        std::vector<SecretRule>& rules) {
  Credentials made;
  const auto read = [&](const std::string& key, const Node& item, Path below) {
    return read_signing_key(key, item, below, made);
  };
  TRY(for_each_key(node, path, read));
  made.signing.temporary = made.sources[kPartNames.size() - 1].has_value();
  for (std::size_t part = 0; part < kPartNames.size(); ++part) {
    const std::string below = key_below(path, kPartNames[part]);
    if (!made.sources[part]) {
      if (part + 1 == kPartNames.size()) continue;
      return fail(wrong_at(node, below, "no source", kAllowedSource));
    }
    SecretRule& rule = rules.emplace_back(made.common);
    rule.signing = made.signing;
    rule.signing->part = static_cast<SecretSigning::Part>(part);
    rule.name = name + std::string(suffix_of(rule.signing->part));
    rule.env = made.variables[part];
    rule.source = *made.sources[part];
  }
  return {};
}

// "value", where it says nothing else.
Result<SecretKind> read_kind(const Node& node, Path path) {
  SecretKind kind = SecretKind::kValue;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    if (node.keys[i] == "kind")
      TRY(read_enum(node.items[i], key_below(path, "kind"), kKindNames, kind));
  }
  return kind;
}

json::Value tree_of(const SecretPlace& place) {
  const std::string name(name_of(kPlaceNames, place.kind));
  switch (place.kind) {
    case SecretPlace::Kind::kHeader:
      return json::Value::object().set(name, place.name);
    case SecretPlace::Kind::kBasic:
      return json::Value::object().set(name, name_of(kHalfNames, place.half));
    case SecretPlace::Kind::kPath:
      return name;
    case SecretPlace::Kind::kQuery:
    case SecretPlace::Kind::kJson:
    case SecretPlace::Kind::kForm:
      break;
  }
  return name + ":" + place.name;
}

// The mapping of all parts, of which the first is there.
json::Value tree_of_credentials(std::span<const SecretRule> parts) {
  const SecretRule& first = parts.front();
  json::Value tree = json::Value::object(), variables = json::Value::object();
  for (const SecretRule& rule : parts) {
    if (!rule.env.empty()) variables.set(name_of(kPartNames, rule.signing->part), rule.env);
  }
  tree.set("kind", name_of(kKindNames, SecretKind::kSigV4)).set("env", std::move(variables));
  for (const SecretRule& rule : parts)
    tree.set(name_of(kPartNames, rule.signing->part), source_tree(rule.source));
  tree.set("hosts", list_of(first.hosts));
  tree.set("services", list_of(first.signing->services));
  tree.set("regions", list_of(first.signing->regions));
  tree.set("on_violation", name_of(kViolationNames, first.on_violation));
  return tree;
}

json::Value tree_of(const SecretRule& rule) {
  json::Value tree = json::Value::object();
  if (!rule.env.empty()) tree.set("env", rule.env);
  tree.set("source", source_tree(rule.source));
  if (!rule.inject) {
    std::string shape(name_of(kShapeNames, rule.shape.kind));
    if (rule.shape.kind == SecretShape::Kind::kPrefix) shape += ":" + rule.shape.prefix;
    tree.set("shape", std::move(shape));
  }
  tree.set("hosts", list_of(rule.hosts));
  if (!rule.in.empty()) {
    json::Value places = json::Value::array();
    for (const SecretPlace& place : rule.in) places.push(tree_of(place));
    tree.set("in", std::move(places));
  }
  if (!rule.inject) tree.set("max_occurrences", rule.max_occurrences);
  tree.set("on_violation", name_of(kViolationNames, rule.on_violation));
  if (!rule.passthrough.empty()) tree.set("passthrough", list_of(rule.passthrough));
  if (rule.inject) {
    json::Value inject = json::Value::object();
    inject.set("header", rule.inject->header).set("prefix", rule.inject->prefix);
    if (!rule.inject->scrub) inject.set("scrub", false);
    tree.set("inject", std::move(inject));
  }
  return tree;
}

}  // namespace

Result<SecretSource> read_source(const Node& node, Path path) {
  constexpr std::array<std::string_view, 6> kKeys = {"env", "file",  "command",
                                                     "fd",  "vault", "ttl"};
  if (node.kind != Node::Kind::kMap) return fail(wrong_at(node, path, kAllowedSource));
  SecretSource source;
  std::size_t kinds = 0;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "ttl") {
      TRY_ASSIGN(source.ttl_ms, read_ttl(value, below));
      return {};
    }
    const auto kind = index_of(kSourceNames, name);
    if (!kind) return fail(unknown_key(name, value, below, kKeys));
    source.kind = static_cast<SecretSource::Kind>(*kind);
    ++kinds;
    if (name == "command") {
      TRY_ASSIGN(source.command, read_words(value, below, "[/usr/bin/get-token, --json]"));
    } else if (name == "fd") {
      TRY_ASSIGN(const std::uint32_t number,
                 read_number(value, below, 0, kMostNumber, "an inherited descriptor, at least 3"));
      source.descriptor = static_cast<int>(number);
    } else {
      TRY_ASSIGN(source.text, read_text(value, below));
    }
    return {};
  };
  TRY(for_each_key(node, path, read));
  if (kinds != 1)
    return fail(wrong_at(node, path, kinds == 0 ? "no source" : "several sources", kAllowedSource));
  if (source.ttl_ms && source.kind != SecretSource::Kind::kCommand)
    return fail(wrong_at(node, path + ".ttl", "a ttl", "ttl beside command alone"));
  return source;
}

json::Value source_tree(const SecretSource& source) {
  json::Value tree = json::Value::object();
  const std::string_view name = name_of(kSourceNames, source.kind);
  switch (source.kind) {
    case SecretSource::Kind::kEnv:
    case SecretSource::Kind::kFile:
    case SecretSource::Kind::kVault:
      tree.set(name, source.text);
      break;
    case SecretSource::Kind::kCommand:
      tree.set(name, list_of(source.command));
      if (source.ttl_ms) tree.set("ttl", format_limit(LimitUnit::kDuration, source.ttl_ms));
      break;
    case SecretSource::Kind::kFd:
      tree.set(name, source.descriptor);
      break;
  }
  return tree;
}

Result<std::vector<SecretRule>> read_secrets(const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::kMap)
    return fail(wrong_at(node, path,
                         "a mapping such as {github: {env: GITHUB_TOKEN, source: {env: "
                         "GITHUB_TOKEN}, hosts: [api.example.com]}}"));
  std::vector<SecretRule> rules;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (value.kind != Node::Kind::kMap)
      return fail(wrong_at(value, below,
                           "a mapping such as {source: {env: GITHUB_TOKEN}, hosts: "
                           "[api.example.com]}"));
    TRY_ASSIGN(const SecretKind kind, read_kind(value, below));
    if (kind == SecretKind::kSigV4) return read_credentials(name, value, below, rules);
    TRY_ASSIGN(rules.emplace_back(), read_value(name, value, below));
    return {};
  };
  TRY(for_each_key(node, path, read));
  TRY(check_secrets(rules, path));
  return rules;
}

json::Value secrets_tree(std::span<const SecretRule> rules) {
  json::Value tree = json::Value::object();
  while (!rules.empty()) {
    const SecretRule& rule = rules.front();
    // Parts of credentials stand together.
    const std::size_t count =
        rule.signing ? std::min<std::size_t>(rule.signing->temporary ? 3 : 2, rules.size()) : 1;
    tree.set(document_name(rule),
             rule.signing ? tree_of_credentials(rules.first(count)) : tree_of(rule));
    rules = rules.subspan(count);
  }
  return tree;
}

}  // namespace caisson::policy
