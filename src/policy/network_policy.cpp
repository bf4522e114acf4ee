#include "policy/network_policy.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/guards.h"
#include "policy/complain.h"
#include "policy/names.h"
#include "policy/secret_check.h"
#include "policy/units.h"
#include "policy/upstream_proxy.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxRuleId = 64;
constexpr std::uint32_t kMaxDnsTtl = 3600;
// 10.0.0.0/8 and fc00::/7 are the widest ranges that are anybody's own.
constexpr unsigned kLeastLiftingBits4 = 8, kLeastLiftingBits6 = 7;
constexpr std::uint16_t kHttpsPort = 443;
constexpr std::uint16_t kHttpPort = 80;

constexpr std::array<std::string_view, 13> kReasonNames = {
    "match",  "default", "no_rule",   "deny_rule", "port",    "protocol", "plaintext",
    "method", "path",    "body_size", "websocket", "no_name", "floor"};

std::string item(const std::string& path, std::string_view key, std::size_t index) {
  return key_below(path, key) + "[" + std::to_string(index) + "]";
}

bool is_token(std::string_view word) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !word.empty() && word.size() <= 32 && std::ranges::all_of(word, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kMarks.contains(c);
  });
}

bool is_id(std::string_view id) {
  return id.size() <= kMaxRuleId && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  c == '-' || c == '_' || c == '.';
         });
}

// The path without the parameters of its segments ("/a;x=1/b" is "/a/b").
std::string without_parameters(std::string_view path) {
  std::string bare;
  bool parameter = false;
  for (const char c : path) {
    parameter = c == ';' || (parameter && c != '/');
    if (!parameter) bare += c;
  }
  return bare;
}

Status check_size(std::size_t size, const std::string& path) {
  if (size <= kMaxRuleItems) return {};
  return fail(
      wrong(path, std::to_string(size) + " items", "at most " + std::to_string(kMaxRuleItems)));
}

Status check_limits(const NetworkLimits& limits, const std::string& path) {
  struct Bound {
    std::string_view key;
    std::optional<std::uint64_t> value;
    std::uint64_t most;
  };
  constexpr std::uint64_t kMost = 1ull << 50;
  for (const Bound& bound : {Bound{"connections", limits.connections, 65'536},
                             {"connections_per_second", limits.connections_per_second, 1'000'000},
                             {"dns_per_second", limits.dns_per_second, 1'000'000},
                             {"bytes_up", limits.bytes_up, kMost},
                             {"bytes_down", limits.bytes_down, kMost},
                             {"rate_up", limits.rate_up, kMost},
                             {"rate_down", limits.rate_down, kMost},
                             {"idle", limits.idle_ms, 365ull * 24 * 3600 * 1000}}) {
    if (!bound.value || (*bound.value > 0 && *bound.value <= bound.most)) continue;
    return fail(wrong(key_below(path, bound.key), std::to_string(*bound.value),
                      "1 to " + std::to_string(bound.most) + ", or unlimited"));
  }
  return {};
}

// Gives the error of a text's own reader the form of this folder's.
template <typename T>
Result<T> at(const std::string& path, Result<T> value) {
  if (value.has_value()) return value;
  return fail(Error::invalid(path + ": found what cannot be: " + value.error().message()));
}

Status check_shape(const NetworkRule& rule, const std::string& path) {
  TRY(check_enum(key_below(path, "action"), rule.action, kRuleActionNames));
  TRY(check_enum(key_below(path, "proto"), rule.protocol, kRuleProtocolNames));
  TRY(check_enum(key_below(path, "tls"), rule.tls, kTlsModeNames));
  const bool allows = rule.action == RuleAction::kAllow;
  if (!is_id(rule.id)) {
    return fail(wrong(key_below(path, "id"), quote(rule.id),
                      "at most 64 letters, digits, dots, dashes and underscores"));
  }
  if (rule.hosts.empty() && rule.cidrs.empty()) {
    return fail(wrong(path, "neither hosts nor cidrs", "at least one of them"));
  }
  if (rule.any_port && !rule.ports.empty())
    return fail(wrong(key_below(path, "ports"), "any beside a list", "one of them"));
  const bool says_no_port = rule.ports.empty() && !rule.any_port;
  if (allows && says_no_port && rule.protocol == RuleProtocol::kTcp) {
    return fail(wrong(key_below(path, "ports"), "nothing", "the ports of a tcp rule, or any"));
  }
  if (allows && says_no_port && !rule.cidrs.empty()) {
    return fail(wrong(key_below(path, "ports"), "nothing",
                      "the ports of a rule with cidrs, whose addresses the floor would else keep"));
  }
  if (!allows && !rule.http.empty() && !rule.cidrs.empty()) {
    return fail(wrong(key_below(path, "http"), "a list beside cidrs",
                      "hosts alone, in a rule that denies requests"));
  }
  const bool looks =
      rule.protocol == RuleProtocol::kHttp && (rule.tls != TlsMode::kSplice || !allows);
  if (!rule.http.empty() && !looks && !guard_off(Guard::kMethodsInspect)) {
    return fail(wrong(key_below(path, "http"), "a list",
                      "nothing where connections are not looked into (tls: splice, proto: tcp)"));
  }
  if (rule.websocket && (!looks || !allows)) {
    return fail(wrong(key_below(path, "websocket"), "allow",
                      "deny where connections are not looked into (tls: splice, proto: tcp)"));
  }
  return {};
}

}  // namespace

