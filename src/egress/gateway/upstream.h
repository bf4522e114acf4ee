// Connections to the servers that requests are for: dialed, and with TLS verified, before a byte of
// a request goes there.
//
// A request of HTTP/1.1 has a connection of its own, or the one that the request before it on the
// same connection of the sandbox had, if it goes to the same server. Requests of one HTTP/2
// connection of a sandbox share one to their server where that speaks HTTP/2 too, for as long as
// theirs lasts and the policy still allows its address; nobody else gets it, no other sandbox and
// no other connection. Only .cpp files of src/egress/gateway include this.
#pragma once

#include <cstdint>
#include <expected>
#include <list>
#include <memory>
#include <string>

#include "egress/gateway/h2_session.h"
#include "egress/gateway/kept_upstreams.h"
#include "egress/gateway/request.h"

namespace caisson::egress {

// Where a request goes.
struct Route {
  policy::Host to;  // the name, or the address that was allowed as such
  std::uint16_t port = 0;
  policy::Host name;  // that the server's certificate must be for
  bool tls = false;
  policy::NetworkDecision decision;
};

// A connection that stands: a stream for one request of HTTP/1.1, or a session of HTTP/2.
struct Upstream {
  std::string address;  // "192.0.2.1:443"
  std::unique_ptr<UpstreamPlace> place;
  std::unique_ptr<io::Stream> stream;
  std::shared_ptr<H2Session> session;
  bool was_kept = false;  // it has had a request before
};
using Connected = std::expected<Upstream, Refused>;

// A new connection; the server is offered `alpn`.
io::Async<Connected> connect_upstream(Gateway::State& state, Route route, io::Alpn alpn);

// Keeps what a request has used and left whole, for four seconds at most, until take_kept() or
// forget().
std::shared_ptr<KeptUpstream> keep_upstream(Gateway::State& state, const Route& route,
                                            Upstream used);
// The one that was kept, with a place again, where it is for just that route by the policy of now,
// is not old, and its server has said nothing since; else it ends, and there is none.
std::optional<Upstream> take_kept(Gateway::State& state, const Route& route,
                                  std::shared_ptr<KeptUpstream> kept);

class Upstreams {
 public:
  explicit Upstreams(std::shared_ptr<Gateway::State> state);
  // Ends them.
  ~Upstreams();
  Upstreams(const Upstreams&) = delete;
  Upstreams& operator=(const Upstreams&) = delete;

  // One that takes a request more, or a new one. While the first is being made the others wait for
  // it, once.
  static io::Async<Connected> connect(std::shared_ptr<Upstreams> self, Route route);

 private:
  struct Shared {
    policy::Host to;
    policy::Host name;  // that its certificate was verified for
    std::string address;
    std::unique_ptr<UpstreamPlace> place;
    std::shared_ptr<H2Session> session;
  };
  class Making;
  std::optional<Upstream> find(const Route& route);

  std::shared_ptr<Gateway::State> state_;
  std::list<Shared> shared_;
  io::Event made_;
  bool making_ = false;
  bool one_each_ = false;  // the server speaks HTTP/1.1 alone
};

}  // namespace caisson::egress
