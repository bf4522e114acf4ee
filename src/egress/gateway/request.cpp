#include "egress/gateway/request.h"

#include <utility>

#include "base/guards.h"
#include "http/codec.h"
#include "http/passage.h"
#include "http/text.h"

namespace caisson::egress {
namespace {

using policy::Host;
using policy::NetworkDecision;
using policy::NetworkReason;

constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

// The part of an absolute target that a request for an origin has; the rest must be `authority`.
std::expected<std::string, Refused> origin_form(const Client& client, const std::string& target,
                                                const policy::Authority& authority) {
  if (target.starts_with('/') || target == "*") return target;
  const std::string_view scheme = client.tls() ? "https://" : "http://";
  if (!target.starts_with(scheme))
    return std::unexpected(Refused{.status = 400, .reason = "bad_target"});
  const std::size_t end = target.find_first_of("/?", scheme.size());
  const auto named = policy::canonical_authority(
      std::string_view(target).substr(scheme.size(), end - scheme.size()));
  const std::uint16_t port = client.default_port();
  const bool same = named.has_value() && named->host == authority.host &&
                    named->port.value_or(port) == authority.port.value_or(port);
  if (!same && !guard_off(Guard::kAbsoluteForm))
    return std::unexpected(Refused{.status = 421, .reason = "host_mismatch"});
  const std::string rest = end == std::string::npos ? "" : target.substr(end);
  return rest.starts_with('/') ? rest : "/" + rest;
}

}  // namespace

std::uint16_t Client::default_port() const {
  return tls() ? kHttpsPort : kHttpPort;
}

std::expected<Asked, Refused> read_request(const Client& client, const http::RequestHead& head) {
  if (head.method == "CONNECT" || head.method == "TRACE" || head.method == "TRACK")
    return std::unexpected(Refused{.status = 405, .reason = "method"});
  const auto host_header = head.headers.get("Host");
  if (!host_header) return std::unexpected(Refused{.status = 400, .reason = "no_host"});
  const auto authority = policy::canonical_authority(*host_header);
  if (!authority.has_value()) {
    return std::unexpected(
        Refused{.status = 400, .reason = "bad_name", .detail = authority.error().message()});
  }
  // HTTP/2 has :authority and may have a host beside it.
  for (const auto& [name, value] : head.headers.all()) {
    if (!http::same_name(name, "Host")) continue;
    const auto beside = policy::canonical_authority(value);
    const std::uint16_t usual = client.default_port();
    const bool same = beside.has_value() && beside->host == authority->host &&
                      beside->port.value_or(usual) == authority->port.value_or(usual);
    if (!same) return std::unexpected(Refused{.status = 421, .reason = "host_mismatch"});
  }
  const Meant& destination = client.destination;
  const bool other_port = authority->port.value_or(client.default_port()) != destination.port;
  const bool other_name = (destination.pin && authority->host != destination.host) ||
                          (client.served && authority->host != *client.served);
  if ((other_port || other_name) && !guard_off(Guard::kHostBound))
    return std::unexpected(Refused{.status = 421, .reason = "host_mismatch"});
  auto origin = origin_form(client, head.target, *authority);
  if (!origin.has_value()) return std::unexpected(std::move(origin).error());
  auto target = policy::canonical_target(*origin);
  if (!target.has_value()) {
    return std::unexpected(
        Refused{.status = 400, .reason = "bad_target", .detail = target.error().message()});
  }
  return Asked{.host = authority->host, .target = std::move(*target), .tls = client.tls()};
}

static policy::CompiledNetwork::Request policy_request(const http::RequestHead& head,
                                                       const Asked& asked, std::uint64_t body) {
  return {.method = head.method,
          .path = asked.target.path,
          .websocket = http::wants_upgrade(head),
          .tls = asked.tls,
          .body = body};
}

NetworkDecision judge(const policy::CompiledNetwork& policy, const Meant& destination,
                      const http::RequestHead& head, Asked& asked, std::uint64_t body) {
  const auto request = policy_request(head, asked, body);
  NetworkDecision decision = policy.request(asked.host, destination.port, request);
  if (decision.allowed || destination.pin || decision.reason == NetworkReason::kDenyRule)
    return decision;
  NetworkDecision by_address = policy.request(destination.host, destination.port, request);
  if (!by_address.allowed) return decision;
  asked.by_address = true;
  return by_address;
}

bool still_allows(const Gateway::State& state, const policy::CompiledNetwork& policy,
                  const Meant& destination, const http::RequestHead& head, const Asked& asked,
                  std::uint64_t body, std::string_view upstream) {
  const Host& host = asked.by_address ? destination.host : asked.host;
  const NetworkDecision decision =
      policy.request(host, destination.port, policy_request(head, asked, body));
  return (decision.allowed || guard_off(Guard::kEachRequest)) &&
         state.may_stand(policy, host, destination.port, upstream, decision);
}

http::RequestHead upstream_head(const http::RequestHead& head, const Asked& asked,
                                std::uint16_t port, const NetworkDecision& decision) {
  http::RequestHead sent;
  sent.method = head.method;
  sent.target = asked.target.text();
  sent.headers = head.headers;
  http::Headers& headers = sent.headers;
  const bool upgrades = http::wants_upgrade(head);
  const bool chunked = headers.has("Transfer-Encoding");
  http::remove_hop_by_hop(headers);
  headers.remove("Transfer-Encoding").remove("Expect");
  headers.remove("Proxy-Authorization").remove("Proxy-Connection").remove("Max-Forwards");
  // By which a server would take it for another method than the one that was judged.
  if (decision.limits_methods) {
    headers.remove("X-HTTP-Method-Override").remove("X-HTTP-Method").remove("X-Method-Override");
  }
  if (chunked) headers.add("Transfer-Encoding", "chunked");
  headers.add("Connection", upgrades ? "Upgrade" : "close");
  if (upgrades) headers.add("Upgrade", "websocket");
  const std::string host = asked.host.text();
  const std::uint16_t usual = asked.tls ? kHttpsPort : kHttpPort;
  headers.set("Host", port == usual ? host : host + ":" + std::to_string(port));
  return sent;
}

}  // namespace caisson::egress