std::string_view to_string(NetworkReason reason) {
  return kReasonNames[static_cast<std::size_t>(reason)];
}

bool inspects(const NetworkPolicy& policy) {
  const bool has_password = policy.upstream_proxy && policy.upstream_proxy->password;
  return has_password || !policy.secrets.empty() ||
         std::ranges::any_of(policy.rules, [](const NetworkRule& rule) {
           return rule.action == RuleAction::kAllow && rule.protocol == RuleProtocol::kHttp &&
                  rule.tls == TlsMode::kInspect;
         });
}

bool CompiledNetwork::Rule::has_host(const Host& host) const {
  if (std::ranges::any_of(hosts, [&](const HostPattern& entry) { return entry.matches(host); })) {
    return true;
  }
  return host.kind == Host::Kind::kAddress && has_address(host.address);
}

bool CompiledNetwork::Rule::has_address(const IpAddress& address) const {
  return std::ranges::any_of(cidrs, [&](const Cidr& range) { return range.contains(address); });
}

bool CompiledNetwork::Rule::has_port(std::uint16_t port) const {
  return ports.empty() || guard_off(Guard::kRulePorts) ||
         std::ranges::find(ports, port) != ports.end();
}

bool CompiledNetwork::Match::has_method(std::string_view method) const {
  return methods.empty() || std::ranges::find(methods, method) != methods.end();
}

bool CompiledNetwork::Match::has_path(std::string_view path) const {
  return paths.empty() ||
         std::ranges::any_of(paths, [&](const PathPattern& entry) { return entry.matches(path); });
}

Result<CompiledNetwork::Match> CompiledNetwork::compile_match(const HttpMatch& values,
                                                              const std::string& path) {
  Match match;
  TRY(check_size(values.methods.size(), key_below(path, "methods")));
  TRY(check_size(values.paths.size(), key_below(path, "paths")));
  for (std::size_t i = 0; i < values.methods.size(); ++i) {
    if (!is_token(values.methods[i])) {
      return fail(wrong(item(path, "methods", i), quote(values.methods[i]),
                        "a method such as GET, as it is sent"));
    }
  }
  match.methods = values.methods;
  for (std::size_t i = 0; i < values.paths.size(); ++i) {
    TRY_ASSIGN(PathPattern pattern,
               at(item(path, "paths", i), PathPattern::parse(values.paths[i])));
    match.paths.push_back(std::move(pattern));
  }
  match.max_body = values.max_body;
  return match;
}

