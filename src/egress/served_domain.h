// The domain below which a server's sandboxes are reached, as the gateway of one of them knows it:
// a sandbox may ask for another's port by its name, PORT-ID.DOMAIN, as a client outside would.
//
// Such names lead to the server itself, whose address no policy lets through. So whoever makes the
// sandbox says where they are answered, and the gateway dials that for them alone: TLS, at the
// port that clients use. What answers there serves ports of sandboxes and nothing else, whatever a
// client that was spliced says afterwards (Service::handle_port). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/host_name.h"

namespace caisson::egress {

struct ServedDomain {
  std::string domain;      // "sandboxes.example.com", canonical; empty: there is none
  std::uint16_t port = 0;  // at which clients reach it
  std::string address;     // where that is: "127.0.0.1:8443"
  std::string authority;   // PEM: who signed its certificate; empty: whom this host trusts
  bool operator==(const ServedDomain&) const = default;

  // Whether a connection is for a sandbox's port.
  bool has(const policy::Host& host, std::uint16_t to) const;
};

std::string encode(const ServedDomain& served);
// Error: invalid_argument.
Result<ServedDomain> parse_served_domain(std::string_view text);

}  // namespace caisson::egress
