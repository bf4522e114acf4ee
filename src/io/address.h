// Addresses of TCP as text and as the kernel has them. Pure; no names are resolved.
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/error.h"

namespace caisson::io {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // 0 where there is none.
  unsigned short port() const;
  // "127.0.0.1:80" or "[::1]:80"; empty for what is neither IPv4 nor IPv6.
  std::string text() const;
};

// "HOST:PORT" or "[V6]:PORT" with a numeric host. Error: invalid, with what is allowed.
Result<SocketAddress> parse_address(const std::string& text);
// Both ends of a socket; empty where the kernel names none.
SocketAddress own_address(int socket_fd);
SocketAddress peer_address(int socket_fd);
// Where an accepted TCP connection was meant to go before netfilter redirected it; what
// own_address() says where it was not. An IPv4 connection has an IPv4 address here, also on a
// socket of IPv6.
SocketAddress original_address(int socket_fd);

}  // namespace caisson::io
