// One TCP connection of a sandbox, from where it was meant to go to its end.
#include <algorithm>
#include <utility>

#include "base/guards.h"
#include "egress/asked_connection.h"
#include "egress/client_hello.h"
#include "egress/first_bytes.h"
#include "egress/gateway/dial.h"
#include "egress/gateway/state.h"
#include "egress/gateway/through_proxy.h"
#include "io/race.h"
#include "wall/handouts.h"

namespace caisson::egress {
namespace {

using io::Async;
using policy::ConnectionKind;
using policy::Host;
using policy::NetworkDecision;
using policy::NetworkReason;
using State = Gateway::State;

// How long a client that speaks first has for the bytes that say what it is.
constexpr std::chrono::seconds kPeekTime{5};
// Of the gateway's own address: where programs that want to be told of a proxy find one.
constexpr std::uint16_t kAskedPort = 3128;
// After so long without a byte it is a protocol whose server speaks first.
constexpr std::chrono::milliseconds kServerFirst{300};

// Fatal alerts (RFC 8446, section 6), each in a record of its own: what the policy denies, and what
// it allows and cannot be reached.
constexpr std::string_view kAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);
constexpr std::string_view kInternalError("\x15\x03\x03\x00\x02\x02\x50", 7);

// What a connection was judged to be, and where it may go.
struct Judged {
  AuditKind kind = AuditKind::kTcp;
  ConnectionKind type = ConnectionKind::kOther;
  bool raw = false;     // by a tcp rule, before its bytes were looked at
  bool missed = false;  // it is allowed, and nothing answers
  Host host;
  NetworkDecision decision;
  std::string_view reason;  // of the gateway's own, where the policy was not asked; else empty
  std::string detail;
  std::vector<std::string> protocols;  // of the hello
  bool hides_name = false;  // the hello may have another name inside, for the server alone
};

// The name or address that a connection is for, from where it was meant to go. nullopt: an address
// of ours that no name has (any more), or none at all.
std::optional<Meant> meant_of(State& state, std::string text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string_view address_text = std::string_view(text).substr(0, colon);
  if (address_text.starts_with('[')) address_text = address_text.substr(1, colon - 2);
  const auto address = policy::IpAddress::parse(address_text);
  const auto port = policy::parse_port(std::string_view(text).substr(colon + 1));
  if (!address || !port.has_value()) return std::nullopt;
  Meant destination;
  destination.port = *port;
  if (state.names->is_synthetic(*address)) {
    destination.pin = state.names->pin(*address);
    if (!destination.pin) return std::nullopt;
    destination.host.name = destination.pin->name();
  } else {
    destination.host.kind = Host::Kind::kAddress;
    destination.host.address = *address;
    destination.host.name = address->to_string();
  }
  destination.text = std::move(text);
  return destination;
}

// Where a program sends what it has for a proxy.
bool is_for_proxy(const Meant& destination) {
  const std::string& name = destination.host.name;
  return destination.host.is_address() && destination.port == kAskedPort &&
         (name == wall::kGatewayAddress || name == wall::kGatewayAddress6);
}

// As if the program had asked for the name in DNS and connected to its address. nullopt: as of
// meant_of(), and where there is no address left for it.
std::optional<Meant> meant_by(State& state, const Destination& asked) {
  std::string text = asked.text();
  // In DNS that is the sandbox itself, which is nothing to ask a proxy for.
  if (!asked.host.is_address() && is_localhost(asked.host.name)) return std::nullopt;
  if (!asked.host.is_address()) {
    const auto addresses = state.names->addresses_of(asked.host.name);
    if (!addresses.has_value()) return std::nullopt;
    text = addresses->v4.to_string() + ":" + std::to_string(asked.port);
  }
  return meant_of(state, std::move(text));
}

// What the program asks for, of which nothing is left to be read. Error: the client has gone, was
// too slow, or asked for something else and has been told.
Async<Result<Destination>> read_asked(MeteredStream& client) {
  const io::Clock::time_point until = io::Clock::now() + kPeekTime;
  bool greeted = false;
  for (;;) {
    AskedConnection asked =
        greeted ? socks_request(client.seen()) : asked_connection(client.seen());
    if (asked.state == AskedConnection::State::kMore) {
      const io::Clock::duration left = until - io::Clock::now();
      if (left <= io::Clock::duration::zero())
        co_return fail(Error(Code::kDeadlineExceeded, "what it asks for did not come in time"));
      CO_TRY(co_await client.look_further(left));
      continue;
    }
    client.replace_seen(asked.used, asked.instead);
    client.set_timeout(kPeekTime);
    if (!asked.answer.empty()) CO_TRY(co_await client.write(asked.answer));
    client.set_timeout(io::Clock::duration::zero());
    if (asked.state == AskedConnection::State::kAsked) co_return std::move(asked.to);
    if (asked.state == AskedConnection::State::kRefused) {
      co_await client.finish();
      co_return fail(Error::invalid(std::move(asked.sentence)));
    }
    greeted = true;
  }
}

// The name in a client's hello: it must be the one that was asked for in DNS. Judged by name first;
// a connection to a bare address that no rule for the name allows may still be for the address.
void judge_name(const State& state, const Meant& destination, std::string_view name,
                Judged& judged) {
  auto host = policy::canonical_host(name);
  // A server name is ASCII (RFC 6066, section 3); it goes on as it came, and was judged as such.
  const bool ascii = std::ranges::all_of(name, [](char c) { return c > 0x20 && c < 0x7f; });
  if (host.has_value() && !ascii) host = fail(Error::invalid("a server name that is not ASCII"));
  if (!host.has_value()) {
    judged.reason = "bad_name";
    judged.detail = host.error().message();
    return;
  }
  judged.host = std::move(*host);
  if (destination.pin && judged.host != destination.host && !guard_off(Guard::kServerNameBound)) {
    judged.reason = "name_mismatch";
    judged.detail = "the connection is for " + destination.host.name + ", its bytes name another";
    return;
  }
  judged.decision = state.options.policy->connection(judged.host, destination.port, judged.type);
  if (judged.decision.allowed || destination.pin ||
      judged.decision.reason == NetworkReason::kDenyRule) {
    return;
  }
  const NetworkDecision by_address =
      state.options.policy->connection(destination.host, destination.port, judged.type);
  if (!by_address.allowed) return;
  judged.host = destination.host;
  judged.decision = by_address;
}

void judge_hello(const State& state, const Meant& destination, const ClientHelloReader& reader,
                 Judged& judged) {
  judged.kind = AuditKind::kTls;
  judged.type = ConnectionKind::kTls;
  judged.host = destination.host;
  if (reader.state() != ClientHelloReader::State::kFound) {
    judged.reason = "bad_hello";
    judged.detail = reader.refusal();
    return;
  }
  judged.hides_name = reader.hello().hides_name;
  judged.protocols = reader.hello().protocols;
  std::optional<std::string> name = reader.hello().server_name;
  if (guard_off(Guard::kServerNameJudged)) name.reset();
  if (name.has_value()) return judge_name(state, destination, *name, judged);
  if (destination.pin && !guard_off(Guard::kServerNameRequired)) {
    judged.reason = "no_server_name";
    return;
  }
  judged.decision =
      state.options.policy->connection(destination.host, destination.port, judged.type);
}

// Looks at the bytes until they say what they are. Error: the client has gone, or was too slow.
Async<Result<FirstBytes>> look(MeteredStream& client, bool server_may_speak) {
  const io::Clock::time_point until = io::Clock::now() + kPeekTime;
  for (;;) {
    const FirstBytes found = first_bytes(client.seen());
    if (found != FirstBytes::kNeedMore) co_return found;
    const bool silent = client.seen().empty() && server_may_speak;
    io::Clock::duration patience = until - io::Clock::now();
    if (silent) patience = kServerFirst;
    if (patience <= io::Clock::duration::zero())
      co_return fail(Error(Code::kDeadlineExceeded, "the first bytes did not come in time"));
    const Status status = co_await client.look_further(patience);
    if (status.has_value()) continue;
    if (silent && status.error().code() == Code::kDeadlineExceeded) co_return FirstBytes::kOther;
    co_return fail(status.error());
  }
}

Async<Result<ClientHelloReader>> read_hello(MeteredStream& client) {
  const io::Clock::time_point until = io::Clock::now() + kPeekTime;
  ClientHelloReader reader;
  std::size_t fed = 0;
  for (;;) {
    const auto state = reader.feed(client.seen().substr(fed));
    fed = client.seen().size();
    if (state != ClientHelloReader::State::kNeedMore) co_return reader;
    const io::Clock::duration left = until - io::Clock::now();
    if (left <= io::Clock::duration::zero())
      co_return fail(Error(Code::kDeadlineExceeded, "the hello did not come in time"));
    CO_TRY(co_await client.look_further(left));
  }
}

Async<void> refuse(State& state, MeteredStream& client, const Meant& destination,
                   const Judged& judged) {
  AuditRecord record{.kind = judged.kind, .host = judged.host.name, .port = destination.port};
  record.reason = judged.reason.empty() ? policy::to_string(judged.decision.reason) : judged.reason;
  record.rule = judged.decision.rule;
  record.destination = destination.text;
  record.detail = judged.detail;
  state.record(record);
  if (judged.kind != AuditKind::kTls) {
    client.close(io::Stream::Close::kReset);
    co_return;
  }
  client.set_timeout(std::chrono::seconds(1));
  const Status written = co_await client.write(judged.missed ? kInternalError : kAccessDenied);
  if (!written.has_value()) co_return;
  co_await client.finish();
}

}  // namespace

