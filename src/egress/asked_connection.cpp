#include "egress/asked_connection.h"

#include <array>
#include <cstdint>
#include <utility>

#include "egress/request_head.h"
#include "egress/socks5.h"

namespace caisson::egress {
namespace {

using State = AskedConnection::State;
using namespace socks5;  // NOLINT: the protocol's own words

constexpr char kSocks4 = 4;

std::uint8_t number(char byte) {
  return static_cast<std::uint8_t>(byte);
}

AskedConnection refused(std::string answer, std::string sentence) {
  AskedConnection asked{.state = State::kRefused};
  asked.answer = std::move(answer);
  asked.sentence = std::move(sentence);
  return asked;
}

// The address that it is bound to is nobody's business.
std::string reply(Reply code) {
  return {kVersion, static_cast<char>(code), 0, kIpv4, 0, 0, 0, 0, 0, 0};
}

AskedConnection refused_by(Reply code, std::string sentence) {
  return refused(reply(code), std::move(sentence));
}

AskedConnection greeting(std::string_view bytes) {
  if (bytes.size() < 2) return {};
  const std::size_t size = 2 + number(bytes[1]);
  if (bytes.size() < size) return {};
  const std::string_view methods = bytes.substr(2, size - 2);
  if (methods.find(static_cast<char>(kNoLogin)) == std::string_view::npos)
    return refused({static_cast<char>(kVersion), static_cast<char>(kNoMethod)},
                   "SOCKS5 with a login alone; there is nobody to be here");
  AskedConnection asked{.state = State::kGreeted, .used = size};
  asked.answer = {static_cast<char>(kVersion), static_cast<char>(kNoLogin)};
  return asked;
}

// `target`: the address, of which the kind was said before.
std::optional<policy::Host> host_of(std::uint8_t kind, std::string_view target) {
  policy::Host host{.kind = policy::Host::Kind::kAddress};
  if (kind == kName) {
    auto named = policy::canonical_host(target);
    if (!named.has_value()) return std::nullopt;
    return std::move(*named);
  }
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t at = 0; at < target.size(); ++at) bytes[at] = number(target[at]);
  host.address = kind == kIpv6 ? policy::IpAddress::v6(bytes)
                               : policy::IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
  host.name = host.address.to_string();
  return host;
}

AskedConnection http(std::string_view bytes) {
  ParsedHead parsed = parse_request_head(bytes);
  if (parsed.refusal) return refused(response(*parsed.refusal), parsed.refusal->sentence);
  if (!parsed.head) return {};
  AskedConnection asked{.state = State::kAsked, .to = std::move(parsed.head->target)};
  if (asked.to.port == 0)
    return refused(response({400, "there is no port 0"}), "there is no port 0");
  asked.used = parsed.used;
  if (parsed.head->tunnel)
    asked.answer = "HTTP/1.1 200 Connection established\r\n\r\n";
  else
    asked.instead = std::move(parsed.head->forward);
  return asked;
}

}  // namespace

AskedConnection asked_connection(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (number(bytes[0]) == kVersion) return greeting(bytes);
  if (bytes[0] == kSocks4) return refused("", "SOCKS4; SOCKS5 and HTTP are spoken here");
  return http(bytes);
}

AskedConnection socks_request(std::string_view bytes) {
  if (bytes.size() < 5) return {};
  if (number(bytes[0]) != kVersion) return refused("", "another version of SOCKS than before");
  if (number(bytes[1]) != kConnect)
    return refused_by(Reply::kNoSuchCommand, "another command of SOCKS5 than CONNECT");
  const std::uint8_t kind = number(bytes[3]);
  std::size_t begin = 4, size = kIpv4Bytes;
  if (kind == kIpv6) {
    size = kIpv6Bytes;
  } else if (kind == kName) {
    begin = 5;
    size = number(bytes[4]);
  } else if (kind != kIpv4) {
    return refused_by(Reply::kNoSuchAddress, "an address of SOCKS5 of another kind");
  }
  if (bytes.size() < begin + size + kPortBytes) return {};
  AskedConnection asked{.state = State::kAsked, .used = begin + size + kPortBytes};
  const auto host = host_of(kind, bytes.substr(begin, size));
  if (!host) return refused_by(Reply::kNotAllowed, "what SOCKS5 names is not the name of a host");
  asked.to.host = *host;
  asked.to.port = static_cast<std::uint16_t>(number(bytes[begin + size]) << 8 |
                                             number(bytes[begin + size + 1]));
  if (asked.to.port == 0) return refused_by(Reply::kNotAllowed, "there is no port 0");
  asked.answer = reply(Reply::kDone);
  return asked;
}

}  // namespace caisson::egress
