#include "egress/socket_address.h"

#include <netinet/in.h>

#include <cstring>

namespace caisson::egress {

SocketAddress socket_address(const policy::IpAddress& address, std::uint16_t port) {
  SocketAddress made;
  if (!address.is_v6()) {
    auto& four = reinterpret_cast<sockaddr_in&>(made.storage);
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, address.bytes().data(), sizeof four.sin_addr);
    made.size = sizeof four;
  } else {
    auto& six = reinterpret_cast<sockaddr_in6&>(made.storage);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.bytes().data(), sizeof six.sin6_addr);
    made.size = sizeof six;
  }
  return made;
}

}  // namespace caisson::egress
