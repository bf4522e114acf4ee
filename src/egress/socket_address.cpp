#include "egress/socket_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace caisson::egress {

SocketAddress socket_address(std::span<const std::uint8_t> address, std::uint16_t port) {
  SocketAddress made;
  if (address.size() == sizeof(in_addr)) {
    auto& four = reinterpret_cast<sockaddr_in&>(made.storage);
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, address.data(), address.size());
    made.size = sizeof four;
  } else {
    auto& six = reinterpret_cast<sockaddr_in6&>(made.storage);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.data(), std::min(address.size(), sizeof six.sin6_addr));
    made.size = sizeof six;
  }
  return made;
}

}  // namespace caisson::egress