Async<void> Gateway::State::watch(State& state, Carrier& client) {
  while (!state.ended) {
    const auto idle = state.meter.limits().idle_ms;
    if (!idle) {
      co_await state.ending.wait();
      continue;
    }
    const io::Clock::time_point end = client.moved_at() + std::chrono::milliseconds(*idle);
    if (end <= io::Clock::now()) {
      client.end_for("idle");
      co_return;
    }
    co_await state.ending.wait_until(end);
  }
}

Async<std::optional<DialResult>> Gateway::State::dial_for(State& state, policy::Host host,
                                                          std::uint16_t port, bool tls,
                                                          policy::NetworkDecision allowed) {
  std::optional<DialResult> dialed;
  const ServedDomain& served = state.options.served;
  const bool is_served = tls && served.has(host, port);
  auto connect = [&]() -> Async<void> {
    const auto policy = state.options.policy;
    if (is_served)
      dialed = co_await dial_served(state.loop, served.address);
    else if (policy->upstream_proxy())
      dialed = co_await dial_through_proxy(state.loop, state.known, std::move(host), port,
                                           std::move(allowed), policy, state.proxy_password());
    else
      dialed =
          co_await dial(state.loop, state.known, std::move(host), port, std::move(allowed), policy);
  };
  co_await io::race(connect(), wait_end(state));
  if (state.ended) co_return std::nullopt;
  co_return dialed;
}

