// What a sandbox may reach through the egress proxy: HOST[:PORT] entries, and which addresses a
// name may lead to.
//
// HOST is a name, `*.NAME` (every name below NAME, not NAME itself), or an address (IPv6 in
// brackets); without a port 80 and 443 are meant. Names are compared without regard to case and a
// trailing dot. Whatever a name resolves to on the host, addresses that the host itself has
// (own_address.h) and those that are not the Internet's are refused, unless the entry names the
// address itself, or `localhost`. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::egress {

struct HostPort {
  std::string host;  // lower case; IPv6 without brackets
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// "HOST:PORT", as a request names it; `default_port` 0: it must name one. Error: invalid_argument.
Result<HostPort> parse_host_port(std::string_view text, std::uint16_t default_port);

class AllowList {
 public:
  // Error: invalid_argument, with the entry and what is allowed.
  static Result<AllowList> parse(std::span<const std::string> entries);

  enum class Answer : std::uint8_t {
    kNo,
    kPublic,      // but to no address that the host has, and to the Internet's alone
    kAnyAddress,  // the entry names the address, or localhost
  };
  Answer allows(const HostPort& target) const;
  // Whether an entry names this very host (localhost, 127.0.0.1, …).
  bool names_loopback() const;
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string host;        // without "*."
    bool below = false;      // "*."
    bool literal = false;    // an address, or localhost
    std::uint16_t port = 0;  // 0: 80 and 443
  };
  std::vector<Entry> entries_;
};

// Whether an address (4 or 16 bytes, network order) is one of the Internet's: not unspecified,
// loopback, private, shared (RFC 6598), link-local, multicast, reserved, for documentation or
// benchmarks, a cloud's wire server, nor an IPv6 form of such an IPv4 address. Global addresses of
// the host and of its neighbours are.
bool is_public_address(std::span<const std::uint8_t> address);

}  // namespace caisson::egress
