// From a host that a policy allows to a connection: the name is resolved once, here, or was a
// moment ago (known_addresses.h), each address is judged, and the first that answers is dialed.
// What was judged is what is dialed; nothing is resolved again in between.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/gateway/known_addresses.h"
#include "io/loop.h"
#include "io/stream.h"
#include "policy/network_policy.h"

namespace caisson::egress {

struct Dialed {
  std::unique_ptr<io::Stream> stream;
  std::string address;  // "192.0.2.1:443"
};

struct DialFault {
  // Of the policy, which keeps every address that the name has; nullopt: the network's.
  std::optional<policy::NetworkDecision> denied;
  std::string sentence;
  bool late = false;   // in time nothing answered
  bool proxy = false;  // it is the proxy's, by which everything goes out
};
// The word for it, where the policy did not deny it.
std::string_view reason_of(const DialFault& fault);

using DialResult = std::expected<Dialed, DialFault>;
// Whether an address that the name has may be dialed.
using AddressJudge = std::function<policy::NetworkDecision(const policy::IpAddress&)>;

// `allowed`: what let it through so far; what it allows decides about addresses that are not the
// Internet's. `known` outlives it. Where nothing answers at addresses that were known, the name is
// resolved again.
io::Async<DialResult> dial(io::Loop& loop, KnownAddresses& known, policy::Host host,
                           std::uint16_t port, policy::NetworkDecision allowed,
                           std::shared_ptr<const policy::CompiledNetwork> policy);
// The same by another judge.
io::Async<DialResult> dial_judged(io::Loop& loop, KnownAddresses& known, policy::Host host,
                                  std::uint16_t port, AddressJudge judge);
// What a host is resolved to, as dial() does.
using Resolved = std::expected<std::vector<policy::IpAddress>, DialFault>;
io::Async<Resolved> resolve(io::Loop& loop, KnownAddresses& known, policy::Host host);
// What such an address is, and who denies it.
std::string address_sentence(const policy::Host& host, const policy::IpAddress& address,
                             const policy::NetworkDecision& decision);
// To the server that made the sandbox (served_domain.h), by the address that it said.
io::Async<DialResult> dial_served(io::Loop& loop, std::string address);
// Whether a connection to this endpoint ("192.0.2.1:443"), which `decision` lets through, may
// stand.
bool allows_address(const policy::CompiledNetwork& policy, std::string_view endpoint,
                    std::uint16_t port, const policy::NetworkDecision& decision);

}  // namespace caisson::egress
