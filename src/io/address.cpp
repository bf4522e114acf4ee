#include "io/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <string_view>

namespace caisson::io {
namespace {

template <typename T>
const T& as(const SocketAddress& address) {
  return reinterpret_cast<const T&>(address.storage);
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

}  // namespace caisson::io
