#include "api/e2b/network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/json.h"
#include "policy/complain.h"
#include "policy/host_name.h"
#include "policy/ip_address.h"
#include "policy/network_policy.h"
#include "policy/upstream_proxy.h"

namespace caisson::api::e2b {
namespace {

using policy::quote;
using policy::wrong;

constexpr std::size_t kMostAddresses = 1024;
constexpr std::size_t kMostHost = 253;  // of a name, by DNS
constexpr std::size_t kMostRules = 10, kMostHeaders = 20, kMostHeaderValue = 8192;
// More do not fit into a policy that can be changed while it holds.
constexpr std::size_t kMostPieces = 2048;
constexpr std::string_view kAllTraffic = "0.0.0.0/0";
constexpr std::string_view kHidden = "***";
// No name of a team's secret begins so.
constexpr std::string_view kProxyPassword = ".egress-proxy";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_number_up_to(std::string_view text, unsigned most) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number <= most;
}

// An address of either family, alone or with a prefix length.
bool is_address_range(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  in6_addr parsed;
  const bool v4 = ::inet_pton(AF_INET, address.c_str(), &parsed) == 1;
  if (!v4 && ::inet_pton(AF_INET6, address.c_str(), &parsed) != 1) return false;
  return slash == std::string_view::npos ||
         is_number_up_to(text.substr(slash + 1), v4 ? 32U : 128U);
}

bool is_domain(std::string_view text) {
  if (text.empty() || text.size() > kMostHost) return false;
  while (true) {
    const std::string_view label = text.substr(0, text.find('.'));
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') {
      return false;
    }
    if (!std::ranges::all_of(
            label, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_'; })) {
      return false;
    }
    if (label.size() == text.size()) return true;
    text.remove_prefix(label.size() + 1);
  }
}

bool is_domain_pattern(std::string_view text) {
  if (text.starts_with("*.")) text.remove_prefix(2);
  return is_domain(text);
}

std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  return colon != std::string_view::npos && is_number_up_to(host.substr(colon + 1), 65535)
             ? host.substr(0, colon)
             : host;
}

