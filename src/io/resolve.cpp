#include "io/resolve.h"

#include <netdb.h>

#include <cstring>
#include <memory>

#include "io/address.h"

namespace caisson::io {
namespace {

// Blocks.
Result<std::vector<std::string>> look_up(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return fail(Error::not_found("the host '" + host + "' is not known: " + ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    if (at->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    if (std::string text = address.text(); !text.empty()) addresses.push_back(std::move(text));
  }
  if (addresses.empty()) return fail(Error::not_found("the host '" + host + "' has no address"));
  return addresses;
}

}  // namespace

Async<Result<std::vector<std::string>>> resolve(Loop& loop, std::string host, unsigned short port) {
  const std::string number = std::to_string(port);
  const bool is_v6 = host.contains(':');
  if (auto numeric = parse_address((is_v6 ? "[" + host + "]" : host) + ":" + number);
      numeric.has_value())
    co_return std::vector<std::string>{numeric->text()};
  auto look = [host = std::move(host), number] { return look_up(host, number); };
  co_return co_await loop.in_pool(std::move(look));
}

}  // namespace caisson::io
