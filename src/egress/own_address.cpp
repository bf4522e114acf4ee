#include "egress/own_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "base/fd.h"
#include "base/guards.h"
#include "egress/socket_address.h"

namespace caisson::egress {
namespace {

using policy::IpAddress;

Fd datagram_socket(const IpAddress& address) {
  const int family = address.is_v6() ? AF_INET6 : AF_INET;
  return Fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

bool can_bind(const IpAddress& address) {
  const Fd socket = datagram_socket(address);
  const SocketAddress to = socket_address(address, 0);
  return !socket.valid() || ::bind(socket.get(), to.get(), to.size) == 0;
}

// Hosts that take over others' addresses may bind to any (ip_nonlocal_bind).
bool can_bind_to_any(const IpAddress& like) {
  return can_bind(like.is_v6() ? IpAddress::v6({0x20, 0x01, 0x0d, 0xb8})  // RFC 3849
                               : IpAddress::v4({192, 0, 2, 1}));          // RFC 5737
}

// The kernel speaks to an address of its own from that very address. Not so to a second one of the
// same network, which it reaches from the first.
bool reached_from_itself(const IpAddress& address) {
  const Fd socket = datagram_socket(address);
  if (!socket.valid()) return true;
  const SocketAddress to = socket_address(address, 9);  // any port
  if (::connect(socket.get(), to.get(), to.size) != 0) return false;
  SocketAddress from;
  from.size = sizeof from.storage;
  if (::getsockname(socket.get(), from.get(), &from.size) != 0) return true;
  if (!address.is_v6()) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from.storage).sin_addr;
    return std::memcmp(&four, address.bytes().data(), sizeof four) == 0;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(from.storage).sin6_addr;
  return std::memcmp(&six, address.bytes().data(), sizeof six) == 0;
}

}  // namespace

bool is_own_address(const IpAddress& address) {
  if (guard_off(Guard::kOwnAddress)) return false;
  return reached_from_itself(address) || (can_bind(address) && !can_bind_to_any(address));
}

}  // namespace caisson::egress
