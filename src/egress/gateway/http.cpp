// HTTP/1.1 of a sandbox, without TLS or in TLS that was opened: each request is judged by itself,
// and goes on as it was judged.
#include <utility>

#include "base/guards.h"
#include "base/json.h"
#include "egress/gateway/dial.h"
#include "egress/gateway/secret_passage.h"
#include "egress/gateway/state.h"
#include "http/passage.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;
using policy::Host;
using policy::NetworkDecision;
using policy::NetworkReason;
using State = Gateway::State;

constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

// What the handler of one connection needs; held by the handler.
struct Client {
  std::shared_ptr<State> state;
  MeteredStream* stream;  // the connection's, which runs the handler
  Meant destination;
  // Of TLS that was opened: whose server we are. nullopt: there is no TLS.
  std::optional<Host> served = std::nullopt;
  std::unique_ptr<OpenConnection> open = nullptr;  // of what is below TLS
  bool judged = false;                             // one request of it

  bool tls() const { return served.has_value(); }
  std::uint16_t default_port() const { return tls() ? kHttpsPort : kHttpPort; }
};

// A request on its way from what came to what is sent.
struct Asked {
  Host host;
  policy::Target target;
  bool tls = false;
  bool by_address = false;  // a connection to a bare address, allowed as such
};

struct Refused {
  int status = 403;
  std::string reason;
  std::string rule;
  std::string detail;
};

// The part of an absolute target that a request for an origin has; the rest must be `authority`.
std::expected<std::string, Refused> origin_form(const Client& client, const std::string& target,
                                                const policy::Authority& authority) {
  if (target.starts_with('/') || target == "*") return target;
  const std::string_view scheme = client.tls() ? "https://" : "http://";
  if (!target.starts_with(scheme))
    return std::unexpected(Refused{.status = 400, .reason = "bad_target"});
  const std::size_t end = target.find_first_of("/?", scheme.size());
  const auto named = policy::canonical_authority(
      std::string_view(target).substr(scheme.size(), end - scheme.size()));
  const std::uint16_t port = client.default_port();
  const bool same = named.has_value() && named->host == authority.host &&
                    named->port.value_or(port) == authority.port.value_or(port);
  if (!same && !guard_off(Guard::kAbsoluteForm))
    return std::unexpected(Refused{.status = 421, .reason = "host_mismatch"});
  const std::string rest = end == std::string::npos ? "" : target.substr(end);
  return rest.starts_with('/') ? rest : "/" + rest;
}

std::expected<Asked, Refused> read_request(const Client& client, const http::RequestHead& head) {
  if (head.method == "CONNECT" || head.method == "TRACE" || head.method == "TRACK")
    return std::unexpected(Refused{.status = 405, .reason = "method"});
  const auto host_header = head.headers.get("Host");
  if (!host_header) return std::unexpected(Refused{.status = 400, .reason = "no_host"});
  const auto authority = policy::canonical_authority(*host_header);
  if (!authority.has_value()) {
    return std::unexpected(
        Refused{.status = 400, .reason = "bad_name", .detail = authority.error().message()});
  }
  const Meant& destination = client.destination;
  const bool other_port = authority->port.value_or(client.default_port()) != destination.port;
  const bool other_name = (destination.pin && authority->host != destination.host) ||
                          (client.served && authority->host != *client.served);
  if ((other_port || other_name) && !guard_off(Guard::kHostBound))
    return std::unexpected(Refused{.status = 421, .reason = "host_mismatch"});
  auto origin = origin_form(client, head.target, *authority);
  if (!origin.has_value()) return std::unexpected(std::move(origin).error());
  auto target = policy::canonical_target(*origin);
  if (!target.has_value()) {
    return std::unexpected(
        Refused{.status = 400, .reason = "bad_target", .detail = target.error().message()});
  }
  return Asked{.host = authority->host, .target = std::move(*target), .tls = client.tls()};
}

