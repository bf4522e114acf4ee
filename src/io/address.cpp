#include "io/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <string_view>

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

unsigned short SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(as<sockaddr_in>(*this).sin_port);
  if (family() == AF_INET6) return ntohs(as<sockaddr_in6>(*this).sin6_port);
  return 0;
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &as<sockaddr_in>(*this).sin_addr, host, sizeof(host));
    return std::string(host) + ":" + std::to_string(port());
  }
  if (family() == AF_INET6) {
    inet_ntop(AF_INET6, &as<sockaddr_in6>(*this).sin6_addr, host, sizeof(host));
    return "[" + std::string(host) + "]:" + std::to_string(port());
  }
  return {};
}

Result<SocketAddress> parse_address(const std::string& text) {
  const auto refused = [&] {
    return fail(
        Error::invalid("'" + text +
                       "' is not an address: expected HOST:PORT or [V6]:PORT with a numeric "
                       "host and a port of at most 65535"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refused();
  const std::string_view digits = std::string_view(text).substr(colon + 1);
  unsigned short port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return refused();

  SocketAddress address;
  const std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
    const std::string inner = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, inner.c_str(), &six.sin6_addr) != 1) return refused();
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    address.length = sizeof(six);
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
    if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return refused();
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    address.length = sizeof(four);
  }
  return address;
}

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
