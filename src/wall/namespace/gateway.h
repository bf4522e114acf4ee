// The wire of a sandbox that has a gateway: two network namespaces and nothing beyond them.
//
//   host                          user namespace U
//   ┌──────────────────────┐  ┌────────── G ──────────┐      ┌───────── W ─────────┐
//   │ whoever asked: holds │  │ gw0 10.200.0.1/30     │ veth │ eth0 10.200.0.2/30  │
//   │ sockets of G, dials  ├──┤     fd00:5a::1/126    ├──────┤      fd00:5a::2/126 │
//   │ from here            │  │ rules (nft_ruleset.h) │      │ all routes by gw0   │
//   └──────────────────────┘  └───────────────────────┘      └─────────────────────┘
//
// G has no way out: no other interface, no forwarding. What the workload sends, to whatever
// address, ends in one of three sockets that were born in G and are handed out (handouts.h), or is
// refused. U owns both namespaces, for root's sandboxes and for an ordinary user's alike, and the
// command has no capability over U; so nothing inside changes the rules, the routes or the
// addresses. Every sandbox has the same addresses: who it is says the socket, never an address.
//
// make_gateway() runs in the helper process of set-up, which ends afterwards; settle_gateway() in
// the setup child, which has a /proc. Whatever fails, there is no sandbox.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/switches.h"
#include "wall/handouts.h"
#include "wall/namespace/netlink.h"

namespace caisson::wall {

// Makes G, then W, in which the caller is afterwards, wires them and lets nothing but the sockets
// be reached. The caller has every capability over its user namespace. Error: failed_precondition
// where this kernel lacks a piece, naming it and what helps.
Result<Gateway> make_gateway(SwitchMask switches);

// Enters G and sets there what only files set: no forwarding, no router's words, ICMP errors at
// once. `sysctls_fd` is a writable /proc/sys.
Status settle_gateway(int namespace_fd, int sysctls_fd);

// The pieces one by one, for the doctor's probes. The caller is in a network namespace of its own;
// try_wire() leaves it in another one.
Status try_wire();
enum class RulePiece : std::uint8_t { kRedirect, kReject };
Status try_rules(RulePiece piece);

// The messages that wire the two, each sent in its own namespace.
netlink::Batch gateway_side(int workload_namespace_fd);
netlink::Batch workload_side();

}  // namespace caisson::wall
