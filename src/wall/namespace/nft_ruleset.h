// The packet rules of a gateway's network namespace: what the workload's only neighbour does with
// each packet that it gets.
//
//   guard     before anything else (policy drop): no more new connections than a rate; TCP, UDP to
//             port 53 and IPv6 neighbours' words go on; all else is refused by an ICMP error, so
//             that QUIC, ping and SCTP fail at once and not by running out of time
//   redirect  TCP and UDP to port 53 to the DNS sockets, all other TCP to the one TCP listener,
//             whatever address was meant
//   arrive    into a socket (policy drop): what was redirected, and answers to connections that
//             were made in the gateway's namespace; what names a listener's own port is refused
//   pass      through the namespace to another one (policy drop): nothing
//
// A ruleset is a value: chains and rules with their expressions as the kernel takes them. It is
// loaded in one transaction, of which all comes to be or nothing, and then read back: an expression
// that a kernel understands in another way, or a rule that is not there, is an error and no
// sandbox. The namespace has nothing else in it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/switches.h"
#include "wall/namespace/netlink.h"

namespace caisson::wall {

// Where the sockets listen in the gateway's namespace. A workload cannot reach them by these
// numbers.
inline constexpr std::uint16_t kGatewayTcpPort = 15001;
inline constexpr std::uint16_t kGatewayDnsPort = 5353;

// New connections a second, and at once: each takes some 400 bytes of the kernel's memory that no
// limit of the sandbox counts, for as long as the kernel remembers it.
inline constexpr std::uint64_t kNewConnectionsPerSecond = 1000;
inline constexpr std::uint32_t kNewConnectionsAtOnce = 4096;

struct NftExpression {
  const char* name;  // as the kernel's module calls it
  netlink::Attributes data;
};
struct NftRule {
  const char* chain;
  const char* what;  // names it in errors, with the kernel modules that it needs
  std::vector<NftExpression> expressions;
};
struct NftChain {
  const char* name;
  const char* what;
  netlink::Attributes attributes;
};
struct NftRuleset {
  std::vector<NftChain> chains;
  std::vector<NftRule> rules;  // of one chain in their order
};

NftRuleset gateway_ruleset();
// One chain of it with its rules, for trying what a kernel has.
NftRuleset only_chain(const NftRuleset& ruleset, std::string_view chain);

// `socket` is one of NETLINK_NETFILTER. In the test build `switches` leaves out a rule
// (Mechanism::kGatewayRules).
Status load_ruleset(const netlink::Socket& socket, const NftRuleset& ruleset, SwitchMask switches);
// Error: internal, naming what is not as it was asked for.
Status check_ruleset(const netlink::Socket& socket, const NftRuleset& asked);

// The two halves of check_ruleset() without a system call: answers to NFT_MSG_GETCHAIN and to
// NFT_MSG_GETRULE.
Status compare_chains(const NftRuleset& asked, std::string_view answers);
Status compare_rules(const NftRuleset& asked, std::string_view answers);
// The messages of the transaction.
netlink::Batch encode_ruleset(const NftRuleset& ruleset);

}  // namespace caisson::wall
