#include "policy/network_document.h"

#include <array>
#include <utility>

#include "base/guards.h"
#include "policy/names.h"
#include "policy/network_policy.h"
#include "policy/read_node.h"
#include "policy/secret_document.h"
#include "policy/units.h"
#include "policy/yaml_text.h"

namespace caisson::policy {
namespace {

using Path = const std::string&;

// The limits, once for reading and for writing.
struct NetworkLimitRule {
  std::string_view key;
  std::optional<std::uint64_t> NetworkLimits::* value;
  LimitUnit unit;
};
constexpr std::array<NetworkLimitRule, 8> kNetworkLimits = {{
    {"connections", &NetworkLimits::connections, LimitUnit::kCount},
    {"connections_per_second", &NetworkLimits::connections_per_second, LimitUnit::kCountRate},
    {"dns_per_second", &NetworkLimits::dns_per_second, LimitUnit::kCountRate},
    {"bytes_up", &NetworkLimits::bytes_up, LimitUnit::kBytes},
    {"bytes_down", &NetworkLimits::bytes_down, LimitUnit::kBytes},
    {"rate_up", &NetworkLimits::rate_up, LimitUnit::kByteRate},
    {"rate_down", &NetworkLimits::rate_down, LimitUnit::kByteRate},
    {"idle", &NetworkLimits::idle_ms, LimitUnit::kDuration},
}};

constexpr std::string_view kAnyPort = "any";

template <std::size_t N>
std::string with_keys(std::string_view before, const std::array<std::string_view, N>& keys) {
  return std::string(before) + " with the keys " + alternatives(keys.data(), N);
}

Result<std::optional<std::uint64_t>> read_amount(const Node& node, Path path, LimitUnit unit) {
  if (!is_scalar(node) || node.kind == Node::Kind::kBool) {
    return fail(wrong_at(node, path, describe(unit)));
  }
  auto value = parse_limit(unit, node.text);
  if (value.has_value()) return *value;
  Error error = std::move(value.error()).with(path);
  if (node.line == 0) return fail(std::move(error));
  return fail(std::move(error).with("line " + std::to_string(node.line)));
}

Result<NetworkLimits> read_limits(const Node& node, Path path) {
  std::array<std::string_view, kNetworkLimits.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kNetworkLimits[i].key;
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, with_keys("a mapping", names)));
  }
  NetworkLimits limits;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    const auto index = index_of(names, name);
    if (!index) return fail(unknown_key(name, value, below, names));
    const NetworkLimitRule& rule = kNetworkLimits[*index];
    TRY_ASSIGN(limits.*rule.value, read_amount(value, below, rule.unit));
    return {};
  };
  TRY(for_each_key(node, path, read));
  return limits;
}

Result<DnsPolicy> read_dns(const Node& node, Path path) {
  constexpr std::array<std::string_view, 3> kKeys = {"unmatched", "ttl", "services"};
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, with_keys("a mapping", kKeys)));
  }
  DnsPolicy dns;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "unmatched") return read_enum(value, below, kUnmatchedNameNames, dns.unmatched);
    if (name == "ttl") {
      TRY_ASSIGN(dns.ttl, read_number(value, below, 1, 3600, "seconds from 1 to 3600"));
    } else if (name == "services") {
      TRY_ASSIGN(dns.services, read_words(value, below, "[_mongodb._tcp.db.example.com]"));
    } else {
      return fail(unknown_key(name, value, below, kKeys));
    }
    return {};
  };
  TRY(for_each_key(node, path, read));
  return dns;
}

Result<AuditPolicy> read_audit(const Node& node, Path path) {
  constexpr std::array<std::string_view, 2> kKeys = {"fsync", "segment"};
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, with_keys("a mapping", kKeys)));
  }
  AuditPolicy audit;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "fsync") return read_enum(value, below, kAuditSyncNames, audit.sync);
    if (name != "segment") return fail(unknown_key(name, value, below, kKeys));
    TRY_ASSIGN(const auto bytes, read_amount(value, below, LimitUnit::kBytes));
    if (!bytes) return fail(wrong_at(value, below, "a size from 64KiB to 1GiB"));
    audit.segment = *bytes;
    return {};
  };
  TRY(for_each_key(node, path, read));
  return audit;
}

