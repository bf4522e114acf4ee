#include "egress/allow_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

namespace caisson::egress {
namespace {

constexpr std::size_t kMostName = 253;
constexpr std::size_t kMostLabel = 63;

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kMostName) return false;
  std::size_t label = 0;
  for (const char c : name) {
    if (c == '.') {
      if (label == 0) return false;
      label = 0;
      continue;
    }
    const bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!good || ++label > kMostLabel) return false;
  }
  return label != 0;
}

// The address in its one spelling; nullopt for a name.
std::optional<std::string> address_of(const std::string& host) {
  char text[INET6_ADDRSTRLEN];
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1)
    return ::inet_ntop(AF_INET, &four, text, sizeof text);
  in6_addr six{};
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1)
    return ::inet_ntop(AF_INET6, &six, text, sizeof text);
  return std::nullopt;
}

// Libraries take "127.1", "0x7f.1" or "2130706433" for addresses; we take none of them for a name.
bool looks_like_a_number(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  const bool digits =
      std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits || last.starts_with("0x");
}

Error malformed(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 300)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return Error::invalid("'" + shown +
                        "': allowed is HOST[:PORT] with a name, an IPv4 address or an IPv6 address "
                        "in brackets, and a port from 1 to 65535");
}

struct Split {
  std::string host;
  std::string_view port;  // empty: none
  bool brackets = false;
};

std::optional<Split> split(std::string_view text) {
  Split parts;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    parts.brackets = true;
    parts.host = lowered(text.substr(1, end - 1));
    rest = text.substr(end + 1);
  } else {
    const std::size_t colon = std::min(text.find(':'), text.size());
    parts.host = lowered(text.substr(0, colon));
    rest = text.substr(colon);
  }
  if (rest.empty()) return parts;
  if (rest.size() < 2 || rest[0] != ':') return std::nullopt;
  parts.port = rest.substr(1);
  return parts;
}

std::optional<std::uint16_t> port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// The host in its one spelling: an address, or a name without a trailing dot.
std::optional<std::string> host_of(const Split& parts) {
  const auto address = address_of(parts.host);
  if (parts.brackets)
    return address.has_value() && parts.host.find(':') != std::string::npos ? address
                                                                            : std::nullopt;
  if (address.has_value()) return address;
  std::string name = parts.host;
  if (name.ends_with('.')) name.pop_back();
  if (!is_name(name) || looks_like_a_number(name)) return std::nullopt;
  return name;
}

struct Block {
  std::array<std::uint8_t, 16> bytes;
  unsigned bits;
};

bool within(std::span<const std::uint8_t> address, const Block& block) {
  for (unsigned bit = 0; bit < block.bits; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80u >> (bit % 8));
    if (((address[bit / 8] ^ block.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

// RFC 6890 and its successors: what is nobody's on the Internet.
constexpr Block kPrivateFour[] = {
    {{0}, 8},
    {{10}, 8},
    {{100, 64}, 10},
    {{127}, 8},
    {{168, 63, 129, 16}, 32},  // a cloud's wire server: every machine's own, whatever its network
    {{169, 254}, 16},
    {{172, 16}, 12},
    {{192, 0, 0}, 24},
    {{192, 0, 2}, 24},
    {{192, 88, 99}, 24},
    {{192, 168}, 16},
    {{198, 18}, 15},
    {{198, 51, 100}, 24},
    {{203, 0, 113}, 24},
    {{224}, 4},
    {{240}, 4},
};
// 2000::/3 is what is given out; these of it are not the Internet's.
constexpr Block kGlobalSix = {{0x20}, 3};
constexpr Block kPrivateSix[] = {
    {{0x20, 0x01}, 23},              // protocol assignments, Teredo among them
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    {{0x3f, 0xff}, 20},              // documentation
};
// Forms that hold an IPv4 address, and where.
struct Embedded {
  Block block;
  std::size_t at;
};
constexpr Embedded kEmbeddedFour[] = {
    {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96}, 12},  // mapped
    {{{0x00, 0x64, 0xff, 0x9b}, 96}, 12},                    // NAT64
    {{{0x20, 0x02}, 16}, 2},                                 // 6to4
};

}  // namespace

Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port) {
  const auto parts = split(text);
  if (!parts) return fail(malformed(text));
  const auto host = host_of(*parts);
  if (!host) return fail(malformed(text));
  HostPort target{.host = *host, .port = default_port};
  if (!parts->port.empty()) {
    const auto port = port_of(parts->port);
    if (!port) return fail(malformed(text));
    target.port = *port;
  }
  if (target.port == 0) return fail(malformed(text));
  return target;
}

Result<AllowList> AllowList::parse(std::span<const std::string> entries) {
  AllowList list;
  for (const std::string& text : entries) {
    Entry entry;
    std::string_view rest = text;
    if (rest.starts_with("*.")) {
      entry.below = true;
      rest.remove_prefix(2);
    }
    const auto parts = split(rest);
    const auto host = parts ? host_of(*parts) : std::nullopt;
    if (!host) return fail(malformed(text));
    entry.host = *host;
    entry.literal = address_of(*host).has_value() || *host == "localhost";
    if (entry.below && entry.literal)
      return fail(Error::invalid("'" + text + "': there are no names below that"));
    if (!parts->port.empty()) {
      const auto port = port_of(parts->port);
      if (!port) return fail(malformed(text));
      entry.port = *port;
    }
    list.entries_.push_back(std::move(entry));
  }
  return list;
}

AllowList::Answer AllowList::allows(const HostPort& target) const {
  for (const Entry& entry : entries_) {
    const bool port =
        entry.port == 0 ? target.port == 80 || target.port == 443 : target.port == entry.port;
    if (!port) continue;
    if (!entry.below) {
      if (target.host != entry.host) continue;
      return entry.literal ? Answer::kAnyAddress : Answer::kPublic;
    }
    if (target.host.size() > entry.host.size() + 1 && target.host.ends_with(entry.host) &&
        target.host[target.host.size() - entry.host.size() - 1] == '.')
      return Answer::kPublic;
  }
  return Answer::kNo;
}

bool AllowList::names_loopback() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.literal &&
           (entry.host == "localhost" || entry.host == "::1" || entry.host.starts_with("127."));
  });
}

bool is_public_address(std::span<const std::uint8_t> address) {
  if (address.size() == 4) {
    return std::none_of(std::begin(kPrivateFour), std::end(kPrivateFour),
                        [&](const Block& block) { return within(address, block); });
  }
  if (address.size() != 16) return false;
  for (const Embedded& form : kEmbeddedFour) {
    if (within(address, form.block)) return is_public_address(address.subspan(form.at, 4));
  }
  return within(address, kGlobalSix) &&
         std::none_of(std::begin(kPrivateSix), std::end(kPrivateSix),
                      [&](const Block& block) { return within(address, block); });
}

}  // namespace caisson::egress
