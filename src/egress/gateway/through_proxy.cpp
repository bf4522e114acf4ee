#include "egress/gateway/through_proxy.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/guards.h"
#include "egress/own_address.h"
#include "egress/socks5_client.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using policy::Authority;
using policy::Host;
using policy::IpAddress;
using policy::NetworkDecision;

// From the connection to the proxy to the one behind it, which is the proxy's to make.
constexpr std::chrono::seconds kProxyTime{20};
// Of a name that has more: those that the proxy is asked for, one after the other.
constexpr std::size_t kMostAsked = 4;
constexpr std::string_view kVia = " via ";

Host host_of(const IpAddress& address) {
  return {.kind = Host::Kind::kAddress, .name = address.to_string(), .address = address};
}

std::string endpoint_of(const Host& host, std::uint16_t port) {
  return Authority{.host = host, .port = port}.text();
}

// One connection behind the proxy.
struct Way {
  Host host;
  std::uint16_t port = 0;
  std::string username;
  SharedSecret password;
};

io::Async<Status> ask_proxy(io::Stream& proxy, const Way& way) {
  Socks5Client client(way.host, way.port, way.username,
                      way.password ? way.password->bytes() : std::string_view());
  std::array<char, Socks5Client::kMostWanted> bytes;
  while (client.wanted() > 0) {
    if (!client.to_send().empty()) {
      CO_TRY(co_await proxy.write(client.to_send()));
      client.sent();
    }
    std::size_t have = 0;
    while (have < client.wanted()) {
      const std::span<char> rest = std::span(bytes).first(client.wanted()).subspan(have);
      CO_TRY_ASSIGN(const std::size_t count, co_await proxy.read(rest));
      if (count == 0) co_return fail(Error::unavailable("the proxy broke off"));
      have += count;
    }
    CO_TRY(client.take({bytes.data(), have}));
  }
  co_return Status();
}

io::Async<void> ask_into(io::Stream& proxy, const Way& way, std::optional<Status>& into) {
  into = co_await ask_proxy(proxy, way);
}

DialFault fault_of(std::string sentence, bool late) {
  return {.sentence = std::move(sentence), .late = late, .proxy = true};
}

struct Proxy {
  Authority where;
  bool nearby = false;  // in a network that the floor keeps
};

io::Async<DialResult> connect_to(io::Loop& loop, KnownAddresses& known, Proxy& proxy,
                                 std::shared_ptr<const policy::CompiledNetwork> policy) {
  // Whichever answers; as careful as the nearest of them needs.
  AddressJudge judge = [policy, &proxy](const IpAddress& address) {
    const bool own = is_own_address(address);
    NetworkDecision decision{.allowed = policy->allows_proxy_at(address, own),
                             .reason = policy::NetworkReason::kFloor};
    if (decision.allowed && (own || policy::classify(address) != policy::IpClass::kGlobal))
      proxy.nearby = true;
    return decision;
  };
  DialResult dialed = co_await dial_judged(loop, known, proxy.where.host, *proxy.where.port, judge);
  if (dialed.has_value()) co_return std::move(dialed);
  // The policy did not deny the program what it asked for.
  co_return std::unexpected(fault_of("the proxy: " + dialed.error().sentence, dialed.error().late));
}

// What the proxy is asked for, in this order. Error: the policy denies all of them.
std::expected<std::vector<Host>, DialFault> targets_of(const Host& host, std::uint16_t port,
                                                       const NetworkDecision& allowed,
                                                       const policy::CompiledNetwork& policy,
                                                       std::vector<IpAddress> addresses) {
  std::vector<Host> targets;
  DialFault fault{.sentence = host.name + " has no address"};
  for (const IpAddress& address : addresses) {
    const NetworkDecision decision =
        policy.address(address, port, is_own_address(address), allowed);
    if (decision.allowed && targets.size() < kMostAsked) targets.push_back(host_of(address));
    if (decision.allowed) continue;
    fault.denied = decision;
    fault.sentence = address_sentence(host, address, decision);
  }
  if (targets.empty()) return std::unexpected(std::move(fault));
  return targets;
}