policy::CompiledNetwork::Request policy_request(const http::RequestHead& head, const Asked& asked,
                                                std::uint64_t body) {
  return {.method = head.method,
          .path = asked.target.path,
          .websocket = http::wants_upgrade(head),
          .tls = asked.tls,
          .body = body};
}

// By the name first; a connection to a bare address may be allowed as such. Which of the two it is
// stays so for the whole request.
NetworkDecision judge(const policy::CompiledNetwork& policy, const Meant& destination,
                      const http::RequestHead& head, Asked& asked, std::uint64_t body) {
  const auto request = policy_request(head, asked, body);
  NetworkDecision decision = policy.request(asked.host, destination.port, request);
  if (decision.allowed || destination.pin || decision.reason == NetworkReason::kDenyRule)
    return decision;
  NetworkDecision by_address = policy.request(destination.host, destination.port, request);
  if (!by_address.allowed) return decision;
  asked.by_address = true;
  return by_address;
}

// What a new policy says of a request under way.
bool allows(const State& state, const policy::CompiledNetwork& policy, const Meant& destination,
            const http::RequestHead& head, const Asked& asked, std::uint64_t body,
            std::string_view upstream) {
  const Host& host = asked.by_address ? destination.host : asked.host;
  const NetworkDecision decision =
      policy.request(host, destination.port, policy_request(head, asked, body));
  return (decision.allowed || guard_off(Guard::kEachRequest)) &&
         state.may_stand(policy, host, destination.port, upstream, decision);
}

bool upgrades_to_websocket(const http::RequestHead& head) {
  return head.method == "GET" && http::has_word(head.headers, "Upgrade", "websocket");
}

http::RequestHead upstream_head(const http::RequestHead& head, const Asked& asked,
                                std::uint16_t port, const NetworkDecision& decision) {
  http::RequestHead sent;
  sent.method = head.method;
  sent.target = asked.target.text();
  sent.headers = head.headers;
  http::Headers& headers = sent.headers;
  const bool upgrades = http::wants_upgrade(head);
  const bool chunked = headers.has("Transfer-Encoding");
  http::remove_hop_by_hop(headers);
  headers.remove("Transfer-Encoding").remove("Expect");
  headers.remove("Proxy-Authorization").remove("Proxy-Connection").remove("Max-Forwards");
  // By which a server would take it for another method than the one that was judged.
  if (decision.limits_methods) {
    headers.remove("X-HTTP-Method-Override").remove("X-HTTP-Method").remove("X-Method-Override");
  }
  if (chunked) headers.add("Transfer-Encoding", "chunked");
  headers.add("Connection", upgrades ? "Upgrade" : "close");
  if (upgrades) headers.add("Upgrade", "websocket");
  const std::string host = asked.host.text();
  const std::uint16_t usual = asked.tls ? kHttpsPort : kHttpPort;
  headers.set("Host", port == usual ? host : host + ":" + std::to_string(port));
  return sent;
}

Async<void> answer_refusal(const Client& client, http::Exchange& exchange, const Refused& refused,
                           std::string_view host, std::string_view path) {
  const State& state = *client.state;
  json::Value body = json::Value::object();
  body.set("error", "egress_denied").set("sandbox", state.options.sandbox).set("host", host);
  body.set("port", client.destination.port).set("method", exchange.request().method);
  body.set("path", path);
  body.set("rule", refused.rule.empty() ? json::Value() : json::Value(refused.rule));
  body.set("reason", refused.reason).set("revision", state.revision);
  if (!refused.detail.empty()) body.set("detail", refused.detail);
  http::ResponseHead head{.status = refused.status};
  head.headers.add("Content-Type", "application/json");
  head.headers.add("X-Sandbox-Egress", "denied; reason=" + refused.reason);
  std::string text = json::serialize(body) + "\n";
  co_await exchange.respond(std::move(head), std::move(text));
}