// Whether whatever the rule is about is the sandbox's own loopback inside, which no gateway sees.
bool CompiledNetwork::Rule::is_of_loopback() const {
  const auto own = [](const HostPattern& entry) {
    const Host& host = entry.host();
    if (host.is_address()) return classify(host.address) == IpClass::kLoopback;
    return host.name == "localhost" || host.name.ends_with(".localhost");
  };
  return std::ranges::all_of(hosts, own) && std::ranges::all_of(cidrs, [](const Cidr& range) {
           return classify(range.network()) == IpClass::kLoopback;
         });
}

Result<CompiledNetwork::Rule> CompiledNetwork::compile_rule(const NetworkRule& values,
                                                            std::size_t index,
                                                            const std::string& path) {
  TRY(check_shape(values, path));
  Rule rule;
  rule.id = values.id.empty() ? "rule-" + std::to_string(index + 1) : values.id;
  rule.action = values.action;
  rule.protocol = values.protocol;
  rule.tls = values.tls;
  rule.websocket = values.websocket;
  TRY(check_size(values.hosts.size(), key_below(path, "hosts")));
  TRY(check_size(values.cidrs.size(), key_below(path, "cidrs")));
  TRY(check_size(values.ports.size(), key_below(path, "ports")));
  TRY(check_size(values.http.size(), key_below(path, "http")));
  for (std::size_t i = 0; i < values.hosts.size(); ++i) {
    TRY_ASSIGN(HostPattern pattern,
               at(item(path, "hosts", i), HostPattern::parse(values.hosts[i])));
    // An address is named as a range of its own is.
    if (pattern.is_address()) {
      TRY_ASSIGN(const Cidr range, Cidr::parse(pattern.host().name));
      rule.cidrs.push_back(range);
    }
    rule.hosts.push_back(std::move(pattern));
  }
  for (std::size_t i = 0; i < values.cidrs.size(); ++i) {
    TRY_ASSIGN(const Cidr range, at(item(path, "cidrs", i), Cidr::parse(values.cidrs[i])));
    rule.cidrs.push_back(range);
  }
  for (std::size_t i = 0; i < values.ports.size(); ++i) {
    if (values.ports[i] == 0) {
      return fail(wrong(item(path, "ports", i), "the number 0", "a port from 1 to 65535"));
    }
  }
  rule.ports = values.ports;
  if (rule.ports.empty() && !values.any_port && rule.action == RuleAction::kAllow) {
    rule.ports = {rule.tls == TlsMode::kPlaintext ? kHttpPort : kHttpsPort};
  }
  if (rule.action == RuleAction::kAllow && rule.is_of_loopback() &&
      !guard_off(Guard::kLoopbackRule)) {
    return fail(wrong(path, "the loopback alone, which is the sandbox's own inside",
                      "beside it a name that leads there on this host, or another address of it"));
  }
  for (std::size_t i = 0; i < values.http.size(); ++i) {
    TRY_ASSIGN(Match match, compile_match(values.http[i], item(path, "http", i)));
    rule.http.push_back(std::move(match));
  }
  return rule;
}

