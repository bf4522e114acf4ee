#include "egress/gateway/forward.h"

#include <utility>

#include "base/guards.h"
#include "base/json.h"
#include "egress/gateway/h2_passage.h"
#include "egress/gateway/secret_passage.h"
#include "egress/gateway/upstream.h"
#include "http/codec.h"
#include "http/passage.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;
using policy::NetworkDecision;
using policy::NetworkReason;
using State = Gateway::State;

// What records say of a request of HTTP/2.
constexpr std::string_view kHttp2 = "h2";
constexpr auto kAll = http::PassageOptions::Read::kAll;
// How often a request is sent that a server did nothing for.
constexpr unsigned kMostTries = 2;

bool upgrades_to_websocket(const http::RequestHead& head) {
  return head.method == "GET" && http::has_word(head.headers, "Upgrade", "websocket");
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
  Forward(Client& client, Incoming incoming, Asked asked, NetworkDecision decision,
          AuditRecord& record)
      : client_(client),
        incoming_(incoming),
        exchange_(incoming.exchange),
        asked_(std::move(asked)),
        decision_(std::move(decision)),
        record_(record) {
    take_rules();
  }

  // Whether the sandbox is to end for it.
  bool terminates() const { return terminates_; }

  // Nothing: it went through, or broke off midway.
  Async<std::optional<Refused>> run() {
    http::PassageOptions options;
    const Meant& destination = client_.destination;
    options.head = upstream_head(exchange_.request(), asked_, destination.port, decision_);
    shares_ = may_share(options.head);
    if (shares_) options.head.headers.remove("Connection");
    std::optional<Refused> kept_back;
    auto make_ready = [&]() -> Async<void> { kept_back = co_await prepare(options); };
    // The body of a connection's only request has a time of its own.
    if (incoming_.stream != nullptr)
      co_await io::race(make_ready(), State::watch(*client_.state, incoming_.carrier));
    else
      co_await make_ready();
    if (gone()) {
      note_gone();
      co_return std::nullopt;
    }
    if (kept_back.has_value()) co_return kept_back;
    watch_bodies(options);
    // A connection that many requests share may be at its end just then.
    for (unsigned tries = 1;; ++tries) {
      auto upstream = co_await connect();
      if (gone()) {
        note_gone();
        co_return std::nullopt;
      }
      if (!upstream.has_value()) co_return std::move(upstream).error();
      record_.upstream = upstream->address;
      record_.bytes_up = http::encode(options.head).value_or("").size();
      Outcome outcome = co_await pass(*upstream, options);
      if (outcome.may_repeat && tries < kMostTries && !gone()) continue;
      co_return conclude(outcome);
    }
  }

 private:
  struct Outcome {
    Status status = fail(Error(Code::kDeadlineExceeded, "nothing moved for too long"));
    int answer = 0;
    bool bad_body = false;
    bool may_repeat = false;
  };

  Route route() const {
    return {.to = asked_.by_address ? client_.destination.host : asked_.host,
            .port = client_.destination.port,
            .name = asked_.host,
            .tls = asked_.tls,
            .decision = decision_};
  }

  // Of HTTP/2 it shows at once when the client wants no answer any more.
  bool gone() const { return incoming_.stream != nullptr && exchange_.gone(); }
  Async<void> wait_gone() {
    if (incoming_.stream != nullptr)
      co_await exchange_.wait_gone();
    else
      co_await State::wait_end(*client_.state);
  }

  Async<Connected> connect() {
    Connected made = std::unexpected(Refused{.status = 502, .reason = "unreachable"});
    auto make = [&]() -> Async<void> {
      auto kept = shares_ ? std::exchange(client_.kept, nullptr) : nullptr;
      std::optional<Upstream> again;
      if (kept != nullptr) again = take_kept(*client_.state, route(), std::move(kept));
      if (again)
        made = std::move(*again);
      else if (client_.upstreams != nullptr)
        made = co_await Upstreams::connect(client_.upstreams, route());
      else
        made = co_await connect_upstream(*client_.state, route(), io::Alpn::kHttp1);
    };
    co_await io::race(make(), wait_gone());
    co_return made;
  }

  Async<Outcome> pass(Upstream& upstream, const http::PassageOptions& options) {
    const OpenConnection open(client_.state, incoming_.carrier, [this](const auto& policy) {
      return still_allows(*client_.state, policy, client_.destination, exchange_.request(), asked_,
                          body_, record_.upstream);
    });
    Outcome outcome;
    if (!incoming_.carrier.ended_by().empty()) {
      outcome.status = fail(Error(Code::kCancelled, "the policy has changed"));
      co_return outcome;
    }
    auto run = [&]() -> Async<void> {
      if (upstream.session != nullptr)
        co_await pass_to_http2(*upstream.session, options, outcome);
      else
        co_await pass_to_http1(upstream, options, outcome);
    };
    auto watch = [&]() -> Async<void> {
      co_await io::race(State::watch(*client_.state, incoming_.carrier), wait_gone());
    };
    co_await io::race(run(), watch());
    co_return outcome;
  }

  // Whether a request may have a connection that had one before: where it may be sent again if that
  // was at its end just then.
  bool may_share(const http::RequestHead& head) const {
    const http::RequestHead& asked = exchange_.request();
    const bool safe = head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS";
    const bool another_follows =
        asked.minor_version > 0 && !http::has_word(asked.headers, "Connection", "close");
    return safe && another_follows && client_.upstreams == nullptr && !http::wants_upgrade(asked) &&
           exchange_.body_length() == 0u && !head.headers.has("Transfer-Encoding");
  }

  Async<void> pass_to_http1(Upstream& upstream, http::PassageOptions options, Outcome& outcome) {
    http::Passage passage(exchange_, *upstream.stream, std::move(options));
    const Told told(passage, outcome);
    outcome.status = co_await passage.run();
    if (outcome.status.has_value()) {
      if (shares_ && passage.upstream_is_free())
        client_.kept = keep_upstream(*client_.state, route(), std::move(upstream));
      co_return;
    }
    outcome.may_repeat = upstream.was_kept && !passage.heard() &&
                         outcome.status.error().code() == Code::kUnavailable;
  }

  Async<void> pass_to_http2(H2Session& upstream, http::PassageOptions options, Outcome& outcome) {
    H2PassageOptions all{.message = std::move(options)};
    // What both sides remember of a connection's headers has no values of secrets.
    if (!record_.secrets.empty()) all.remember = H2Session::Remember::kNever;
    all.on_answer_trailers = [this](http::Headers& trailers) {
      trailers.remove("Alt-Svc");
      return secrets_ ? secrets_->answer_trailers(trailers) : Status();
    };
    all.on_trailers = [this](http::Headers& trailers) {
      return secrets_ ? secrets_->check_trailers(trailers) : Status();
    };
    H2Passage passage(*incoming_.stream, upstream, std::move(all));
    const Told told(passage, outcome);
    outcome.status = co_await passage.run();
    outcome.may_repeat = passage.may_repeat();
  }

  // What came of a passage, also where it was cancelled.
  template <typename Passage>
  class Told {
   public:
    Told(const Passage& passage, Outcome& outcome) : passage_(passage), outcome_(outcome) {}
    ~Told() {
      outcome_.answer = passage_.answer_status();
      outcome_.bad_body = passage_.body_fault().has_value();
    }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

   private:
    const Passage& passage_;
    Outcome& outcome_;
  };

  std::optional<Refused> conclude(const Outcome& outcome) {
    record_.bytes_up += body_;
    record_.status = outcome.answer;
    if (secrets_) record_.scrubbed = secrets_->scrubbed();
    if (outcome.status.has_value()) return std::nullopt;
    record_.detail = outcome.status.error().message();
    if (secrets_ && secrets_->refusal()) note(*secrets_->refusal());
    if (gone()) {
      note_gone();
      return std::nullopt;
    }
    if (exchange_.begun()) {
      exchange_.abort();
      return std::nullopt;
    }
    if (secrets_ && secrets_->refusal()) return refused_by(*secrets_->refusal());
    if (too_long_) return Refused{.status = 413, .reason = "body_size"};
    if (outcome.bad_body)
      return Refused{.status = 400, .reason = "bad_body", .detail = record_.detail};
    const bool late = outcome.status.error().code() == Code::kDeadlineExceeded;
    return Refused{.status = late ? 504 : 502,
                   .reason = late ? "timeout" : "upstream",
                   .detail = record_.detail};
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
      const bool all = options.early_read == kAll;
      refusal = admit_anew(head);
      if (!refusal)
        refusal = secrets_->collected(std::move(bytes),
                                      all ? SecretPassage::Read::kAll : SecretPassage::Read::kPart);
    }
    if (!refusal && incoming_.stream != nullptr && options.early_read == kAll) {
      // What stands behind the body has come, too.
      const auto trailers = incoming_.stream->trailers();
      if (!trailers.has_value())
        co_return Refused{
            .status = 400, .reason = "bad_body", .detail = trailers.error().message()};
      if (!secrets_->check_trailers(*trailers).has_value()) refusal = secrets_->refusal();
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

  void take_rules() {
    rules_ = client_.state->secrets;
    if (rules_ != nullptr)
      secrets_.emplace(rules_, asked_.host,
                       asked_.tls ? Channel::kVerifiedTls : Channel::kPlaintext);
  }

  // A body may come for as long as its sender likes: what holds when it is there, decides.
  std::optional<SecretRefusal> admit_anew(const http::RequestHead& head) {
    client_.state->drop_expired_secrets();
    if (client_.state->secrets == rules_) return std::nullopt;
    take_rules();
    return secrets_->admit(head, http::wants_upgrade(head));
  }

  // The body, or as much of it as is looked at before anything is sent.
  Async<std::optional<Refused>> collect(std::string& bytes, http::PassageOptions& options) {
    while (bytes.size() <= kMostWholeBody) {
      auto piece = co_await exchange_.read_some(kMostWholeBody + 1 - bytes.size());
      if (!piece.has_value())
        co_return Refused{.status = 400, .reason = "bad_body", .detail = piece.error().message()};
      if (piece->empty()) {
        options.early_read = kAll;
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

  void note_gone() {
    const std::string_view by = incoming_.carrier.ended_by();
    record_.detail = by.empty() ? "the client broke off" : "ended by " + std::string(by);
  }

  void note(const SecretRefusal& refusal) {
    record_.kind = AuditKind::kSecretViolation;
    record_.reason = refusal.reason;
    record_.detail = refusal.sentence;
    terminates_ = refusal.terminates;
    for (const SecretUse& use : refusal.uses) record_.secrets.push_back({use.secret, use.where, 0});
  }

  static Refused refused_by(const SecretRefusal& refusal) {
    return {.status = refusal.status, .reason = refusal.reason, .detail = refusal.sentence};
  }

  Status count_body(std::size_t bytes) {
    if (!decision_.most_body || body_ + bytes <= *decision_.most_body) {
      body_ += bytes;
      return {};
    }
    too_long_ = true;
    return fail(Error(Code::kResourceExhausted, "the body is longer than the policy allows"));
  }

  Client& client_;
  const Incoming incoming_;
  http::Exchange& exchange_;
  Asked asked_;
  const NetworkDecision decision_;
  AuditRecord& record_;
  std::shared_ptr<const SecretRules> rules_;  // that secrets_ has
  std::optional<SecretPassage> secrets_;      // where the sandbox has any
  std::uint64_t body_ = 0;
  bool too_long_ = false;
  bool terminates_ = false;
  bool shares_ = false;
};

// The sandbox ends for what the record says.
Async<void> terminate(const Client& client, http::Exchange& exchange, AuditRecord record) {
  State& state = *client.state;
  const std::string why = record.detail + " (on_violation: terminate)";
  record.detail = why;
  state.record(record);
  state.options.on_terminate(why);
  co_await State::wait_end(state);
  exchange.abort();
}

}  // namespace

Async<void> handle_request(std::shared_ptr<Client> client, Incoming incoming) {
  http::Exchange& exchange = incoming.exchange;
  State& state = *client->state;
  const Meant& destination = client->destination;
  const io::Clock::time_point began = io::Clock::now();
  const Active active(state);
  const std::uint64_t down = incoming.carrier.bytes_down();
  const http::RequestHead& head = exchange.request();
  AuditRecord record{.kind = AuditKind::kHttp, .port = destination.port, .method = head.method};
  record.host = client->served ? client->served->name : destination.host.name;
  record.destination = destination.text;
  if (client->tls()) record.tls = kInspected;
  if (incoming.stream != nullptr) record.proto = kHttp2;

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
    state.drop_expired_secrets();
    Forward forward(*client, incoming, std::move(*asked), decision, record);
    refused = co_await forward.run();
    if (forward.terminates() && state.options.on_terminate)
      co_return co_await terminate(*client, exchange, std::move(record));
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
  record.bytes_down = incoming.carrier.bytes_down() - down;
  record.time = std::chrono::duration_cast<std::chrono::milliseconds>(io::Clock::now() - began);
  state.record(record);
}

}  // namespace caisson::egress