bool Gateway::State::may_stand(const policy::CompiledNetwork& policy, const policy::Host& host,
                               std::uint16_t port, std::string_view upstream,
                               const policy::NetworkDecision& decision) const {
  // Dialed as such, and as nothing else: no name leads there.
  if (options.served.has(host, port) && upstream == options.served.address) return true;
  return allows_upstream(policy, upstream, port, decision);
}

// What a new policy says of a connection that stands.
static bool allows(const State& state, const policy::CompiledNetwork& policy, const Judged& judged,
                   std::uint16_t port, std::string_view upstream) {
  const NetworkDecision decision = judged.raw ? policy.raw_connection(judged.host, port)
                                              : policy.connection(judged.host, port, judged.type);
  // What is to be opened from now on was not.
  if (decision.inspect) return false;
  return decision.allowed && state.may_stand(policy, judged.host, port, upstream, decision);
}

static Async<void> connect_through(std::shared_ptr<State> self, MeteredStream& client,
                                   const Meant& destination, Judged judged) {
  const io::Clock::time_point began = io::Clock::now();
  const Host to = guard_off(Guard::kDialByName) ? destination.host : judged.host;
  std::optional<DialResult> dialed =
      co_await State::dial_for(*self, to, destination.port,
                               judged.type == ConnectionKind::kTls && !judged.raw, judged.decision);
  if (!dialed.has_value())
    dialed.emplace(std::unexpected(DialFault{.sentence = "the gateway ended"}));
  if (!dialed->has_value()) {
    const DialFault& fault = dialed->error();
    judged.detail = fault.sentence;
    if (fault.denied) judged.decision = *fault.denied;
    judged.missed = !fault.denied;
    if (judged.missed) judged.reason = reason_of(fault);
    co_return co_await refuse(*self, client, destination, judged);
  }
  Dialed& upstream = **dialed;
  AuditRecord record{.kind = judged.kind, .allowed = true, .host = judged.host.name};
  record.port = destination.port;
  record.destination = destination.text;
  record.reason = policy::to_string(judged.decision.reason);
  record.rule = judged.decision.rule;
  record.upstream = upstream.address;
  record.hides_name = judged.hides_name;
  if (judged.kind == AuditKind::kTls) record.tls = kSpliced;
  {
    const OpenConnection open(
        self, client,
        [state = self.get(), judged, port = destination.port, to = record.upstream](
            const auto& policy) { return allows(*state, policy, judged, port, to); });
    co_await io::race(pass_both(self->room, client, *upstream.stream), State::watch(*self, client));
  }
  record.bytes_up = client.bytes_up();
  record.bytes_down = client.bytes_down();
  record.time = std::chrono::duration_cast<std::chrono::milliseconds>(io::Clock::now() - began);
  if (!client.ended_by().empty()) record.detail = "ended by " + std::string(client.ended_by());
  self->record(record);
}

