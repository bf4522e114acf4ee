// HTTP/2 of a sandbox in TLS that was opened: each stream is a request as HTTP/1.1 has one, judged
// by the same code (forward.h), and goes its own way.
#include <utility>

#include "egress/gateway/forward.h"
#include "egress/gateway/h2_exchange.h"
#include "egress/gateway/state.h"
#include "egress/gateway/upstream.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;
using State = Gateway::State;

// Of all connections of a sandbox together; beyond them a stream is refused.
constexpr unsigned kMostRequests = 512;
// Without a request, as between two of HTTP/1.1.
constexpr std::chrono::seconds kIdleTime{60};

// Counted in `streams` for as long as it lives.
class Counted {
 public:
  explicit Counted(std::shared_ptr<State> state) : state_(std::move(state)) { ++state_->streams; }
  ~Counted() { --state_->streams; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::shared_ptr<State> state_;
};

// What cannot be read as a request, and so is judged by nobody.
void record_bad_head(const Client& client, int status, std::string detail) {
  AuditRecord record{.kind = AuditKind::kHttp, .status = status, .detail = std::move(detail)};
  record.reason = "bad_head";
  record.host = client.served->text();
  record.port = client.destination.port;
  record.destination = client.destination.text;
  record.proto = "h2";
  record.tls = kInspected;
  client.state->record(record);
}

Async<void> serve_stream(std::shared_ptr<Client> client, std::shared_ptr<H2Stream> stream,
                         std::string peer) {
  const Counted counted(client->state);
  if (stream->head_too_large()) {
    record_bad_head(*client, 431, "it is longer than is allowed");
    const Status told = stream->send_head({{":status", "431"}}, H2End::kEnds);
    if (!told.has_value()) stream->reset(H2Code::kEnhanceYourCalm);
    stream->let_go();
    co_return;
  }
  const H2Body body = stream->ended_with_head() ? H2Body::kNone : H2Body::kFollows;
  auto head = request_of(stream->take_head(), body);
  if (!head.has_value()) {
    record_bad_head(*client, 0, head.error().message());
    stream->reset(H2Code::kProtocolError);
    co_return;
  }
  H2Exchange exchange(client->state->loop, client->state->http, std::move(stream), std::move(*head),
                      std::move(peer));
  co_await handle_request(client, {.exchange = exchange, .carrier = exchange, .stream = &exchange});
}

// Says goodbye where no request has come for too long.
Async<void> end_idle(H2Session& session) {
  while (!session.ended()) {
    const auto since = session.idle_since();
    const io::Clock::time_point end = since ? *since + kIdleTime : io::Clock::time_point::max();
    if (end <= io::Clock::now()) {
      session.say_goodbye();
      // In which what is sent goes out.
      co_await io::Loop::sleep(std::chrono::seconds(5));
      co_return;
    }
    co_await session.wait_change(end);
  }
}

}  // namespace

Async<void> Gateway::State::serve_http2(std::shared_ptr<State> self,
                                        std::unique_ptr<io::Stream> client, MeteredStream& wire,
                                        Meant destination, policy::Host host) {
  const std::string peer = client->peer();
  const auto session = std::make_shared<H2Session>(self->loop, std::move(client),
                                                   H2Session::Side::kServer, self->h2_budget);
  // For as long as it is open it is one that is to be opened.
  const OpenConnection open(self, wire, is_to_be_opened(destination, host));
  auto held = std::make_shared<Client>(Client{.state = self,
                                              .destination = std::move(destination),
                                              .served = std::move(host),
                                              .upstreams = std::make_shared<Upstreams>(self)});
  auto on_request = [held, peer](std::shared_ptr<H2Stream> stream) {
    held->state->loop.spawn(serve_stream(held, std::move(stream), peer));
  };
  session->on_malformed(
      [held] { record_bad_head(*held, 0, "its fields are not as HTTP/2 has them"); });
  auto may_begin = [&state = *self] {
    if (state.streams < kMostRequests) return true;
    state.record({.kind = AuditKind::kLimit, .reason = "requests"});
    return false;
  };
  co_await io::race(H2Session::run(session, std::move(on_request), std::move(may_begin)),
                    end_idle(*session));
  session->close();
}

}  // namespace caisson::egress