bool is_resolved_there(const policy::CompiledNetwork& policy, const Host& host,
                       const NetworkDecision& allowed, const Proxy& proxy) {
  if (host.is_address()) return false;
  return policy.proxy_resolves(allowed) && !proxy.nearby;
}

}  // namespace

io::Async<DialResult> dial_through_proxy(io::Loop& loop, KnownAddresses& known, Host host,
                                         std::uint16_t port, NetworkDecision allowed,
                                         std::shared_ptr<const policy::CompiledNetwork> policy,
                                         SharedSecret password) {
  Proxy proxy{.where = *policy->upstream_proxy()};
  const std::string via = std::string(kVia) + proxy.where.text();
  const policy::UpstreamProxy& values = *policy->values().upstream_proxy;
  if (values.password && password == nullptr)
    co_return std::unexpected(fault_of("the proxy's password has no value at the moment", false));
  DialResult first = co_await connect_to(loop, known, proxy, policy);
  if (!first.has_value() && guard_off(Guard::kProxyAlone))
    co_return co_await dial(loop, known, std::move(host), port, std::move(allowed), policy);
  if (!first.has_value()) co_return first;
  std::vector<Host> targets = {host};
  if (!is_resolved_there(*policy, host, allowed, proxy)) {
    Resolved addresses = co_await resolve(loop, known, host);
    if (!addresses.has_value()) co_return std::unexpected(std::move(addresses.error()));
    auto judged = targets_of(host, port, allowed, *policy, *std::move(addresses));
    if (!judged.has_value()) co_return std::unexpected(std::move(judged.error()));
    targets = *std::move(judged);
  }
  const io::Clock::time_point until = io::Clock::now() + kProxyTime;
  for (std::size_t at = 0; at < targets.size(); ++at) {
    if (at > 0) {
      if (io::Clock::now() >= until)
        co_return std::unexpected(fault_of("the proxy does not answer", true));
      // One connection is one question.
      first = co_await connect_to(loop, known, proxy, policy);
      if (!first.has_value()) co_return first;
    }
    const Way way{
        .host = targets[at], .port = port, .username = values.username, .password = password};
    std::optional<Status> asked;
    const auto left = until - io::Clock::now();
    co_await io::race(ask_into(*first->stream, way, asked), io::Loop::sleep(left));
    if (asked.has_value() && asked->has_value()) {
      first->address = endpoint_of(targets[at], port) + via;
      co_return first;
    }
    const bool late = !asked.has_value() || io::Clock::now() >= until;
    const bool more = !late && asked->error().code() == Code::kUnavailable;
    if (more && at + 1 < targets.size()) continue;
    co_return std::unexpected(
        fault_of(late ? "the proxy does not answer" : asked->error().message(), late));
  }
  co_return std::unexpected(fault_of("the proxy was asked for nothing", false));
}

bool allows_upstream(const policy::CompiledNetwork& policy, std::string_view upstream,
                     std::uint16_t port, const NetworkDecision& decision) {
  const std::size_t end = upstream.find(kVia);
  const std::string_view proxy =
      end == std::string_view::npos ? "" : upstream.substr(end + kVia.size());
  const std::string now = policy.upstream_proxy() ? policy.upstream_proxy()->text() : "";
  if (proxy != now) return guard_off(Guard::kProxyAlone) && proxy.empty();
  const std::string_view target = upstream.substr(0, end);
  const auto authority = policy::canonical_authority(target);
  const bool by_name = authority.has_value() && !authority->host.is_address();
  if (by_name && !proxy.empty()) return policy.proxy_resolves(decision);
  return allows_address(policy, target, port, decision);
}

}  // namespace caisson::egress