Result<std::vector<std::uint16_t>> read_ports(const Node& node, Path path) {
  constexpr std::string_view kAllowed = "a port from 1 to 65535";
  if (node.kind != Node::Kind::kList) {
    return fail(wrong_at(node, path, "a list of ports such as [443], or any"));
  }
  std::vector<std::uint16_t> ports;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(
        const std::uint32_t port,
        read_number(node.items[i], path + "[" + std::to_string(i) + "]", 1, 65535, kAllowed));
    ports.push_back(static_cast<std::uint16_t>(port));
  }
  return ports;
}

Result<HttpMatch> read_match(const Node& node, Path path) {
  constexpr std::array<std::string_view, 3> kKeys = {"methods", "paths", "max_body"};
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, with_keys("a mapping", kKeys)));
  }
  HttpMatch match;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "methods") {
      TRY_ASSIGN(match.methods, read_words(value, below, "[GET, HEAD]"));
    } else if (name == "paths") {
      TRY_ASSIGN(match.paths, read_words(value, below, "[\"/repos/acme/**\"]"));
    } else if (name == "max_body") {
      TRY_ASSIGN(match.max_body, read_amount(value, below, LimitUnit::kBytes));
    } else {
      return fail(unknown_key(name, value, below, kKeys));
    }
    return {};
  };
  TRY(for_each_key(node, path, read));
  return match;
}

Result<std::vector<HttpMatch>> read_matches(const Node& node, Path path) {
  if (node.kind != Node::Kind::kList) {
    return fail(wrong_at(node, path, "a list such as [{methods: [GET], paths: [\"/a/**\"]}]"));
  }
  std::vector<HttpMatch> matches;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(matches.emplace_back(),
               read_match(node.items[i], path + "[" + std::to_string(i) + "]"));
  }
  return matches;
}

Status read_rule_key(const std::string& name, const Node& value, Path below, NetworkRule& rule) {
  constexpr std::array<std::string_view, 9> kKeys = {
      "id", "action", "hosts", "cidrs", "ports", "proto", "tls", "http", "websocket"};
  if (name == "action") return read_enum(value, below, kRuleActionNames, rule.action);
  if (name == "proto") return read_enum(value, below, kRuleProtocolNames, rule.protocol);
  if (name == "tls") return read_enum(value, below, kTlsModeNames, rule.tls);
  if (name == "id") {
    TRY_ASSIGN(rule.id, read_word(value, below, "a name"));
  } else if (name == "hosts") {
    TRY_ASSIGN(rule.hosts, read_words(value, below, "[api.example.com]"));
  } else if (name == "cidrs") {
    TRY_ASSIGN(rule.cidrs, read_words(value, below, "[\"10.20.0.5/32\"]"));
  } else if (name == "ports") {
    rule.any_port = is_text(value) && value.text == kAnyPort;
    if (rule.any_port) return {};
    TRY_ASSIGN(rule.ports, read_ports(value, below));
  } else if (name == "http") {
    TRY_ASSIGN(rule.http, read_matches(value, below));
  } else if (name == "websocket") {
    RuleAction action = RuleAction::kDeny;
    TRY(read_enum(value, below, kRuleActionNames, action));
    rule.websocket = action == RuleAction::kAllow;
  } else {
    return fail(unknown_key(name, value, below, kKeys));
  }
  return {};
}

Result<NetworkRule> read_rule(const Node& node, Path path) {
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, "a rule such as {hosts: [api.example.com]}"));
  }
  NetworkRule rule;
  bool says_tls = false;
  const auto read = [&](const std::string& name, const Node& value, Path below) {
    says_tls = says_tls || name == "tls";
    return read_rule_key(name, value, below, rule);
  };
  TRY(for_each_key(node, path, read));
  // What a rule says of requests it can only mean of connections that are looked into.
  const bool of_requests = rule.action == RuleAction::kAllow &&
                           rule.protocol == RuleProtocol::kHttp &&
                           (!rule.http.empty() || rule.websocket);
  if (!says_tls && of_requests && !guard_off(Guard::kMethodsInspect)) rule.tls = TlsMode::kInspect;
  return rule;
}

