// TLS that is opened: the gateway is the server to the program inside, by a certificate of the
// sandbox's own authority, and each request is judged as one without TLS is (http.cpp), which
// connects to the true server and verifies it before a byte of the request goes there.
#include <algorithm>
#include <utility>

#include "egress/gateway/state.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;
using State = Gateway::State;

// Fatal alerts (RFC 8446, section 6; RFC 7301, section 3.2), in a record of their own.
constexpr std::string_view kInternalError("\x15\x03\x03\x00\x02\x02\x50", 7);
constexpr std::string_view kNoProtocol("\x15\x03\x03\x00\x02\x02\x78", 7);
constexpr std::string_view kHttp2 = "h2";
constexpr std::string_view kHttp11 = "http/1.1";
constexpr std::size_t kMostNamedProtocols = 4;

struct Unopened {
  std::string_view reason;
  std::string detail;
  std::string_view alert;  // empty: the client knows already
};

AuditRecord record_of(const Meant& destination, const policy::Host& host,
                      const policy::NetworkDecision& decision, const Unopened& refusal) {
  AuditRecord record{.kind = AuditKind::kTls, .reason = std::string(refusal.reason)};
  record.rule = decision.rule;
  record.host = host.name;
  record.port = destination.port;
  record.destination = destination.text;
  record.tls = kInspected;
  record.detail = refusal.detail;
  return record;
}

Async<void> send_alert(MeteredStream& client, std::string_view alert) {
  client.set_timeout(std::chrono::seconds(1));
  const Status written = co_await client.write(alert);
  if (written.has_value()) co_await client.finish();
}

// A client that names protocols and none of ours speaks another one than we could answer.
std::string foreign_protocols(const std::vector<std::string>& protocols) {
  const auto is_ours = [](const std::string& name) { return name == kHttp11 || name == kHttp2; };
  if (protocols.empty() || std::ranges::any_of(protocols, is_ours)) return "";
  std::string names;
  for (std::size_t n = 0; n < std::min(protocols.size(), kMostNamedProtocols); ++n)
    names += (n == 0 ? "" : ", ") + protocols[n];
  return names;
}

}  // namespace

Async<void> Gateway::State::inspect(std::shared_ptr<State> self,
                                    std::unique_ptr<MeteredStream> client, Meant destination,
                                    Inspected what) {
  const std::string foreign = foreign_protocols(what.protocols);
  std::optional<Unopened> refusal;
  if (self->options.authority == nullptr) {
    refusal = Unopened{"no_authority",
                       "this sandbox was started without an authority, so its TLS cannot be opened",
                       kInternalError};
  } else if (!foreign.empty()) {
    refusal = Unopened{"alpn",
                       "the client offers " + foreign + ", and what is inspected is h2 or http/1.1",
                       kNoProtocol};
  }
  if (refusal) {
    self->record(record_of(destination, what.host, what.decision, *refusal));
    co_return co_await send_alert(*client, refusal->alert);
  }
  MeteredStream* const wire = client.get();
  auto opened = co_await io::accept_tls(self->loop, std::move(client), self->options.authority,
                                        what.host.name, {}, io::Alpn::kHttp2);
  if (!opened.has_value()) {
    const bool distrusted = opened.error().code() == Code::kUnauthenticated;
    const Unopened failed{distrusted ? "authority_not_trusted" : "handshake",
                          distrusted
                              ? "the program does not trust the certificates of its sandbox (" +
                                    opened.error().message() + ")"
                              : opened.error().message(),
                          {}};
    self->record(record_of(destination, what.host, what.decision, failed));
    co_return;
  }
  if ((*opened)->protocol() == kHttp2) {
    co_return co_await serve_http2(self, std::move(*opened), *wire, std::move(destination),
                                   std::move(what.host));
  }
  serve_https(self, std::move(*opened), *wire, std::move(destination), std::move(what.host));
}

Async<Result<std::unique_ptr<io::Stream>>> Gateway::State::secure_for(
    State& state, std::unique_ptr<io::Stream> upstream, const policy::Host& host,
    std::uint16_t port, io::Alpn alpn) {
  const bool served = state.options.served.has(host, port) && state.options.served_trust != nullptr;
  Result<std::unique_ptr<io::Stream>> secured = fail(Error(Code::kCancelled, "the gateway ended"));
  auto connect = [&]() -> Async<void> {
    secured = co_await io::connect_tls(state.loop, std::move(upstream), host.name,
                                       served ? state.options.served_trust : state.options.trust,
                                       alpn, served ? nullptr : state.sessions);
  };
  co_await io::race(connect(), wait_end(state));
  co_return secured;
}

}  // namespace caisson::egress
