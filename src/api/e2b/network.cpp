#include "api/e2b/network.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

using policy::quote;
using policy::wrong;

constexpr std::size_t kMostAddresses = 1024;
constexpr std::size_t kMostHost = 253;  // of a name, by DNS
constexpr std::size_t kMostRules = 10, kMostHeaders = 20, kMostHeaderValue = 8192;
constexpr std::string_view kAllTraffic = "0.0.0.0/0";

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

// One transform: {"headers":{…}}.
Status check_transform(const Object& rule) {
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
  }
  return {};
}

Result<bool> parse_rules(const Object& network) {
  TRY_ASSIGN(const auto rules, network.object("rules"));
  if (!rules.has_value()) return false;
  const json::Value::Object& members = *rules->value().as_object();
  const std::string path = network.path_of("rules");
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
    for (const Object& rule : *list) TRY(check_transform(rule));
  }
  return !members.empty();
}

// {"address":"HOST:PORT","username":…,"password":…}; null: none.
Result<bool> parse_proxy(const Object& network) {
  TRY_ASSIGN(const auto proxy, network.object("egressProxy"));
  if (!proxy.has_value()) return false;
  TRY_ASSIGN(const auto address, proxy->text("address", kMostHost + 6));
  const std::string path = proxy->path_of("address");
  if (!address.has_value()) return fail(wrong(path, "nothing", "\"HOST:PORT\""));
  const std::string_view host = without_port(*address);
  if (host.size() == address->size() || !(is_domain(host) || is_address_range(host))) {
    return fail(wrong(path, quote(*address), "\"HOST:PORT\""));
  }
  TRY_ASSIGN([[maybe_unused]] const auto username, proxy->text("username", 255));
  TRY_ASSIGN([[maybe_unused]] const auto password, proxy->text("password", 255));
  return true;
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
  const bool all_denied = !network.internet || std::ranges::find(network.deny_out, kAllTraffic) !=
                                                   network.deny_out.end();
  if (has_domain && !all_denied) {
    return fail(
        Error::invalid("When specifying allowed domains in allow out, you must include "
                       "'ALL_TRAFFIC' in deny out to block all other traffic."));
  }
  TRY_ASSIGN(network.has_rules, parse_rules(object));
  TRY_ASSIGN(network.has_proxy, parse_proxy(object));
  return {};
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

Status check_held(const Network& network) {
  const char* wish = !network.allow_out.empty() ? "allowOut"
                     : network.has_rules        ? "rules"
                     : network.has_proxy        ? "egressProxy"
                                                : nullptr;
  if (wish == nullptr) return {};
  return fail({Code::kUnimplemented, "network." + std::string(wish) +
                                         " is not held by this server: its sandboxes have no way "
                                         "out; leave it away to have one without a network"});
}

}  // namespace caisson::api::e2b