Result<std::vector<NetworkRule>> read_rules(const Node& node, Path path) {
  if (node.kind != Node::Kind::kList) {
    return fail(wrong_at(node, path, "a list such as [{hosts: [api.example.com]}]"));
  }
  std::vector<NetworkRule> rules;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    TRY_ASSIGN(rules.emplace_back(),
               read_rule(node.items[i], path + "[" + std::to_string(i) + "]"));
  }
  return rules;
}

Result<UpstreamProxy> read_proxy(const Node& node, Path path) {
  constexpr std::array<std::string_view, 3> kKeys = {"address", "username", "password"};
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path, with_keys("a mapping", kKeys)));
  }
  UpstreamProxy proxy;
  const auto read = [&](const std::string& name, const Node& value, Path below) -> Status {
    if (name == "address") {
      TRY_ASSIGN(proxy.address, read_word(value, below, "HOST:PORT"));
    } else if (name == "username") {
      TRY_ASSIGN(proxy.username, read_word(value, below, "a text"));
    } else if (name == "password") {
      TRY_ASSIGN(proxy.password, read_source(value, below));
    } else {
      return fail(unknown_key(name, value, below, kKeys));
    }
    return {};
  };
  TRY(for_each_key(node, path, read));
  return proxy;
}

Status read_policy_key(const std::string& name, const Node& value, Path below,
                       NetworkPolicy& policy) {
  constexpr std::array<std::string_view, 9> kKeys = {"version", "default", "floor",
                                                     "dns",     "limits",  "audit",
                                                     "rules",   "secrets", "upstream_proxy"};
  if (name == "version") {
    if (is_scalar(value) && value.text == "1") return {};
    return fail(wrong_at(value, below, "1"));
  }
  if (name == "default") return read_enum(value, below, kNetworkDefaultNames, policy.unmatched);
  if (name == "floor") return read_enum(value, below, kFloorNames, policy.floor);
  if (name == "dns") {
    TRY_ASSIGN(policy.dns, read_dns(value, below));
  } else if (name == "limits") {
    TRY_ASSIGN(policy.limits, read_limits(value, below));
  } else if (name == "audit") {
    TRY_ASSIGN(policy.audit, read_audit(value, below));
  } else if (name == "rules") {
    TRY_ASSIGN(policy.rules, read_rules(value, below));
  } else if (name == "secrets") {
    TRY_ASSIGN(policy.secrets, read_secrets(value, below));
  } else if (name == "upstream_proxy") {
    TRY_ASSIGN(policy.upstream_proxy, read_proxy(value, below));
  } else {
    return fail(unknown_key(name, value, below, kKeys));
  }
  return {};
}

json::Value tree_of(const UpstreamProxy& proxy) {
  json::Value tree = json::Value::object();
  tree.set("address", proxy.address);
  if (!proxy.username.empty()) tree.set("username", proxy.username);
  if (proxy.password) tree.set("password", source_tree(*proxy.password));
  return tree;
}

json::Value tree_of(const NetworkRule& rule) {
  json::Value tree = json::Value::object();
  if (!rule.id.empty()) tree.set("id", rule.id);
  tree.set("action", to_string(rule.action));
  if (!rule.hosts.empty()) tree.set("hosts", list_of(rule.hosts));
  if (!rule.cidrs.empty()) tree.set("cidrs", list_of(rule.cidrs));
  if (rule.any_port) tree.set("ports", kAnyPort);
  if (!rule.ports.empty()) {
    json::Value ports = json::Value::array();
    for (const std::uint16_t port : rule.ports) ports.push(port);
    tree.set("ports", std::move(ports));
  }
  tree.set("proto", to_string(rule.protocol));
  tree.set("tls", to_string(rule.tls));
  if (!rule.http.empty()) {
    json::Value matches = json::Value::array();
    for (const HttpMatch& match : rule.http) {
      json::Value item = json::Value::object();
      if (!match.methods.empty()) item.set("methods", list_of(match.methods));
      if (!match.paths.empty()) item.set("paths", list_of(match.paths));
      if (match.max_body) item.set("max_body", format_limit(LimitUnit::kBytes, match.max_body));
      matches.push(std::move(item));
    }
    tree.set("http", std::move(matches));
  }
  tree.set("websocket", to_string(rule.websocket ? RuleAction::kAllow : RuleAction::kDeny));
  return tree;
}