// One request that may go on: connects, passes it and its answer, and says what came of it.
class Forward {
 public:
  Forward(const Client& client, http::Exchange& exchange, Asked asked, NetworkDecision decision,
          AuditRecord& record)
      : client_(client),
        exchange_(exchange),
        asked_(std::move(asked)),
        decision_(std::move(decision)),
        record_(record) {
    const std::shared_ptr<const SecretRules>& rules = client_.state->secrets;
    if (rules != nullptr)
      secrets_.emplace(rules, asked_.host,
                       asked_.tls ? Channel::kVerifiedTls : Channel::kPlaintext);
  }

  // Nothing: it went through, or broke off midway.
  Async<std::optional<Refused>> run() {
    State& state = *client_.state;
    const Meant& destination = client_.destination;
    http::PassageOptions options;
    options.head = upstream_head(exchange_.request(), asked_, destination.port, decision_);
    auto kept_back = co_await prepare(options);
    if (kept_back.has_value()) co_return kept_back;
    const Host& to = asked_.by_address ? destination.host : asked_.host;
    std::optional<DialResult> dialed =
        co_await State::dial_for(state, to, destination.port, asked_.tls, decision_);
    if (!dialed.has_value()) co_return Refused{.status = 502, .reason = "unreachable"};
    if (!dialed->has_value()) co_return dial_refusal(dialed->error());
    Dialed& upstream = **dialed;
    record_.upstream = upstream.address;
    if (asked_.tls) {
      // Nothing of the request has gone there before it is known who answers.
      auto secured = co_await State::secure_for(state, std::move(upstream.stream), asked_.host,
                                                destination.port);
      if (!secured.has_value()) co_return tls_refusal(secured.error());
      upstream.stream = std::move(*secured);
    }
    const OpenConnection open(client_.state, *client_.stream, [this](const auto& policy) {
      return allows(*client_.state, policy, client_.destination, exchange_.request(), asked_, body_,
                    record_.upstream);
    });
    watch_bodies(options);
    record_.bytes_up = http::encode(options.head).value_or("").size();
    http::Passage passage(exchange_, *upstream.stream, std::move(options));
    Status status = fail(Error(Code::kDeadlineExceeded, "nothing moved for too long"));
    co_await io::race(run_passage(passage, status), State::watch(state, *client_.stream));
    record_.bytes_up += body_;
    record_.status = passage.answer_status();
    if (secrets_) record_.scrubbed = secrets_->scrubbed();
    if (status.has_value()) co_return std::nullopt;
    if (secrets_ && secrets_->refusal()) note(*secrets_->refusal());
    record_.detail = status.error().message();
    if (exchange_.begun()) {
      exchange_.abort();
      co_return std::nullopt;
    }
    if (secrets_ && secrets_->refusal()) co_return refused_by(*secrets_->refusal());
    if (too_long_) co_return Refused{.status = 413, .reason = "body_size"};
    if (passage.body_fault().has_value())
      co_return Refused{.status = 400, .reason = "bad_body", .detail = record_.detail};
    const bool late = status.error().code() == Code::kDeadlineExceeded;
    co_return Refused{.status = late ? 504 : 502,
                      .reason = late ? "timeout" : "upstream",
                      .detail = record_.detail};
  }

 private:
  static Refused dial_refusal(const DialFault& fault) {
    Refused refused{.detail = fault.sentence};
    if (fault.denied) {
      refused.reason = policy::to_string(fault.denied->reason);
      refused.rule = fault.denied->rule;
      return refused;
    }
    refused.status = fault.late ? 504 : 502;
    refused.reason = fault.late ? "timeout" : "unreachable";
    return refused;
  }