namespace {

// _SERVICE._PROTOCOL.NAME, as RFC 2782 has it. Not repaired: what stands here is what is asked.
bool is_service(const std::string& text) {
  const std::size_t protocol = text.find('.') + 1;
  const std::size_t name = text.find('.', protocol) + 1;
  if (protocol == 0 || name == 0 || text[0] != '_' || text[protocol] != '_') return false;
  const auto host = canonical_host(text);
  const auto below = canonical_host(std::string_view(text).substr(name));
  return host.has_value() && host->name == text && below.has_value() && !below->is_address();
}

Status check_services(const std::vector<std::string>& services, const std::string& path) {
  if (services.size() > kMaxServices) {
    return fail(wrong(key_below(path, "services"), std::to_string(services.size()) + " names",
                      "at most " + std::to_string(kMaxServices)));
  }
  for (std::size_t i = 0; i < services.size(); ++i) {
    if (is_service(services[i])) continue;
    return fail(wrong(item(path, "services", i), quote(services[i]),
                      "a name such as _mongodb._tcp.db.example.com, in lower case and whole"));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const CompiledNetwork>> CompiledNetwork::compile(const NetworkPolicy& policy,
                                                                        std::string_view path) {
  const std::string top(path);
  TRY(check_enum(key_below(top, "default"), policy.unmatched, kNetworkDefaultNames));
  TRY(check_enum(key_below(top, "floor"), policy.floor, kFloorNames));
  TRY(check_enum(key_below(top, "dns"), policy.dns.unmatched, kUnmatchedNameNames));
  if (policy.dns.ttl == 0 || policy.dns.ttl > kMaxDnsTtl) {
    return fail(wrong(key_below(key_below(top, "dns"), "ttl"),
                      "the number " + std::to_string(policy.dns.ttl), "seconds from 1 to 3600"));
  }
  TRY(check_services(policy.dns.services, key_below(top, "dns")));
  TRY(check_limits(policy.limits, key_below(top, "limits")));
  const std::string audit = key_below(top, "audit");
  TRY(check_enum(key_below(audit, "fsync"), policy.audit.sync, kAuditSyncNames));
  if (policy.audit.segment < kMinAuditSegment || policy.audit.segment > kMaxAuditSegment) {
    return fail(wrong(key_below(audit, "segment"),
                      format_limit(LimitUnit::kBytes, policy.audit.segment),
                      "a size from 64KiB to 1GiB"));
  }
  auto compiled = std::make_shared<CompiledNetwork>();
  if (policy.rules.size() > kMaxRules) {
    return fail(wrong(key_below(top, "rules"), std::to_string(policy.rules.size()) + " rules",
                      "at most " + std::to_string(kMaxRules)));
  }
  std::set<std::string> ids;
  for (std::size_t i = 0; i < policy.rules.size(); ++i) {
    const std::string below = item(top, "rules", i);
    TRY_ASSIGN(Rule rule, compile_rule(policy.rules[i], i, below));
    if (!ids.insert(rule.id).second) {
      return fail(wrong(key_below(below, "id"), quote(rule.id) + ", as another rule has it",
                        "an id of its own"));
    }
    const bool names = std::ranges::any_of(
        rule.hosts, [](const HostPattern& entry) { return !entry.is_address(); });
    const bool addresses = std::ranges::any_of(rule.hosts, &HostPattern::is_address);
    if (rule.action == RuleAction::kDeny && names) compiled->denies_names_ = true;
    if (rule.action == RuleAction::kDeny && (addresses || !rule.cidrs.empty()))
      compiled->denies_addresses_ = true;
    compiled->rules_.push_back(std::move(rule));
  }
  compiled->values_ = policy;
  const std::string secrets = key_below(top, "secrets");
  TRY(check_secrets(policy.secrets, secrets));
  for (const SecretRule& secret : policy.secrets) {
    std::vector<HostPattern>& hosts = compiled->secret_hosts_.emplace_back();
    for (const std::string& text : secret.hosts) {
      TRY_ASSIGN(HostPattern pattern, HostPattern::parse(text));
      hosts.push_back(std::move(pattern));
    }
  }
  TRY(compiled->check_secret_hosts(secrets));
  if (policy.upstream_proxy) {
    TRY_ASSIGN(compiled->proxy_,
               check_proxy(*policy.upstream_proxy, key_below(top, "upstream_proxy")));
  }
  return std::shared_ptr<const CompiledNetwork>(std::move(compiled));
}

// A secret for a host that nothing reaches by TLS is a mistake. Of what is below a name some part
// may be meant.
Status CompiledNetwork::check_secret_hosts(const std::string& path) const {
  if (values_.unmatched == NetworkDefault::kAllowPublic || guard_off(Guard::kSecretHostsOpened))
    return {};
  for (const SecretRule& secret : values_.secrets) {
    // What others may know is set wherever it is allowed to go.
    if (secret.inject && !secret.inject->scrub) continue;
    for (std::size_t i = 0; i < secret.hosts.size(); ++i) {
      if (secret.hosts[i].starts_with('*')) continue;
      TRY_ASSIGN(const HostPattern pattern, HostPattern::parse(secret.hosts[i]));
      const bool reached = std::ranges::any_of(rules_, [&](const Rule& rule) {
        return opens(rule, pattern.host()) && rule.has_host(pattern.host());
      });
      if (reached) continue;
      return fail(wrong(item(key_below(path, document_name(secret)), "hosts", i),
                        quote(secret.hosts[i]), "a host that a rule of the policy allows by TLS"));
    }
  }
  return {};
}

// ---- decisions ----------------------------------------------------------------------------------

NetworkDecision CompiledNetwork::unmatched(NetworkReason reason, Named named) const {
  if (values_.unmatched != NetworkDefault::kAllowPublic && !guard_off(Guard::kDefaultDeny))
    return {.allowed = false, .reason = reason};
  // Else a name that is denied would be reached by its address, or by bytes that do not say it.
  if (denies_names_ && named == Named::kNo)
    return {.allowed = false, .reason = NetworkReason::kNoName};
  return {.allowed = true, .reason = NetworkReason::kDefault};
}

bool CompiledNetwork::Rule::denies(const Request& request) const {
  if (http.empty()) return true;
  // A server may take what follows a semicolon for no part of the name.
  const std::string bare = without_parameters(request.path);
  return std::ranges::any_of(http, [&](const Match& match) {
    return match.has_method(request.method) &&
           (match.has_path(request.path) || match.has_path(bare));
  });
}

const CompiledNetwork::Rule* CompiledNetwork::denying(const Host& host, std::uint16_t port) const {
  const auto found = std::ranges::find_if(rules_, [&](const Rule& rule) {
    return rule.action == RuleAction::kDeny && rule.has_port(port) && rule.has_host(host);
  });
  return found == rules_.end() ? nullptr : &*found;
}

NetworkDecision CompiledNetwork::connection(const Host& host, std::uint16_t port,
                                            ConnectionKind kind) const {
  // Whoever wants to look into what goes to a host wins over whoever does not.
  const auto inspecting = std::ranges::find_if(rules_, [&](const Rule& rule) {
    return kind == ConnectionKind::kTls && opens(rule, host) && rule.has_port(port) &&
           rule.has_host(host);
  });
  // The requests that such a rule denies cannot be told apart in what is not read.
  const bool read = kind == ConnectionKind::kHttp || inspecting != rules_.end();
  for (const Rule& rule : rules_) {
    if (rule.action != RuleAction::kDeny || !rule.has_port(port) || !rule.has_host(host)) continue;
    if (rule.http.empty() || !read) {
      return {.allowed = false, .reason = NetworkReason::kDenyRule, .rule = rule.id};
    }
  }
  if (inspecting != rules_.end()) {
    return {
        .allowed = true, .reason = NetworkReason::kMatch, .rule = inspecting->id, .inspect = true};
  }
  // The nearest miss is what the refusal names.
  NetworkReason reason = NetworkReason::kNoRule;
  for (const Rule& rule : rules_) {
    if (rule.action != RuleAction::kAllow || !rule.has_host(host)) continue;
    if (!rule.has_port(port)) {
      if (reason == NetworkReason::kNoRule) reason = NetworkReason::kPort;
      continue;
    }
    const bool plaintext = rule.tls == TlsMode::kPlaintext;
    const bool fits = rule.protocol == RuleProtocol::kTcp ||
                      (kind == ConnectionKind::kTls && !plaintext) ||
                      (kind == ConnectionKind::kHttp && plaintext);
    if (fits) return {.allowed = true, .reason = NetworkReason::kMatch, .rule = rule.id};
    reason = kind == ConnectionKind::kHttp ? NetworkReason::kPlaintext : NetworkReason::kProtocol;
  }
  const bool named = !host.is_address() && kind != ConnectionKind::kOther;
  NetworkDecision decision = unmatched(reason, named ? Named::kYes : Named::kNo);
  decision.inspect = decision.allowed && kind == ConnectionKind::kTls && serves_secret(host) &&
                     !guard_off(Guard::kSecretHostsOpened);
  return decision;
}

NetworkDecision CompiledNetwork::raw_connection(const Host& host, std::uint16_t port) const {
  if (const Rule* rule = denying(host, port)) {
    return {.allowed = false, .reason = NetworkReason::kDenyRule, .rule = rule->id};
  }
  for (const Rule& rule : rules_) {
    if (rule.action == RuleAction::kAllow && rule.protocol == RuleProtocol::kTcp &&
        rule.has_port(port) && rule.has_host(host)) {
      return {.allowed = true, .reason = NetworkReason::kMatch, .rule = rule.id};
    }
  }
  return {.allowed = false, .reason = NetworkReason::kNoRule};
}

NetworkDecision CompiledNetwork::request(const Host& host, std::uint16_t port,
                                         const Request& request) const {
  for (const Rule& rule : rules_) {
    if (rule.action != RuleAction::kDeny || !rule.has_port(port) || !rule.has_host(host)) continue;
    if (rule.denies(request))
      return {.allowed = false, .reason = NetworkReason::kDenyRule, .rule = rule.id};
  }
  // The nearest miss is what the refusal names.
  NetworkDecision nearest{.allowed = false, .reason = NetworkReason::kNoRule};
  for (const Rule& rule : rules_) {
    if (rule.action != RuleAction::kAllow || !rule.has_host(host)) continue;
    const bool of_kind = request.tls
                             ? opens(rule, host)
                             : rule.tls == TlsMode::kPlaintext || guard_off(Guard::kPlaintextRule);
    const bool other = rule.protocol == RuleProtocol::kHttp && !of_kind;
    if (!rule.has_port(port) || other) {
      const NetworkReason miss = request.tls ? NetworkReason::kProtocol : NetworkReason::kPlaintext;
      if (nearest.reason == NetworkReason::kNoRule || nearest.reason == NetworkReason::kPort)
        nearest.reason = rule.has_port(port) ? miss : NetworkReason::kPort;
      continue;
    }
    nearest = judge(rule, request);
    if (nearest.allowed) return nearest;
  }
  if (values_.unmatched != NetworkDefault::kAllowPublic && !guard_off(Guard::kDefaultDeny))
    return nearest;
  return unmatched(nearest.reason, host.is_address() ? Named::kNo : Named::kYes);
}

NetworkDecision CompiledNetwork::judge(const Rule& rule, const Request& request) {
  NetworkDecision decision{.allowed = false, .reason = NetworkReason::kMethod, .rule = rule.id};
  if (request.websocket && !rule.websocket && rule.protocol == RuleProtocol::kHttp &&
      !guard_off(Guard::kWebsocketRule)) {
    decision.reason = NetworkReason::kWebSocket;
    return decision;
  }
  if (rule.http.empty()) decision.allowed = true;
  for (const Match& match : rule.http) {
    decision.limits_methods = decision.limits_methods || !match.methods.empty();
    if (!match.has_method(request.method)) continue;
    if (!match.has_path(request.path)) {
      if (decision.reason == NetworkReason::kMethod) decision.reason = NetworkReason::kPath;
      continue;
    }
    if (match.max_body && request.body > *match.max_body) {
      if (!decision.allowed) decision.reason = NetworkReason::kBodySize;
      continue;
    }
    // Of several that match, the one that lets through most.
    const bool more = !decision.allowed || !match.max_body ||
                      (decision.most_body && *match.max_body > *decision.most_body);
    if (more) decision.most_body = match.max_body;
    decision.allowed = true;
    if (!match.max_body) break;
  }
  if (decision.allowed) decision.reason = NetworkReason::kMatch;
  return decision;
}

NetworkDecision CompiledNetwork::address(const IpAddress& address, std::uint16_t port, bool own,
                                         const NetworkDecision& allowed) const {
  for (const Rule& rule : rules_) {
    if (rule.action == RuleAction::kDeny && rule.has_port(port) && rule.has_address(address)) {
      return {.allowed = false, .reason = NetworkReason::kDenyRule, .rule = rule.id};
    }
  }
  const IpClass type = classify(address);
  if ((type == IpClass::kGlobal && !own) || guard_off(Guard::kFloor))
    return {.allowed = true, .reason = NetworkReason::kDefault};
  if (values_.floor == Floor::kFixed) return {.allowed = false, .reason = NetworkReason::kFloor};
  const bool by_itself = own || type == IpClass::kMetadata || type == IpClass::kLoopback ||
                         type == IpClass::kUnspecified;
  const bool any_range = !by_itself || guard_off(Guard::kMetadataAlone);
  const unsigned least_bits = address.is_v6() ? kLeastLiftingBits6 : kLeastLiftingBits4;
  for (const Rule& rule : rules_) {
    if (allowed.reason != NetworkReason::kMatch || rule.id != allowed.rule) continue;
    const bool named = std::ranges::any_of(rule.cidrs, [&](const Cidr& range) {
      return range.contains(address) && range.bits() >= least_bits &&
             (range.is_single() || any_range);
    });
    if (named) return {.allowed = true, .reason = NetworkReason::kMatch, .rule = rule.id};
  }
  return {.allowed = false, .reason = NetworkReason::kFloor};
}

bool CompiledNetwork::allows_proxy_at(const IpAddress& address, bool own) const {
  const IpClass type = classify(address);
  if ((type == IpClass::kGlobal && !own) || guard_off(Guard::kProxyFloor)) return true;
  if (values_.floor == Floor::kFixed || !proxy_) return false;
  if (proxy_->host.is_address()) return proxy_->host.address == address;
  return !own && (type == IpClass::kPrivate || type == IpClass::kShared);
}

bool CompiledNetwork::proxy_resolves(const NetworkDecision& allowed) const {
  return guard_off(Guard::kProxyAddresses) ||
         (allowed.reason == NetworkReason::kMatch && !denies_addresses_);
}

bool CompiledNetwork::may_match(const Host& host) const {
  if (values_.unmatched == NetworkDefault::kAllowPublic) return true;
  return names(host);
}

bool CompiledNetwork::opens(const Rule& rule, const Host& host) const {
  if (rule.action != RuleAction::kAllow || rule.protocol != RuleProtocol::kHttp) return false;
  return rule.tls == TlsMode::kInspect || (rule.tls == TlsMode::kSplice && serves_secret(host) &&
                                           !guard_off(Guard::kSecretHostsOpened));
}

std::vector<std::string> CompiledNetwork::secrets_of(const Host& host) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < secret_hosts_.size(); ++i) {
    const bool serves = std::ranges::any_of(
        secret_hosts_[i], [&](const HostPattern& entry) { return entry.matches(host); });
    // Of credentials once.
    std::string name = document_name(values_.secrets[i]);
    if (serves && (names.empty() || names.back() != name)) names.push_back(std::move(name));
  }
  return names;
}

bool CompiledNetwork::serves_secret(const Host& host) const {
  return !secrets_of(host).empty();
}

bool CompiledNetwork::names(const Host& host) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) {
    return rule.action == RuleAction::kAllow && rule.has_host(host);
  });
}

}  // namespace caisson::policy
