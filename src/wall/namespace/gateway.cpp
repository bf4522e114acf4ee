#include "wall/namespace/gateway.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/nft_ruleset.h"

namespace caisson::wall {
namespace {

using netlink::Attributes;
using netlink::Batch;
using netlink::raw;

// Different ones, above those that a kernel gives to devices of its own in a new namespace: of two
// ends with the same number it takes neither for one end of a pair, and lets them wait for a
// second.
constexpr int kGatewayIndex = 64, kWorkloadIndex = 65;
constexpr const char* kGatewayName = "gw0";
constexpr const char* kWorkloadName = "eth0";
constexpr unsigned char kGatewayMac[] = {0x02, 0, 0x5a, 0, 0, 1};
constexpr unsigned char kWorkloadMac[] = {0x02, 0, 0x5a, 0, 0, 2};
// Two addresses each and hardly more: whom else the workload names it finds by the gateway, and
// waits for no neighbour that does not exist.
constexpr std::uint8_t kPrefix4 = 30, kPrefix6 = 126;

// More than the kernel's own bound, which it applies.
constexpr int kBacklog = 4096;
constexpr std::uint64_t kWirePatienceUs = 5'000'000;
constexpr long kLookNs = 100'000;

// ---- the wire
// ---------------------------------------------------------------------------------------

ifinfomsg link_header(int index, bool up) {
  ifinfomsg header{};
  header.ifi_index = index;
  if (up) header.ifi_flags = header.ifi_change = IFF_UP;
  return header;
}

Attributes link(const char* name, std::string_view mac) {
  // One queue: a pair has else one for each processor of the host.
  Attributes attributes;
  attributes.text(IFLA_IFNAME, name)
      .bytes(IFLA_ADDRESS, mac)
      .u32(IFLA_NUM_TX_QUEUES, 1)
      .u32(IFLA_NUM_RX_QUEUES, 1);
  return attributes;
}

// No address but those that are given: a link-local one would be another name of the gateway.
Attributes without_own_addresses() {
  const Attributes ipv6 = Attributes().u8(IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
  return Attributes().nest(IFLA_AF_SPEC, Attributes().nest(AF_INET6, ipv6));
}

// The bytes of an address of ours.
std::string address_bytes(int family, const char* text) {
  unsigned char bytes[16] = {};
  VERIFY(::inet_pton(family, text, bytes) == 1);
  return {reinterpret_cast<const char*>(bytes), family == AF_INET ? 4u : 16u};
}

void add_address(Batch& batch, int family, const char* text, int index, const char* what) {
  ifaddrmsg header{};
  header.ifa_family = static_cast<std::uint8_t>(family);
  header.ifa_prefixlen = family == AF_INET ? kPrefix4 : kPrefix6;
  // Nobody else is there who could have it.
  header.ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD;
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(index);
  const std::string bytes = address_bytes(family, text);
  batch.add(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, raw(header),
            Attributes().bytes(IFA_LOCAL, bytes).bytes(IFA_ADDRESS, bytes), what);
}

void add_default_route(Batch& batch, int family, const char* gateway, const char* what) {
  rtmsg header{};
  header.rtm_family = static_cast<std::uint8_t>(family);
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = RT_SCOPE_UNIVERSE;
  header.rtm_type = RTN_UNICAST;
  batch.add(
      RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, raw(header),
      Attributes().bytes(RTA_GATEWAY, address_bytes(family, gateway)).u32(RTA_OIF, kWorkloadIndex),
      what);
}

template <std::size_t size>
std::string_view view(const unsigned char (&bytes)[size]) {
  return {reinterpret_cast<const char*>(bytes), size};
}

Status wire(const netlink::Socket& gateway, const netlink::Socket& workload) {
  TRY_ASSIGN(const Fd space, workload.network());
  TRY(gateway.commit(gateway_side(space.get())));
  return workload.commit(workload_side());
}

// What the kernel does later, on its own time, and packets that come before would be lost: the end
// that was raised first begins to send when it has noticed the other; an IPv6 address is one that
// packets are taken for, and that neighbours find, when it has a route.
Result<bool> sends(const netlink::Socket& socket, int index) {
  Batch question;
  question.add(RTM_GETLINK, 0, raw(link_header(index, false)), {}, "looking at gw0");
  TRY_ASSIGN(const std::string bytes, socket.ask(question));
  TRY_ASSIGN(const auto answers, netlink::split_answers(bytes));
  for (const netlink::Answer& answer : answers) {
    if (answer.type != RTM_NEWLINK || answer.payload.size() < sizeof(ifinfomsg)) continue;
    TRY_ASSIGN(const auto facts,
               netlink::split_attributes(answer.payload.substr(sizeof(ifinfomsg))));
    const std::string_view queue = netlink::find(facts, IFLA_QDISC);
    return !queue.empty() && !queue.starts_with("noop");
  }
  return false;
}

Result<bool> takes_packets_for(const netlink::Socket& socket, const char* address) {
  rtmsg header{};
  header.rtm_family = AF_INET6;
  header.rtm_dst_len = 128;
  Batch question;
  question.add(RTM_GETROUTE, 0, raw(header),
               Attributes().bytes(RTA_DST, address_bytes(AF_INET6, address)),
               "looking for an address of the wire");
  const auto bytes = socket.ask(question);
  if (!bytes.has_value()) {
    if (bytes.error().error_number() == ENETUNREACH) return false;
    return fail(bytes.error());
  }
  TRY_ASSIGN(const auto answers, netlink::split_answers(*bytes));
  for (const netlink::Answer& answer : answers) {
    if (answer.type != RTM_NEWROUTE || answer.payload.size() < sizeof(rtmsg)) continue;
    return static_cast<unsigned char>(answer.payload[offsetof(rtmsg, rtm_type)]) == RTN_LOCAL;
  }
  return false;
}

Result<bool> is_ready(const netlink::Socket& gateway, const netlink::Socket& workload) {
  TRY_ASSIGN(bool ready, sends(gateway, kGatewayIndex));
  if (ready) {
    TRY_ASSIGN(ready, takes_packets_for(gateway, kGatewayAddress6));
  }
  if (ready) {
    TRY_ASSIGN(ready, takes_packets_for(workload, kWorkloadAddress6));
  }
  return ready;
}

Status await_wire(const netlink::Socket& gateway, const netlink::Socket& workload) {
  const std::uint64_t end_us = sys::monotonic_us() + kWirePatienceUs;
  for (;;) {
    TRY_ASSIGN(const bool ready, is_ready(gateway, workload));
    if (ready) return {};
    if (sys::monotonic_us() >= end_us)
      return fail(Error(Code::kDeadlineExceeded, "the kernel does not finish the wire"));
    const timespec pause{0, kLookNs};
    (void)::nanosleep(&pause, nullptr);
  }
}

// ---- the sockets --------------------------------------------------------------------------------

// On every address of both families.
Result<Fd> open_socket(int type, std::uint16_t port) {
  Fd socket(::socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("socket");
  const int off = 0, on = 1;
  if (::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return fail_errno("setsockopt IPV6_V6ONLY");
  // Whoever makes such a socket later in the same namespace finds old connections at the port.
  if (type == SOCK_STREAM &&
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return fail_errno("setsockopt SO_REUSEADDR");
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind port " + std::to_string(port));
  if (type == SOCK_STREAM && ::listen(socket.get(), kBacklog) != 0) return fail_errno("listen");
  return socket;
}

// ---- what a kernel lacks ------------------------------------------------------------------------

bool is_lacking(int error_number) {
  return error_number == EOPNOTSUPP || error_number == EPROTONOSUPPORT ||
         error_number == EAFNOSUPPORT || error_number == ENOENT || error_number == ENODEV;
}

// The same error, in other words where it means that the kernel has no such thing.
template <typename T>
Result<T> needs(const char* piece, const char* remedy, Result<T> result) {
  if (result.has_value() || !is_lacking(result.error().error_number())) return result;
  return fail(Error::precondition(
      "a sandbox's gateway needs " + std::string(piece) +
      ", and this kernel lacks a part of it: " + result.error().message() + "; " + remedy));
}

constexpr const char* kVeth = "a pair of virtual Ethernet devices (veth)";
constexpr const char* kVethRemedy = "sudo modprobe veth";
constexpr const char* kRules = "nftables";
constexpr const char* kRulesRemedy =
    "sudo modprobe -a nf_tables nft_chain_nat nft_ct nft_limit nft_redir nft_reject_inet";
constexpr const char* kIpv6 = "IPv6 beside IPv4";
constexpr const char* kIpv6Remedy = "start the kernel without ipv6.disable=1";

}  // namespace

Batch gateway_side(int workload_namespace_fd) {
  Batch batch;
  Attributes peer = link(kWorkloadName, view(kWorkloadMac));
  peer.u32(IFLA_NET_NS_FD, static_cast<std::uint32_t>(workload_namespace_fd));
  const ifinfomsg there = link_header(kWorkloadIndex, false);
  const Attributes pair = Attributes().nest(VETH_INFO_PEER, peer, raw(there));
  Attributes here = link(kGatewayName, view(kGatewayMac));
  here.nest(IFLA_LINKINFO, Attributes().text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, pair));
  batch.add(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
            raw(link_header(kGatewayIndex, false)), here, "making the wire (veth)");
  batch.add(RTM_SETLINK, NLM_F_ACK, raw(link_header(kGatewayIndex, false)), without_own_addresses(),
            "gw0's IPv6 settings");
  batch.add(RTM_SETLINK, NLM_F_ACK, raw(link_header(kGatewayIndex, true)), {}, "raising gw0");
  add_address(batch, AF_INET, kGatewayAddress, kGatewayIndex, "gw0's IPv4 address");
  add_address(batch, AF_INET6, kGatewayAddress6, kGatewayIndex, "gw0's IPv6 address");
  return batch;
}

Batch workload_side() {
  Batch batch;
  batch.add(RTM_SETLINK, NLM_F_ACK, raw(link_header(kWorkloadIndex, false)),
            without_own_addresses(), "eth0's IPv6 settings");
  batch.add(RTM_SETLINK, NLM_F_ACK, raw(link_header(kWorkloadIndex, true)), {}, "raising eth0");
  add_address(batch, AF_INET, kWorkloadAddress, kWorkloadIndex, "eth0's IPv4 address");
  add_address(batch, AF_INET6, kWorkloadAddress6, kWorkloadIndex, "eth0's IPv6 address");
  add_default_route(batch, AF_INET, kGatewayAddress, "the IPv4 route");
  add_default_route(batch, AF_INET6, kGatewayAddress6, "the IPv6 route");
  return batch;
}

Result<Gateway> make_gateway(SwitchMask switches) {
  if (::unshare(CLONE_NEWNET) != 0) return fail_errno("unshare the gateway's network namespace");
  Gateway made;
  TRY_ASSIGN(const auto route, netlink::Socket::open(NETLINK_ROUTE));
  TRY_ASSIGN(const auto filter,
             needs(kRules, kRulesRemedy, netlink::Socket::open(NETLINK_NETFILTER)));
  TRY_ASSIGN(made.namespace_fd, route.network());
  const NftRuleset rules = gateway_ruleset();
  TRY(needs(kRules, kRulesRemedy, load_ruleset(filter, rules, switches)));
  TRY_ASSIGN(made.tcp, needs(kIpv6, kIpv6Remedy, open_socket(SOCK_STREAM, kGatewayTcpPort)));
  TRY_ASSIGN(made.dns_udp, open_socket(SOCK_DGRAM, kGatewayDnsPort));
  TRY_ASSIGN(made.dns_tcp, open_socket(SOCK_STREAM, kGatewayDnsPort));
  if (::unshare(CLONE_NEWNET) != 0) return fail_errno("unshare network namespace");
  TRY_ASSIGN(const auto workload, netlink::Socket::open(NETLINK_ROUTE));
  TRY(needs(kVeth, kVethRemedy, wire(route, workload)));
  // The kernel is busy with the wire meanwhile.
  TRY(check_ruleset(filter, rules));
  TRY(await_wire(route, workload));
  return made;
}

Status settle_gateway(int namespace_fd, int sysctls_fd) {
  if (::setns(namespace_fd, CLONE_NEWNET) != 0)
    return fail_errno("setns the gateway's network namespace");
  struct Setting {
    const char* name;
    const char* value;
  };
  constexpr Setting kSettings[] = {
      // IPv4's are the host's at first, which may well be a router.
      {"net/ipv4/ip_forward", "0"},
      {"net/ipv6/conf/all/forwarding", "0"},
      {"net/ipv6/conf/gw0/accept_ra", "0"},
      // The kernel holds back ICMP errors, six at once and then one a second: who is refused would
      // wait. Nobody but the workload itself gets these.
      {"net/ipv4/icmp_ratemask", "0"},
      {"net/ipv6/icmp/ratemask", "255"},
      // What is over is not remembered for long (kNewConnectionsPerSecond says why).
      {"net/netfilter/nf_conntrack_tcp_timeout_time_wait", "10"},
      {"net/netfilter/nf_conntrack_udp_timeout", "10"},
  };
  for (const Setting& setting : kSettings)
    TRY(sys::write_file(sysctls_fd, setting.name, setting.value));
  return {};
}

Status try_wire() {
  TRY_ASSIGN(const auto gateway, netlink::Socket::open(NETLINK_ROUTE));
  if (::unshare(CLONE_NEWNET) != 0) return fail_errno("unshare network namespace");
  TRY_ASSIGN(const auto workload, netlink::Socket::open(NETLINK_ROUTE));
  return wire(gateway, workload);
}

Status try_rules(RulePiece piece) {
  TRY_ASSIGN(const auto filter, netlink::Socket::open(NETLINK_NETFILTER));
  return load_ruleset(
      filter, only_chain(gateway_ruleset(), piece == RulePiece::kRedirect ? "redirect" : "guard"),
      0);
}

}  // namespace caisson::wall
