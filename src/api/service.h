// The handler of the HTTP server: finds out what a request is for and who may ask, calls the
// handler, logs.
//
// A request that names a sandbox (api/sandbox_address.h) is the data plane's; it carries the
// sandbox's own tokens, and no API key is asked for. Everything else is looked up in the table of
// routes. /healthz, /readyz, /health and /metrics need no key. Belongs to the loop.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "api/auth.h"
#include "api/call.h"
#include "api/instruments.h"
#include "api/recorded_exchange.h"
#include "api/router.h"
#include "api/sandbox_address.h"
#include "io/log.h"

namespace caisson::api {

class Service {
 public:
  // Answers a request for a port of a sandbox.
  using SandboxHandler = std::function<io::Async<void>(http::Exchange&, SandboxAddress)>;

  // What it borrows outlives it.
  struct Parts {
    Backend backend;
    Keys& keys;
    const io::Log& log;
    SandboxHandler sandbox;
    std::function<http::Server::Counts()> server_counts;
  };
  explicit Service(Parts parts);

  // For http::Server; the Service outlives the request.
  io::Async<void> handle(http::Exchange& exchange);
  // The same of a sandbox's gateway: for ports of sandboxes that the host names, and nothing else
  // (egress/served_domain.h).
  io::Async<void> handle_port(http::Exchange& exchange);

  // What /readyz says: kStarting until told otherwise, kStopping for a server that drains.
  enum class State : std::uint8_t { kStarting, kReady, kStopping };
  void set_state(State state) { state_ = state; }

  // Every route that needs a key, and every path that needs none: for the test that each is
  // documented.
  const std::vector<Route>& routes() const { return routes_; }
  static constexpr std::string_view kOwnPaths[] = {"/healthz", "/health", "/readyz", "/metrics"};

 private:
  // What the access log says beside the request itself.
  struct Trace {
    Plane plane = Plane::kControl;
    std::string team;
    std::string sandbox;
    std::uint16_t port = 0;
  };
  io::Async<void> control(http::Exchange& exchange, Trace& trace);
  using Address = Result<std::optional<SandboxAddress>>;
  io::Async<void> serve(http::Exchange& exchange, Address address);
  io::Async<Result<Answer>> call_route(http::Exchange& exchange, Router::Match match, Trace& trace);
  void log_request(const RecordedExchange& exchange, const Trace& trace,
                   std::chrono::nanoseconds time) const;
  // Those that speak of the server itself; nullopt: the path is another's.
  std::optional<Answer> own_answer(const http::Exchange& exchange) const;

  Parts parts_;
  std::vector<Route> routes_;
  Router router_;
  Instruments instruments_;
  State state_ = State::kStarting;
};

}  // namespace caisson::api
