// Out by the policy's proxy (UpstreamProxy), a SOCKS5 server that somebody else runs: everything
// that is let through, and nothing past it.
//
// What is judged is as without a proxy. A name that a rule allows is told to the proxy as it is,
// and resolved there; where addresses decide (CompiledNetwork::proxy_resolves), or the proxy is
// within a network that the floor keeps, whose other hosts it could reach, it is given addresses
// that were judged here. The proxy's own name is resolved here, and its address judged by the
// floor. Only .cpp files of src/egress/gateway include this.
#pragma once

#include <memory>
#include <string_view>

#include "egress/gateway/dial.h"
#include "egress/secrets/secret_rules.h"

namespace caisson::egress {

// As dial(), by the policy's proxy, which it has. `password`: null where there is none. The address
// of what was dialed is "TARGET via PROXY".
io::Async<DialResult> dial_through_proxy(io::Loop& loop, KnownAddresses& known, policy::Host host,
                                         std::uint16_t port, policy::NetworkDecision allowed,
                                         std::shared_ptr<const policy::CompiledNetwork> policy,
                                         SharedSecret password);
// Whether a connection that was dialed so, by a proxy or without one, may stand.
bool allows_upstream(const policy::CompiledNetwork& policy, std::string_view upstream,
                     std::uint16_t port, const policy::NetworkDecision& decision);

}  // namespace caisson::egress
