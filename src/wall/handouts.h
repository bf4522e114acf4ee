// What the set-up of a sandbox hands out on request: descriptors that travel from the setup child
// to the supervisor with the word that the guest is born, and from there to whoever asked for the
// sandbox with the word that it is up. Nobody keeps a copy on the way, and the guest, which closes
// what it was not given, never has one.
//
// A gateway's sockets are born in a network namespace that lies between the sandbox and nothing
// else (namespace/gateway.h), and are all that its packets can reach. What its receiver must know:
//
//  - Every TCP connection of the sandbox comes out of `tcp`, but those to port 53, which come out
//  of
//    `dns_tcp`. Which address and port was meant says getsockopt(SOL_IP, SO_ORIGINAL_DST) of a
//    connection whose peer is an IPv4 one (it shows as ::ffff:10.200.0.2), else
//    getsockopt(SOL_IPV6, IP6T_SO_ORIGINAL_DST); both work from any network namespace. The address
//    may be the gateway's own (10.200.0.1:22): nothing is there, and such a connection is to be
//    refused.
//  - Datagrams to port 53, whatever address was meant, come out of `dns_udp`. An answer that is
//  sent
//    from the same socket to where the question came from looks as if it came from that address.
//  - Everything else has been refused already.
//  - The sandbox has no network without these. When the last copy of a listener is closed, what
//  comes
//    to it is refused; what is open ends with whoever holds it. `namespace_fd` alone keeps the
//    wire: sockets can be made anew in there. Without that too the sandbox's interface goes.
//  - Nobody limits how many connections the sandbox has, only how many it makes in a second
//    (namespace/nft_ruleset.h): the receiver does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::wall {

// 127.0.0.1 and this port in the sandbox's network namespace.
inline constexpr unsigned short kEgressPort = 3128;

// Of a gateway and of the sandbox behind it; the same in every sandbox.
inline constexpr const char* kGatewayAddress = "10.200.0.1";
inline constexpr const char* kGatewayAddress6 = "fd00:5a::1";
inline constexpr const char* kWorkloadAddress = "10.200.0.2";
inline constexpr const char* kWorkloadAddress6 = "fd00:5a::2";

// All or none. The sockets are of both families (AF_INET6) and non-blocking; `tcp` and `dns_tcp`
// listen.
struct Gateway {
  Fd tcp, dns_udp, dns_tcp;
  Fd namespace_fd;  // the network namespace that they are of
  // Whether there is one.
  bool valid() const { return tcp.valid(); }
};

struct Handouts {
  // image::KeptLayer's; both or none.
  Fd layer, record;
  // The ids of the image as host ids, lines of uid_map(5); filled by the supervisor.
  std::string uid_lines, gid_lines;
  bool trusted_attributes = false;
  // TCP, listening. Non-blocking.
  Fd egress;
  Gateway gateway;
};

// At most so many bytes of text.
inline constexpr std::size_t kMostHandoutText = 4096;

// The text and the descriptors of one message.
std::string encode_handouts(const Handouts& handouts);
std::vector<int> descriptors_of(const Handouts& handouts);
// Error: internal where the two do not belong together.
Result<Handouts> decode_handouts(std::string_view text, std::vector<Fd> descriptors);

}  // namespace caisson::wall
