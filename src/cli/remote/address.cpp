#include "cli/remote/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "http/text.h"

namespace caisson::cli {
namespace {

Error wrong_url(std::string_view url) {
  return Error::invalid(
      "--server: found '" + std::string(url) +
      "'; allowed is one such as http://localhost:3000 or https://server.example.com");
}

std::string escaped(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  static constexpr std::string_view kPlain = "-._~/";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (http::is_letter_or_digit(c) || kPlain.contains(c)) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace

Result<ServerAddress> parse_server_address(std::string_view url) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  ServerAddress address;
  std::string_view rest = url;
  if (rest.starts_with(kHttps)) {
    rest.remove_prefix(kHttps.size());
    address.scheme = ServerAddress::Scheme::kHttps;
    address.port = 443;
  } else if (rest.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
  } else {
    return fail(wrong_url(url));
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  address.authority = rest;
  std::string_view host = rest, port;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return fail(wrong_url(url));
    host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port = rest.substr(colon);
  }
  const bool plain = !host.empty() && std::ranges::all_of(host, [](char c) {
    return http::is_letter_or_digit(c) || c == '.' || c == '-' || c == '_' || c == ':';
  });
  if (!plain || port == ":") return fail(wrong_url(url));
  address.host = host;
  if (port.empty()) return address;
  const auto [end, error] =
      std::from_chars(port.data() + 1, port.data() + port.size(), address.port);
  if (port.front() != ':' || error != std::errc() || end != port.data() + port.size() ||
      address.port == 0)
    return fail(wrong_url(url));
  return address;
}

bool is_loopback(const ServerAddress& address) {
  if (address.host == "localhost") return true;
  // By its number: a name may begin with 127 as well.
  in_addr four{};
  if (::inet_pton(AF_INET, address.host.c_str(), &four) == 1)
    return (ntohl(four.s_addr) >> 24) == IN_LOOPBACKNET;
  in6_addr six{};
  return ::inet_pton(AF_INET6, address.host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::string target_of(std::string_view path,
                      const std::vector<std::pair<std::string_view, std::string>>& query) {
  std::string target(path);
  char mark = '?';
  for (const auto& [name, value] : query) {
    if (value.empty()) continue;
    target += mark;
    target += name;
    target += '=';
    target += escaped(value);
    mark = '&';
  }
  return target;
}

}  // namespace caisson::cli
