#include "egress/gateway/dial.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/guards.h"
#include "egress/gateway/look_up.h"
#include "egress/own_address.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using policy::IpAddress;
using policy::NetworkDecision;

// For all addresses together.
constexpr std::chrono::seconds kDialTime{20};
// After so long without an answer the next address is tried.
constexpr std::chrono::seconds kAttemptTime{3};

std::string endpoint(const IpAddress& address, std::uint16_t port) {
  const std::string text = address.to_string();
  return (address.is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(port);
}

struct Attempt {
  std::optional<Result<std::unique_ptr<io::Stream>>> result;
};

io::Async<void> try_one(io::Loop& loop, std::string address, Attempt& attempt) {
  attempt.result = co_await io::connect_tcp(loop, std::move(address));
}

}  // namespace

std::string address_sentence(const policy::Host& host, const IpAddress& address,
                             const NetworkDecision& decision) {
  std::string sentence = host.name;
  if (!host.is_address()) sentence += " leads to " + address.to_string();
  if (decision.reason == policy::NetworkReason::kDenyRule)
    return sentence + ", which the rule " + decision.rule + " denies";
  const policy::IpClass type = policy::classify(address);
  if (type == policy::IpClass::kGlobal) return sentence + ", an address of this host";
  return sentence + ", which is no address of the Internet (" + std::string(to_string(type)) + ")";
}

std::string_view reason_of(const DialFault& fault) {
  if (fault.proxy) return "upstream_proxy";
  return fault.late ? "timeout" : "unreachable";
}

static std::optional<IpAddress> address_of(std::string_view endpoint) {
  std::string_view text = endpoint.substr(0, endpoint.rfind(':'));
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return IpAddress::parse(text);
}

bool allows_address(const policy::CompiledNetwork& policy, std::string_view endpoint,
                    std::uint16_t port, const NetworkDecision& decision) {
  const std::optional<IpAddress> address = address_of(endpoint);
  return address.has_value() &&
         policy.address(*address, port, is_own_address(*address), decision).allowed;
}

static io::Async<DialResult> dial_any(io::Loop& loop, policy::Host host, std::uint16_t port,
                                      AddressJudge judge, std::vector<IpAddress> addresses) {
  DialFault fault{.sentence = host.name + " has no address"};
  bool tried = false;
  const io::Clock::time_point until = io::Clock::now() + kDialTime;
  for (const IpAddress& address : addresses) {
    const NetworkDecision decision = judge(address);
    if (!decision.allowed) {
      // What the network said of another address is nearer to what the caller wants to know.
      if (tried) continue;
      fault.denied = decision;
      fault.sentence = address_sentence(host, address, decision);
      continue;
    }
    const auto left = until - io::Clock::now();
    if (left <= io::Clock::duration::zero()) break;
    tried = true;
    std::string text = endpoint(address, port);
    if (guard_off(Guard::kDialJudged) && !host.is_address()) {
      // What a gateway does whose library resolves the name once more.
      const Result<ResolvedName> again = co_await look_up(loop, host.name);
      if (again.has_value()) text = endpoint(again->addresses.front(), port);
    }
    Attempt attempt;
    const io::Clock::duration patience = std::min<io::Clock::duration>(left, kAttemptTime);
    const io::Clock::time_point began = io::Clock::now();
    co_await io::race(try_one(loop, text, attempt), io::Loop::sleep(patience));
    if (attempt.result.has_value() && attempt.result->has_value()) {
      Dialed dialed{.stream = std::move(**attempt.result), .address = text};
      co_return std::move(dialed);
    }
    fault.denied.reset();
    // By the clock: an attempt that was cancelled may have an error of its own.
    fault.late = !attempt.result.has_value() || io::Clock::now() - began >= patience;
    fault.sentence = fault.late ? text + " does not answer" : attempt.result->error().message();
  }
  co_return std::unexpected(std::move(fault));
}

io::Async<DialResult> dial_served(io::Loop& loop, std::string address) {
  Attempt attempt;
  co_await io::race(try_one(loop, address, attempt), io::Loop::sleep(kAttemptTime));
  if (attempt.result.has_value() && attempt.result->has_value()) {
    Dialed dialed{.stream = std::move(**attempt.result), .address = std::move(address)};
    co_return std::move(dialed);
  }
  DialFault fault{.sentence = "the server of this sandbox does not answer",
                  .late = !attempt.result.has_value()};
  co_return std::unexpected(std::move(fault));
}

io::Async<Resolved> resolve(io::Loop& loop, KnownAddresses& known, policy::Host host) {
  if (host.is_address()) co_return std::vector<IpAddress>{host.address};
  if (auto addresses = known.find(host.name, io::Clock::now())) co_return *std::move(addresses);
  Result<ResolvedName> found = co_await look_up(loop, host.name);
  if (!found.has_value()) {
    DialFault fault{.sentence = found.error().message(),
                    .late = found.error().code() == Code::kDeadlineExceeded};
    co_return std::unexpected(std::move(fault));
  }
  known.keep(host.name, found->addresses, found->holds, io::Clock::now());
  co_return std::move(found->addresses);
}

io::Async<DialResult> dial_judged(io::Loop& loop, KnownAddresses& known, policy::Host host,
                                  std::uint16_t port, AddressJudge judge) {
  const bool was_known = !host.is_address() && known.find(host.name, io::Clock::now()).has_value();
  Resolved addresses = co_await resolve(loop, known, host);
  if (!addresses.has_value()) co_return std::unexpected(std::move(addresses.error()));
  DialResult result = co_await dial_any(loop, host, port, judge, *std::move(addresses));
  if (!was_known || result.has_value() || result.error().denied) co_return std::move(result);
  // The host may have moved.
  known.forget(host.name);
  addresses = co_await resolve(loop, known, host);
  if (!addresses.has_value()) co_return std::unexpected(std::move(addresses.error()));
  co_return co_await dial_any(loop, std::move(host), port, std::move(judge), *std::move(addresses));
}

io::Async<DialResult> dial(io::Loop& loop, KnownAddresses& known, policy::Host host,
                           std::uint16_t port, policy::NetworkDecision allowed,
                           std::shared_ptr<const policy::CompiledNetwork> policy) {
  AddressJudge judge = [policy = std::move(policy), allowed = std::move(allowed),
                        port](const IpAddress& address) {
    return policy->address(address, port, is_own_address(address), allowed);
  };
  co_return co_await dial_judged(loop, known, std::move(host), port, std::move(judge));
}

}  // namespace caisson::egress
