// Both ends of a socket, as the kernel names them.
#include <netinet/in.h>

#include <cstring>

#include "io/address.h"

namespace caisson::io {
namespace {

template <typename T>
const T& as(const SocketAddress& address) {
  return reinterpret_cast<const T&>(address.storage);
}

using NameOf = int(int, sockaddr*, socklen_t*);

SocketAddress address_of(NameOf* name_of, int socket_fd) {
  SocketAddress found;
  found.length = sizeof(found.storage);
  if (name_of(socket_fd, reinterpret_cast<sockaddr*>(&found.storage), &found.length) != 0)
    return {};
  return found;
}

// SO_ORIGINAL_DST of SOL_IP and IP6T_SO_ORIGINAL_DST of SOL_IPV6.
constexpr int kOriginalDestination = 80;

bool is_mapped(const SocketAddress& address) {
  return address.family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&as<sockaddr_in6>(address).sin6_addr);
}

// The IPv4 address that an IPv4-mapped one is.
SocketAddress unmapped(const SocketAddress& address) {
  const auto& six = as<sockaddr_in6>(address);
  SocketAddress found;
  auto& four = reinterpret_cast<sockaddr_in&>(found.storage);
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], sizeof(four.sin_addr));
  found.length = sizeof(four);
  return found;
}

}  // namespace

SocketAddress own_address(int socket_fd) {
  return address_of(::getsockname, socket_fd);
}

SocketAddress peer_address(int socket_fd) {
  return address_of(::getpeername, socket_fd);
}

SocketAddress original_address(int socket_fd) {
  SocketAddress own = own_address(socket_fd);
  if (is_mapped(own)) own = unmapped(own);
  SocketAddress found;
  found.length = sizeof(found.storage);
  const int level = own.family() == AF_INET6 ? SOL_IPV6 : SOL_IP;
  if (::getsockopt(socket_fd, level, kOriginalDestination, &found.storage, &found.length) != 0)
    return own;
  return found;
}

}  // namespace caisson::io
