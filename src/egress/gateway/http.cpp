// HTTP/1.1 of a sandbox, without TLS or in TLS that was opened: each request is judged by itself
// (forward.h).
#include <utility>

#include "egress/gateway/forward.h"
#include "egress/gateway/state.h"

namespace caisson::egress {

void Gateway::State::serve_http(std::shared_ptr<State> self, std::unique_ptr<MeteredStream> client,
                                Meant destination) {
  auto held =
      std::make_shared<Client>(Client{.state = self, .destination = std::move(destination)});
  auto handler = [held = std::move(held), &wire = *client](http::Exchange& exchange) {
    return handle_request(held, {.exchange = exchange, .carrier = wire});
  };
  self->http.take(std::move(client), http::Server::Transport::kPlain, std::move(handler));
}

std::function<bool(const policy::CompiledNetwork&)> Gateway::State::is_to_be_opened(
    const Meant& destination, const policy::Host& served) {
  return [port = destination.port, served,
          meant = destination.pin ? std::nullopt : std::optional(destination.host)](
             const policy::CompiledNetwork& policy) {
    const auto is_inspected = [&](const policy::Host& to) {
      const policy::NetworkDecision decision =
          policy.connection(to, port, policy::ConnectionKind::kTls);
      return decision.allowed && decision.inspect;
    };
    return is_inspected(served) || (meant && is_inspected(*meant));
  };
}

void Gateway::State::serve_https(std::shared_ptr<State> self, std::unique_ptr<io::Stream> client,
                                 MeteredStream& wire, Meant destination, policy::Host host) {
  // For as long as it is open it is one that is to be opened.
  auto open = std::make_shared<OpenConnection>(self, wire, is_to_be_opened(destination, host));
  auto held = std::make_shared<Client>(
      Client{.state = self, .destination = std::move(destination), .served = std::move(host)});
  auto handler = [held = std::move(held), open = std::move(open), &wire](http::Exchange& exchange) {
    return handle_request(held, {.exchange = exchange, .carrier = wire});
  };
  self->http.take(std::move(client), http::Server::Transport::kTls, std::move(handler));
}

}  // namespace caisson::egress