std::string item(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

// "${PORT}" stands for the port that was asked for.
bool is_host_mask(std::string_view text) {
  constexpr std::string_view kPort = "${PORT}";
  std::string host(text);
  if (const std::size_t at = host.find(kPort); at != std::string::npos) {
    host.replace(at, kPort.size(), "1");
  }
  return is_domain(without_port(host)) || is_address_range(without_port(host));
}

// What a value refers to: TEXT${e2b.secrets.NAME}.
Status read_reference(HeaderRule& header, const std::string& path) {
  constexpr std::string_view kBegin = "${e2b.", kSecret = "${e2b.secrets.";
  const std::size_t at = header.value.find(kBegin);
  if (at == std::string::npos) return {};
  const std::string_view reference = std::string_view(header.value).substr(at);
  const std::size_t end = reference.find('}');
  if (!reference.starts_with(kSecret) || end + 1 != reference.size())
    return fail(
        wrong(path, quote(header.value),
              "a text, or one that ends with ${e2b.secrets.NAME} and has no other reference"));
  header.prefix = header.value.substr(0, at);
  header.secret = reference.substr(kSecret.size(), end - kSecret.size());
  // Names are kept so.
  std::ranges::transform(header.secret, header.secret.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return {};
}

// One transform: {"headers":{…}}.
Status read_transform(const Object& rule, std::string_view domain, Network& network) {
  TRY_ASSIGN(const auto transform, rule.object("transform"));
  if (!transform.has_value()) return {};
  TRY_ASSIGN(const auto headers,
             transform->map("headers", {kMostHeaders, kMostHost, kMostHeaderValue}));
  if (!headers.has_value()) return {};
  const std::string path = transform->path_of("headers");
  for (const auto& [name, value] : *headers) {
    const bool token = !name.empty() && std::ranges::all_of(name, [](char c) {
      return is_letter_or_digit(c) ||
             std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
    });
    if (!token) return fail(wrong(path, "the name " + quote(name), "the name of a header"));
    if (std::ranges::any_of(value, [](char c) { return c == '\r' || c == '\n' || c == '\0'; })) {
      return fail(wrong(policy::key_below(path, name), quote(value), "the value of a header"));
    }
    HeaderRule header{.domain = std::string(domain), .name = name, .value = value};
    TRY(read_reference(header, policy::key_below(path, name)));
    network.headers.push_back(std::move(header));
  }
  return {};
}

Status read_rules(const Object& object, Network& network) {
  TRY_ASSIGN(const auto rules, object.object("rules"));
  if (!rules.has_value()) return {};
  const json::Value::Object& members = *rules->value().as_object();
  const std::string path = object.path_of("rules");
  if (members.size() > kMostRules) {
    return fail(wrong(path, std::to_string(members.size()) + " domains",
                      "at most " + std::to_string(kMostRules)));
  }
  for (const json::Member& member : members) {
    if (!is_domain_pattern(without_port(member.key))) {
      return fail(wrong(path, "the key " + quote(member.key), "a domain such as api.example.com"));
    }
    TRY_ASSIGN(const auto list, rules->objects(member.key, 1));
    if (!list.has_value()) continue;
    for (const Object& rule : *list) TRY(read_transform(rule, without_port(member.key), network));
  }
  if (network.headers.size() > policy::kMaxSecrets)
    return fail(wrong(path, std::to_string(network.headers.size()) + " headers in all",
                      "at most " + std::to_string(policy::kMaxSecrets)));
  return {};
}

// {"address":"HOST:PORT","username":…,"password":…}; null: none.
Status read_proxy(const Object& object, Network& network) {
  TRY_ASSIGN(const auto proxy, object.object("egressProxy"));
  if (!proxy.has_value()) return {};
  TRY_ASSIGN(auto address, proxy->text("address", kMostHost + 8));
  TRY_ASSIGN(auto username, proxy->text("username", policy::kMostProxyCredential));
  TRY_ASSIGN(auto password, proxy->text("password", policy::kMostProxyCredential));
  policy::UpstreamProxy& made = network.proxy.emplace();
  made.address = std::move(address).value_or("");
  made.username = std::move(username).value_or("");
  network.proxy_password = std::move(password).value_or("");
  if (!network.proxy_password.empty())
    made.password = policy::SecretSource{.kind = policy::SecretSource::Kind::kVault,
                                         .text = std::string(kProxyPassword)};
  TRY_ASSIGN(const policy::Authority where,
             policy::check_proxy(made, object.path_of("egressProxy")));
  // What its name leads to is judged whenever it is dialed.
  if (!where.host.is_address() || policy::classify(where.host.address) == policy::IpClass::kGlobal)
    return {};
  return fail(wrong(proxy->path_of("address"), quote(made.address),
                    "a proxy at an address of the Internet"));
}

// The first and the last address of an IPv4 block.
std::pair<std::uint64_t, std::uint64_t> bounds_of(const policy::Cidr& block) {
  std::uint64_t first = 0;
  for (std::size_t at = 0; at < 4; ++at) first = first << 8 | block.network().bytes()[at];
  return {first, first + (std::uint64_t{1} << (32 - block.bits())) - 1};
}

// Everything, in however many pieces it is said. Who denies all of IPv4 means IPv6 too, which E2B's
// own sandboxes do not have.
bool denies_all(const Network& network) {
  if (!network.internet) return true;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;
  for (const std::string& entry : network.deny_out) {
    const auto block = policy::Cidr::parse_around(entry);
    if (block.has_value() && !block->network().is_v6()) blocks.push_back(bounds_of(*block));
  }
  std::ranges::sort(blocks);
  std::uint64_t next = 0;
  for (const auto& [first, last] : blocks) {
    if (first > next) return false;
    next = std::max(next, last + 1);
  }
  return next == std::uint64_t{1} << 32;
}

json::Value texts(const std::vector<std::string>& list) {
  json::Value values = json::Value::array();
  for (const std::string& text : list) values.push(text);
  return values;
}

// As they were asked for, but with a text in place of each value that may be secret.
json::Value rules_of(const std::vector<HeaderRule>& headers) {
  std::map<std::string, json::Value> by_domain;
  for (const HeaderRule& header : headers) {
    auto& set = by_domain.try_emplace(header.domain, json::Value::object()).first->second;
    set.set(header.name, header.secret.empty() ? std::string(kHidden) : header.value);
  }
  json::Value rules = json::Value::object();
  for (auto& [domain, headers_of_it] : by_domain) {
    json::Value transform = json::Value::object();
    transform.set("headers", std::move(headers_of_it));
    json::Value rule = json::Value::object();
    rule.set("transform", std::move(transform));
    json::Value list = json::Value::array();
    list.push(std::move(rule));
    rules.set(domain, std::move(list));
  }
  return rules;
}

// `from` without `what`: the halves beside it, from the largest to the smallest.
void cut_out(const policy::Cidr& from, const policy::Cidr& what, std::vector<policy::Cidr>& into) {
  const bool apart = !from.contains(what.network()) && !what.contains(from.network());
  if (apart) return into.push_back(from);
  if (what.bits() <= from.bits()) return;
  for (unsigned bits = from.bits() + 1; bits <= what.bits(); ++bits)
    into.push_back(policy::Cidr::around(what.network().with_flipped(bits - 1), bits));
}

// Rules of as many hosts or ranges as one may have.
template <typename Fill>
void add_rules(policy::NetworkPolicy& made, const policy::NetworkRule& like,
               const std::vector<std::string>& entries, Fill fill) {
  for (std::size_t at = 0; at < entries.size(); at += policy::kMaxRuleItems) {
    policy::NetworkRule& rule = made.rules.emplace_back(like);
    const std::size_t end = std::min(entries.size(), at + policy::kMaxRuleItems);
    fill(rule).assign(entries.begin() + static_cast<std::ptrdiff_t>(at),
                      entries.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

auto& hosts_of(policy::NetworkRule& rule) {
  return rule.hosts;
}
auto& ranges_of(policy::NetworkRule& rule) {
  return rule.cidrs;
}

// Names by TLS and by HTTP at their usual ports, as there; ranges on every port.
Status add_allowed(const std::vector<std::string>& allow, policy::NetworkPolicy& made) {
  std::vector<std::string> names, ranges;
  for (std::size_t index = 0; index < allow.size(); ++index) {
    const std::string& entry = allow[index];
    if (entry == kAllTraffic) made.unmatched = policy::NetworkDefault::kAllowPublic;
    if (is_address_range(entry)) {
      TRY_ASSIGN(const policy::Cidr range, policy::Cidr::parse_around(entry));
      ranges.push_back(range.to_string());
      continue;
    }
    const auto pattern = policy::HostPattern::parse(entry);
    if (!pattern.has_value())
      return fail(
          Error::invalid(item("network.allowOut", index) + ": " + pattern.error().message()));
    names.push_back(entry);
  }
  add_rules(made, {.ports = {443}}, names, hosts_of);
  add_rules(made, {.ports = {80}, .tls = policy::TlsMode::kPlaintext, .websocket = true}, names,
            hosts_of);
  add_rules(made, {.any_port = true, .protocol = policy::RuleProtocol::kTcp}, ranges, ranges_of);
  return {};
}

Status add_denied(const Network& network, policy::NetworkPolicy& made) {
  std::vector<policy::Cidr> denied;
  for (const std::string& entry : network.deny_out) {
    TRY_ASSIGN(const policy::Cidr range, policy::Cidr::parse_around(entry));
    denied.push_back(range);
  }
  for (const std::string& entry : network.allow_out) {
    TRY_ASSIGN(const policy::Cidr allowed, policy::Cidr::parse_around(entry));
    std::vector<policy::Cidr> rest;
    for (const policy::Cidr& range : denied) cut_out(range, allowed, rest);
    denied = std::move(rest);
    if (denied.size() > kMostPieces)
      return fail(wrong("network.denyOut", "ranges that allowOut cuts into too many",
                        "at most " + std::to_string(kMostPieces)));
  }
  std::vector<std::string> ranges;
  for (const policy::Cidr& range : denied) ranges.push_back(range.to_string());
  add_rules(made, {.action = policy::RuleAction::kDeny}, ranges, ranges_of);
  return {};
}

// No name of a team's secret begins so.
std::string name_of_value(std::size_t index) {
  return ".rules-" + std::to_string(index);
}

void add_headers(const std::vector<HeaderRule>& headers, policy::NetworkPolicy& made) {
  for (std::size_t index = 0; index < headers.size(); ++index) {
    const HeaderRule& header = headers[index];
    const bool plain = header.secret.empty();
    policy::SecretRule& rule = made.secrets.emplace_back();
    rule.name = "rules-" + std::to_string(index);
    rule.source = {.kind = policy::SecretSource::Kind::kVault,
                   .text = plain ? name_of_value(index) : header.secret};
    rule.hosts = {header.domain};
    rule.inject =
        policy::SecretInjection{.header = header.name, .prefix = header.prefix, .scrub = !plain};
  }
}

// What making and changing have in common.
Status read_egress(const Object& object, Network& network) {
  TRY_ASSIGN(auto allow, object.texts("allowOut", kMostAddresses, kMostHost + 2));
  TRY_ASSIGN(auto deny, object.texts("denyOut", kMostAddresses, kMostHost + 2));
  network.allow_out = std::move(allow).value_or(std::vector<std::string>());
  network.deny_out = std::move(deny).value_or(std::vector<std::string>());
  for (std::size_t index = 0; index < network.deny_out.size(); ++index) {
    if (is_address_range(network.deny_out[index])) continue;
    return fail(wrong(item(object.path_of("denyOut"), index), quote(network.deny_out[index]),
                      "an address or a range of addresses such as 192.0.2.0/24"));
  }
  bool has_domain = false;
  for (std::size_t index = 0; index < network.allow_out.size(); ++index) {
    const std::string& entry = network.allow_out[index];
    if (is_address_range(entry)) continue;
    if (!is_domain_pattern(entry)) {
      return fail(wrong(item(object.path_of("allowOut"), index), quote(entry),
                        "an address, a range of addresses, a domain or *.DOMAIN"));
    }
    has_domain = true;
  }
  if (has_domain && !denies_all(network)) {
    return fail(
        Error::invalid("When specifying allowed domains in allow out, you must include "
                       "'ALL_TRAFFIC' in deny out to block all other traffic."));
  }
  TRY(read_rules(object, network));
  return read_proxy(object, network);
}

}  // namespace

Result<Network> parse_network(const Object& body) {
  Network network;
  TRY_ASSIGN(const auto internet, body.truth("allow_internet_access"));
  network.internet = internet.value_or(true);
  TRY_ASSIGN(const auto object, body.object("network"));
  if (!object.has_value()) return network;
  TRY_ASSIGN(const auto public_traffic, object->truth("allowPublicTraffic"));
  network.public_traffic = public_traffic.value_or(true);
  TRY_ASSIGN(auto mask, object->text("maskRequestHost", kMostHost + 8));
  network.mask_request_host = std::move(mask).value_or("");
  if (!network.mask_request_host.empty() && !is_host_mask(network.mask_request_host)) {
    return fail(wrong(object->path_of("maskRequestHost"), quote(network.mask_request_host),
                      "a host such as localhost:${PORT}"));
  }
  TRY(read_egress(*object, network));
  return network;
}

Result<Network> parse_network_update(const Object& body) {
  Network network;
  TRY_ASSIGN(const auto internet, body.truth("allow_internet_access"));
  network.internet = internet.value_or(true);
  TRY(read_egress(body, network));
  return network;
}

Result<std::optional<policy::NetworkPolicy>> policy_of(const Network& network,
                                                       const Egress& egress) {
  const char* wish = !network.headers.empty() && !egress.exists     ? "rules"
                     : network.proxy && !egress.exists              ? "egressProxy"
                     : !network.allow_out.empty() && !egress.exists ? "allowOut"
                                                                    : nullptr;
  if (wish != nullptr)
    return fail(
        {Code::kUnimplemented, "network." + std::string(wish) +
                                   " is not held by this server: its sandboxes have no way out"});
  if (!egress.exists) return std::nullopt;
  const bool asks = !network.allow_out.empty() || !network.deny_out.empty();
  policy::NetworkPolicy made;
  if (denies_all(network) || (!asks && egress.usual == policy::NetworkDefault::kDeny)) {
    TRY(add_allowed(network.allow_out, made));
  } else {
    made.unmatched = policy::NetworkDefault::kAllowPublic;
    TRY(add_denied(network, made));
  }
  add_headers(network.headers, made);
  made.upstream_proxy = network.proxy;
  // What it says of itself is of no use to a client, whose words were others.
  auto compiled = policy::CompiledNetwork::compile(made);
  if (!compiled.has_value()) return fail(Error::invalid(compiled.error().message()));
  return made;
}

std::vector<vault::GivenSecret> values_of(const Network& network) {
  std::vector<vault::GivenSecret> values;
  for (std::size_t index = 0; index < network.headers.size(); ++index) {
    const HeaderRule& header = network.headers[index];
    if (header.secret.empty())
      values.push_back({.name = name_of_value(index),
                        .value = std::make_shared<const SecretValue>(header.value)});
  }
  if (!network.proxy_password.empty())
    values.push_back({.name = std::string(kProxyPassword),
                      .value = std::make_shared<const SecretValue>(network.proxy_password)});
  return values;
}

std::string network_fields(const Network& network, const Egress& egress) {
  const bool usual = network.allow_out.empty() && network.deny_out.empty();
  const bool closed = usual && egress.usual == policy::NetworkDefault::kDeny;
  json::Value fields = json::Value::object();
  fields.set("allowInternetAccess", network.internet && egress.exists && !closed);
  fields.set("allowOut", texts(network.allow_out));
  fields.set("denyOut", texts(network.deny_out));
  if (!network.headers.empty()) fields.set("rules", rules_of(network.headers));
  if (network.proxy) {
    json::Value proxy = json::Value::object();
    proxy.set("address", network.proxy->address);
    if (!network.proxy->username.empty()) proxy.set("username", network.proxy->username);
    fields.set("egressProxy", std::move(proxy));
  }
  return json::serialize(fields);
}

void add_network(json::Value& body, const fleet::SandboxView& view) {
  json::Value network = json::Value::object();
  network.set("allowPublicTraffic", view.public_traffic);
  if (!view.mask_request_host.empty()) network.set("maskRequestHost", view.mask_request_host);
  const auto fields = json::parse(view.network);
  for (const std::string_view key : {"allowOut", "denyOut"}) {
    const json::Value* list = fields.has_value() ? fields->find(key) : nullptr;
    const bool says = list != nullptr && list->as_array() != nullptr && !list->as_array()->empty();
    if (says) network.set(key, *list);
  }
  for (const std::string_view key : {"rules", "egressProxy"}) {
    const json::Value* value = fields.has_value() ? fields->find(key) : nullptr;
    if (value != nullptr) network.set(key, *value);
  }
  body.set("network", std::move(network));
  const json::Value* internet = fields.has_value() ? fields->find("allowInternetAccess") : nullptr;
  if (internet != nullptr) body.set("allowInternetAccess", *internet);
}

}  // namespace caisson::api::e2b