json::Value tree_of(const NetworkPolicy& policy) {
  json::Value tree = json::Value::object();
  tree.set("default", to_string(policy.unmatched)).set("floor", to_string(policy.floor));
  json::Value dns = json::Value::object();
  dns.set("unmatched", to_string(policy.dns.unmatched)).set("ttl", policy.dns.ttl);
  if (!policy.dns.services.empty()) dns.set("services", list_of(policy.dns.services));
  tree.set("dns", std::move(dns));
  json::Value limits = json::Value::object();
  for (const NetworkLimitRule& rule : kNetworkLimits) {
    limits.set(rule.key, format_limit(rule.unit, policy.limits.*rule.value));
  }
  tree.set("limits", std::move(limits));
  if (policy.audit != AuditPolicy()) {
    json::Value audit = json::Value::object();
    audit.set("fsync", to_string(policy.audit.sync));
    audit.set("segment", format_limit(LimitUnit::kBytes, policy.audit.segment));
    tree.set("audit", std::move(audit));
  }
  json::Value rules = json::Value::array();
  for (const NetworkRule& rule : policy.rules) rules.push(tree_of(rule));
  tree.set("rules", std::move(rules));
  if (!policy.secrets.empty()) tree.set("secrets", secrets_tree(policy.secrets));
  if (policy.upstream_proxy) tree.set("upstream_proxy", tree_of(*policy.upstream_proxy));
  return tree;
}

}  // namespace

Result<std::optional<NetworkPolicy>> read_network(const Node& node, const std::string& path) {
  if (is_text(node)) {
    if (node.text == to_string(NetworkDefault::kDeny)) return std::nullopt;
    if (node.text == to_string(NetworkDefault::kAllowPublic)) {
      return NetworkPolicy{.unmatched = NetworkDefault::kAllowPublic};
    }
  }
  if (node.kind != Node::Kind::kMap) {
    return fail(wrong_at(node, path.empty() ? "network policy" : path,
                         "deny, allow-public or a mapping such as {rules: [{hosts: "
                         "[api.example.com]}]}"));
  }
  NetworkPolicy policy;
  const auto read = [&](const std::string& name, const Node& value, Path below) {
    return read_policy_key(name, value, below, policy);
  };
  TRY(for_each_key(node, path, read));
  return policy;
}

json::Value network_tree(const std::optional<NetworkPolicy>& policy) {
  if (!policy) return "deny";
  return tree_of(*policy);
}

std::string written(const NetworkPolicy& policy) {
  return json::serialize(tree_of(policy));
}

Result<NetworkPolicy> parse_network_policy(std::string_view text, Format format) {
  TRY_ASSIGN(Node root, format == Format::kYaml ? parse_yaml_tree(text, "network policy")
                                                : parse_json_tree(text, "network policy"));
  std::string path;
  if (root.kind == Node::Kind::kMap && root.keys.size() == 1 && root.keys[0] == "network") {
    path = "network";
    Node below = std::move(root.items[0]);
    root = std::move(below);
  }
  if (root.kind == Node::Kind::kNull) {
    return fail(wrong_at(root, "network policy", "nothing", "a mapping with rules"));
  }
  TRY_ASSIGN(const std::optional<NetworkPolicy> policy, read_network(root, path));
  const NetworkPolicy values = policy.value_or(NetworkPolicy());
  TRY(CompiledNetwork::compile(values, path));
  return values;
}

Result<NetworkPolicy> parse_written_network_policy(std::string_view text) {
  constexpr std::size_t kLarger = 16;
  TRY_ASSIGN(const json::Value value, json::parse(text, {.bytes = kLarger * kMaxDocumentBytes,
                                                         .depth = kMaxDocumentDepth,
                                                         .values = kLarger * kMaxDocumentNodes}));
  TRY_ASSIGN(const std::optional<NetworkPolicy> policy, read_network(tree_of_json(value), ""));
  return policy.value_or(NetworkPolicy());
}

}  // namespace caisson::policy
