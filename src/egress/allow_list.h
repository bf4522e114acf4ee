// What a sandbox may reach through the egress proxy: HOST[:PORT] entries.
//
// HOST is a name, `*.NAME` (every name below NAME, not NAME itself), or an address (IPv6 in
// brackets), read as policy/host_name.h reads every host; without a port 80 and 443 are meant.
// Whatever a name resolves to on the host, addresses that the host itself has (own_address.h) and
// those that are not the Internet's (policy/ip_class.h) are refused, unless the entry names the
// address itself, or `localhost`. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "policy/host_name.h"

namespace caisson::egress {

// Where a request goes.
struct Destination {
  policy::Host host;
  std::uint16_t port = 0;
  // HOST:PORT
  std::string text() const { return policy::Authority{host, port}.text(); }
  bool operator==(const Destination&) const = default;
};

// Whether it is the name that stands for this very host.
bool is_localhost(const policy::Host& host);

class AllowList {
 public:
  // Error: invalid_argument, with the entry and what is allowed.
  static Result<AllowList> parse(std::span<const std::string> entries);

  enum class Answer : std::uint8_t {
    kNo,
    kPublic,      // but to no address that the host has, and to the Internet's alone
    kAnyAddress,  // the entry names the address, or localhost
  };
  Answer allows(const Destination& destination) const;
  // Whether an entry names this very host (localhost, 127.0.0.1, …).
  bool names_loopback() const;
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    policy::Host host;       // without "*."
    bool below = false;      // "*."
    bool literal = false;    // an address, or localhost
    std::uint16_t port = 0;  // 0: 80 and 443
  };
  static Result<Entry> parse_entry(const std::string& text);
  std::vector<Entry> entries_;
};

}  // namespace caisson::egress
