// An address and a port as the kernel takes them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>

namespace caisson::egress {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// `address`: 4 or 16 bytes in network order.
SocketAddress socket_address(std::span<const std::uint8_t> address, std::uint16_t port);

}  // namespace caisson::egress
