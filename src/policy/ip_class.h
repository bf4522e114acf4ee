// What an address is: one of the Internet's, or one that a name of a stranger must not lead to.
//
// The table is IANA's special-purpose registries with the metadata services of clouds, which lie in
// otherwise ordinary blocks and hand out credentials. An IPv6 form that holds an IPv4 address is
// judged by that address where the form is the ordinary way to it (mapped, and NAT64's well-known
// prefix), and is kTranslated whatever it holds where a translator of the network's own would
// decide what is reached. Addresses of this very machine and of its neighbours are the caller's
// matter: they may be kGlobal. Pure, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/ip_address.h"

namespace caisson::policy {

// Beside each class the word of a policy's `floor` that closes it.
enum class IpClass : std::uint8_t {
  kGlobal,         // none: the Internet's
  kUnspecified,    // loopback: 0.0.0.0 and ::, which connect to this machine
  kLoopback,       // loopback
  kPrivate,        // private: RFC 1918, unique local (RFC 4193) and site-local addresses
  kShared,         // private: between a provider and its customers (RFC 6598)
  kLinkLocal,      // link-local
  kMetadata,       // metadata: a cloud's services for its own machines, whatever block they lie in
  kMulticast,      // multicast
  kReserved,       // reserved: what is given to nobody, broadcast among it
  kDocumentation,  // reserved
  kBenchmark,      // reserved
  kTranslated,     // reserved: IPv4 within IPv6 by Teredo, 6to4, NAT64 of a network's own, …
};

IpClass classify(const IpAddress& address);

// A word or two for messages: "global", "link-local", "metadata".
std::string_view to_string(IpClass ip_class);

}  // namespace caisson::policy
