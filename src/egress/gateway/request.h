// What a request of a sandbox is for, whether it may go on, and what of it is sent: the same for
// HTTP/1.1 and HTTP/2, with TLS that was opened and without TLS. Only .cpp files of
// src/egress/gateway include this.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "egress/gateway/state.h"
#include "http/message.h"

namespace caisson::egress {

class Upstreams;
struct KeptUpstream;

// What the requests of one connection have in common; held by each of them.
struct Client {
  std::shared_ptr<Gateway::State> state;
  Meant destination;
  // Of TLS that was opened: whose server we are. nullopt: there is no TLS.
  std::optional<policy::Host> served = std::nullopt;
  // Of HTTP/2: the connections that its requests share. null: each has one of its own.
  std::shared_ptr<Upstreams> upstreams = nullptr;
  // Of HTTP/1.1: the connection that a request has left to the next one. null: none has.
  std::shared_ptr<KeptUpstream> kept = nullptr;
  bool judged = false;  // one request of it

  bool tls() const { return served.has_value(); }
  std::uint16_t default_port() const;
};

// A request on its way from what came to what is sent.
struct Asked {
  policy::Host host;
  policy::Target target;
  bool tls = false;
  bool by_address = false;  // a connection to a bare address, allowed as such
};

// What answers a request that does not go on.
struct Refused {
  int status = 403;
  std::string reason;
  std::string rule;
  std::string detail;
};

// For which host, and what of it. Refused where that can be read in two ways, or is not what the
// connection is for.
std::expected<Asked, Refused> read_request(const Client& client, const http::RequestHead& head);

// By the name first; a connection to a bare address may be allowed as such. Which of the two it is
// stays so for the whole request. `body`: as far as its length is known.
policy::NetworkDecision judge(const policy::CompiledNetwork& policy, const Meant& destination,
                              const http::RequestHead& head, Asked& asked, std::uint64_t body);
// What a new policy says of a request under way to that endpoint ("192.0.2.1:443").
bool still_allows(const Gateway::State& state, const policy::CompiledNetwork& policy,
                  const Meant& destination, const http::RequestHead& head, const Asked& asked,
                  std::uint64_t body, std::string_view upstream);

// The head that is sent for it, as HTTP/1.1 has one.
http::RequestHead upstream_head(const http::RequestHead& head, const Asked& asked,
                                std::uint16_t port, const policy::NetworkDecision& decision);

}  // namespace caisson::egress