Async<void> Gateway::State::serve(std::shared_ptr<State> self, std::unique_ptr<io::Stream> stream) {
  const Active active(*self);
  const std::string meant = stream->original_destination();
  const std::string_view limit = self->meter.connection_fault();
  if (!limit.empty()) {
    self->record({.kind = AuditKind::kLimit, .reason = std::string(limit), .destination = meant});
    stream->close(io::Stream::Close::kReset);
    co_return;
  }
  auto client = std::make_unique<MeteredStream>(self->meter, std::move(stream), "");
  std::optional<Meant> found = meant_of(*self, meant);
  if (!found) {
    self->record({.reason = "unknown_address", .destination = meant});
    client->close(io::Stream::Close::kReset);
    co_return;
  }
  Meant destination = std::move(*found);
  const bool asks = is_for_proxy(destination);
  if (asks) {
    const auto asked = co_await read_asked(*client);
    if (asked.has_value()) found = meant_by(*self, *asked);
    if (!asked.has_value() || !found) {
      AuditRecord refusal{.reason = asked.has_value() ? "unknown_address" : "bad_proxy_request",
                          .host = asked.has_value() ? asked->host.name : "",
                          .destination = meant};
      if (!asked.has_value()) refusal.detail = asked.error().message();
      self->record(refusal);
      // Who was told why is to read it.
      const bool told = !asked.has_value() && asked.error().code() == Code::kInvalidArgument;
      client->close(told ? io::Stream::Close::kPlain : io::Stream::Close::kReset);
      co_return;
    }
    destination = std::move(*found);
    destination.text = meant;
  }
  Judged judged;
  judged.host = destination.host;
  judged.decision = self->options.policy->raw_connection(destination.host, destination.port);
  if (judged.decision.allowed) {
    judged.raw = true;
    co_return co_await connect_through(self, *client, destination, std::move(judged));
  }
  if (asks && guard_off(Guard::kTunnelBound)) {
    // What a proxy does that judges what it was asked for alone.
    judged.decision =
        self->options.policy->connection(destination.host, destination.port, ConnectionKind::kTls);
    judged.raw = true;
    if (judged.decision.allowed)
      co_return co_await connect_through(self, *client, destination, std::move(judged));
    judged.raw = false;
  }
  judged.decision =
      self->options.policy->connection(destination.host, destination.port, ConnectionKind::kOther);
  const auto first = co_await look(*client, judged.decision.allowed);
  if (!first.has_value()) {
    self->record({.reason = "no_first_bytes",
                  .host = destination.host.name,
                  .port = destination.port,
                  .destination = meant,
                  .detail = first.error().message()});
    client->close(io::Stream::Close::kReset);
    co_return;
  }
  if (*first == FirstBytes::kHttp1) {
    serve_http(self, std::move(client), std::move(destination));
    co_return;
  }
  if (*first == FirstBytes::kTls) {
    const auto reader = co_await read_hello(*client);
    if (!reader.has_value()) {
      judged.reason = "bad_hello";
      judged.detail = reader.error().message();
      co_return co_await refuse(*self, *client, destination, judged);
    }
    judged.decision = NetworkDecision();
    judge_hello(*self, destination, *reader, judged);
  }
  if (!judged.decision.allowed || !judged.reason.empty())
    co_return co_await refuse(*self, *client, destination, judged);
  if (judged.decision.inspect && (destination.pin || !guard_off(Guard::kInspectLiteral))) {
    Inspected what{.host = std::move(judged.host),
                   .protocols = std::move(judged.protocols),
                   .decision = std::move(judged.decision)};
    co_return co_await inspect(self, std::move(client), std::move(destination), std::move(what));
  }
  co_await connect_through(self, *client, destination, std::move(judged));
}

}  // namespace caisson::egress