  // What the sandbox's secrets make of the request, before anything of it is sent.
  Async<std::optional<Refused>> prepare(http::PassageOptions& options) {
    if (!secrets_) co_return std::nullopt;
    const http::RequestHead& head = exchange_.request();
    std::optional<SecretRefusal> refusal = secrets_->admit(head, http::wants_upgrade(head));
    if (!refusal && secrets_->wants_body()) {
      std::string bytes;
      auto fault = co_await collect(bytes, options);
      if (fault.has_value()) co_return fault;
      const bool all = options.early_read == http::PassageOptions::Read::kAll;
      refusal = secrets_->collected(std::move(bytes),
                                    all ? SecretPassage::Read::kAll : SecretPassage::Read::kPart);
    }
    if (!refusal) refusal = secrets_->prepare(options.head);
    if (!refusal) {
      for (const SecretUse& use : secrets_->used())
        record_.secrets.push_back({use.secret, use.where, use.count});
      options.early_body = secrets_->take_body();
      co_return std::nullopt;
    }
    note(*refusal);
    co_return refused_by(*refusal);
  }

  // The body, or as much of it as is looked at before anything is sent.
  Async<std::optional<Refused>> collect(std::string& bytes, http::PassageOptions& options) {
    while (bytes.size() <= kMostWholeBody) {
      auto piece = co_await exchange_.read_some(kMostWholeBody + 1 - bytes.size());
      if (!piece.has_value())
        co_return Refused{.status = 400, .reason = "bad_body", .detail = piece.error().message()};
      if (piece->empty()) {
        options.early_read = http::PassageOptions::Read::kAll;
        break;
      }
      if (!count_body(piece->size()).has_value())
        co_return Refused{.status = 413, .reason = "body_size"};
      const Status held = exchange_.hold(piece->size());
      if (!held.has_value())
        co_return Refused{.status = 503, .reason = "busy", .detail = held.error().message()};
      bytes += *piece;
    }
    co_return std::nullopt;
  }

  // What bodies and the answer's head go through on their way.
  void watch_bodies(http::PassageOptions& options) {
    options.half_closed = http::PassageOptions::HalfClosed::kStays;
    options.on_answer = [this](http::ResponseHead& head) {
      head.headers.remove("Alt-Svc");
      return secrets_ ? secrets_->answer_head(head) : Status();
    };
    options.change_body = [this](std::string piece) -> Result<std::string> {
      TRY(count_body(piece.size()));
      if (!secrets_) return piece;
      return secrets_->check_body(piece);
    };
    if (!secrets_) return;
    options.change_answer_body = [this](std::string piece) { return secrets_->answer_body(piece); };
  }

  void note(const SecretRefusal& refusal) {
    record_.kind = AuditKind::kSecretViolation;
    record_.reason = refusal.reason;
    for (const SecretUse& use : refusal.uses) record_.secrets.push_back({use.secret, use.where, 0});
  }

  static Refused refused_by(const SecretRefusal& refusal) {
    return {.status = refusal.status, .reason = refusal.reason, .detail = refusal.sentence};
  }

  static Refused tls_refusal(const Error& error) {
    if (error.code() == Code::kDeadlineExceeded)
      return {.status = 504, .reason = "timeout", .detail = error.message()};
    const bool untrusted = error.code() == Code::kUnauthenticated;
    return {.status = 502,
            .reason = untrusted ? "upstream_certificate" : "upstream_tls",
            .detail = error.message()};
  }

  static Async<void> run_passage(http::Passage& passage, Status& status) {
    status = co_await passage.run();
  }

  Status count_body(std::size_t bytes) {
    if (!decision_.most_body || body_ + bytes <= *decision_.most_body) {
      body_ += bytes;
      return {};
    }
    too_long_ = true;
    return fail(Error(Code::kResourceExhausted, "the body is longer than the policy allows"));
  }

  const Client& client_;
  http::Exchange& exchange_;
  Asked asked_;
  const NetworkDecision decision_;
  AuditRecord& record_;
  std::optional<SecretPassage> secrets_;  // where the sandbox has any
  std::uint64_t body_ = 0;
  bool too_long_ = false;
};

