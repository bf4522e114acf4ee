// An address and a port as the kernel takes them.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "policy/ip_address.h"

namespace caisson::egress {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress socket_address(const policy::IpAddress& address, std::uint16_t port);

}  // namespace caisson::egress