Async<void> handle(std::shared_ptr<Client> client, http::Exchange& exchange) {
  State& state = *client->state;
  const Meant& destination = client->destination;
  const io::Clock::time_point began = io::Clock::now();
  const Active active(state);
  const std::uint64_t down = client->stream->bytes_down();
  const http::RequestHead& head = exchange.request();
  AuditRecord record{.kind = AuditKind::kHttp, .port = destination.port, .method = head.method};
  record.host = client->served ? client->served->name : destination.host.name;
  record.destination = destination.text;
  if (client->tls()) record.tls = kInspected;

  std::optional<Refused> refused;
  NetworkDecision decision;
  auto asked = read_request(*client, head);
  if (asked.has_value()) {
    record.host = asked->host.name;
    record.path = asked->target.path;
    record.query = asked->target.query;
    decision =
        judge(*state.options.policy, destination, head, *asked, exchange.body_length().value_or(0));
    if (guard_off(Guard::kEachRequest) && std::exchange(client->judged, true))
      decision.allowed = true;
    record.reason = policy::to_string(decision.reason);
    record.rule = decision.rule;
    if (!decision.allowed) {
      refused = Refused{.status = decision.reason == NetworkReason::kBodySize ? 413 : 403,
                        .reason = record.reason,
                        .rule = decision.rule};
    } else if (http::wants_upgrade(head) && !upgrades_to_websocket(head) &&
               !guard_off(Guard::kUpgradeTokens)) {
      refused = Refused{.status = 403, .reason = "upgrade"};
    }
  } else {
    refused = std::move(asked).error();
  }
  if (!refused) {
    Forward forward(*client, exchange, std::move(*asked), decision, record);
    refused = co_await forward.run();
  }
  if (refused) {
    record.status = refused->status;
    record.reason = refused->reason;
    record.rule = refused->rule;
    record.detail = refused->detail;
    co_await answer_refusal(*client, exchange, *refused, record.host, record.path);
  }
  // An answer that was broken off did not go through, though it had begun.
  record.allowed = !refused && record.kind != AuditKind::kSecretViolation;
  record.bytes_down = client->stream->bytes_down() - down;
  record.time = std::chrono::duration_cast<std::chrono::milliseconds>(io::Clock::now() - began);
  state.record(record);
}

}  // namespace

void Gateway::State::serve_http(std::shared_ptr<State> self, std::unique_ptr<MeteredStream> client,
                                Meant destination) {
  auto held = std::make_shared<Client>(
      Client{.state = self, .stream = client.get(), .destination = std::move(destination)});
  auto handler = [held = std::move(held)](http::Exchange& exchange) {
    return handle(held, exchange);
  };
  self->http.take(std::move(client), http::Server::Transport::kPlain, std::move(handler));
}

void Gateway::State::serve_https(std::shared_ptr<State> self, std::unique_ptr<io::Stream> client,
                                 MeteredStream& wire, Meant destination, policy::Host host) {
  auto held = std::make_shared<Client>(Client{.state = self,
                                              .stream = &wire,
                                              .destination = std::move(destination),
                                              .served = std::move(host)});
  // For as long as it is open it is one that is to be opened.
  auto is_to_be_opened = [&client = *held](const policy::CompiledNetwork& policy) {
    const std::uint16_t port = client.destination.port;
    const auto is_inspected = [&](const Host& to) {
      const NetworkDecision decision = policy.connection(to, port, policy::ConnectionKind::kTls);
      return decision.allowed && decision.inspect;
    };
    return is_inspected(*client.served) ||
           (!client.destination.pin && is_inspected(client.destination.host));
  };
  held->open = std::make_unique<OpenConnection>(self, wire, std::move(is_to_be_opened));
  auto handler = [held = std::move(held)](http::Exchange& exchange) {
    return handle(held, exchange);
  };
  self->http.take(std::move(client), http::Server::Transport::kTls, std::move(handler));
}

}  // namespace caisson::egress
