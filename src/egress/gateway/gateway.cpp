#include "egress/gateway/gateway.h"

#include <algorithm>
#include <utility>

#include "base/guards.h"
#include "egress/gateway/state.h"
#include "egress/secrets/placeholder.h"
#include "io/address.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

using io::Async;
using State = Gateway::State;

constexpr Rate kRecordRate{.per_second = 200, .burst = 2000};
// Of the bodies that are looked at before they go on (secret_passage.h), of all requests together.
constexpr std::size_t kMostHeldBodies = 64u << 20;

http::Limits http_limits() {
  http::Limits limits;
  limits.idle_time = std::chrono::seconds(60);
  limits.head_bytes = 64 * 1024;
  limits.headers = 200;
  limits.held_bytes = kMostHeldBodies;
  limits.request_ids = false;
  return limits;
}

bool is_open(const policy::SecretRule& rule) {
  return rule.inject.has_value() && !rule.inject->scrub;
}

bool same_value(const SharedSecret& a, const SharedSecret& b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->bytes() == b->bytes();
}

// The second ones, with what answers may still have of the first; of those that are no more the
// placeholders stay known.
std::vector<SecretEntry> followed_by(const std::vector<SecretEntry>& before,
                                     std::vector<SecretEntry> after) {
  for (const SecretEntry& old : before) {
    const auto now = std::ranges::find(after, old.rule.name,
                                       [](const SecretEntry& entry) { return entry.rule.name; });
    // A connection begins with it or does not; nothing of it comes back.
    if (policy::is_proxy_password(old.rule)) continue;
    if (now == after.end()) {
      // Of one that was set as a header nobody has a placeholder.
      if (old.rule.inject || after.size() >= policy::kMaxSecrets) continue;
      after.push_back(old);
      after.back().rule.env.clear();  // another may have it now
      continue;
    }
    // What answers were allowed to have is not taken out of them.
    if (is_open(old.rule) || is_open(now->rule)) continue;
    now->old_values = old.old_values;
    const bool changed = old.value && (!now->value || old.value->bytes() != now->value->bytes());
    if (changed) now->old_values.push_back(old.value);
    if (now->old_values.size() > kMostOldValues) now->old_values.erase(now->old_values.begin());
  }
  return after;
}

}  // namespace

Gateway::State::State(io::Loop& on, GatewayOptions given)
    : loop(on),
      options(std::move(given)),
      meter(options.policy->values().limits),
      // Every connection has a handler of its own.
      http(on, http_limits(), nullptr),
      services(on),
      ending(on),
      one_ended(on),
      record_rate(kRecordRate, io::Clock::now()) {}

Result<std::unique_ptr<Gateway>> Gateway::start(io::Loop& loop, GatewaySockets sockets,
                                                GatewayOptions options) {
  auto state = std::make_shared<State>(loop, std::move(options));
  state->compile_secrets();
  TRY_ASSIGN(state->names, NameTable::create(NameTableLimits::defaults()));
  TRY_ASSIGN(state->tcp, io::adopt_listener(loop, std::move(sockets.tcp)));
  TRY_ASSIGN(state->dns_tcp, io::adopt_listener(loop, std::move(sockets.dns_tcp)));
  TRY_ASSIGN(state->dns_udp, io::DatagramSocket::adopt(loop, std::move(sockets.dns_udp)));
  loop.spawn(State::accept_all(state));
  loop.spawn(State::answer_datagrams(state));
  loop.spawn(State::accept_queries(state));
  return std::make_unique<Gateway>(std::move(state));
}

Gateway::Gateway(std::shared_ptr<State> state) : state_(std::move(state)) {}

Gateway::~Gateway() {
  end();
}

void Gateway::end() {
  state_->end();
}

io::Async<void> Gateway::wait_ended(io::Clock::time_point until) {
  State& state = *state_;
  while (state.active > 0) {
    const bool in_time = co_await state.one_ended.wait_until(until);
    if (!in_time) co_return;
  }
}

void Gateway::State::end() {
  if (ended) return;
  ended = true;
  tcp->close();
  dns_tcp->close();
  dns_udp->close();
  meter.reset_all();
  ending.notify();
  count_unwritten();
}

Async<void> Gateway::State::wait_end(State& state) {
  if (!state.ended) co_await state.ending.wait();
}

GatewayCounts Gateway::counts() const {
  return {.bytes_up = state_->meter.bytes_up(), .bytes_down = state_->meter.bytes_down()};
}

std::uint64_t Gateway::revision() const {
  return state_->revision;
}

Status Gateway::update(std::shared_ptr<const policy::CompiledNetwork> policy) {
  return change(std::move(policy), state_->options.secrets);
}

Status Gateway::update(std::shared_ptr<const policy::CompiledNetwork> policy,
                       std::vector<SecretEntry> secrets) {
  TRY(check_same_rules(policy->values(), secrets));
  return change(std::move(policy), followed_by(state_->options.secrets, std::move(secrets)));
}

Status Gateway::change(std::shared_ptr<const policy::CompiledNetwork> policy,
                       std::vector<SecretEntry> secrets) {
  State& state = *state_;
  TRY(check_same_rules(policy->values(), secrets));
  TRY(SecretRules::create_fitting(secrets));
  if (policy::inspects(policy->values()) && state.options.authority == nullptr)
    return fail(Error::invalid(
        "network: this sandbox was made with a policy that inspects no TLS, so that it trusts no "
        "certificate of its gateway; allowed are rules with tls: splice or plaintext"));
  const auto proxy_before = state.options.policy->values().upstream_proxy;
  const SharedSecret password_before = state.proxy_password();
  state.options.policy = std::move(policy);
  state.options.secrets = std::move(secrets);
  state.compile_secrets();
  state.meter.set_limits(state.options.policy->values().limits);
  ++state.revision;
  state.sessions->forget();
  state.kept.forget();
  state.record({.kind = AuditKind::kPolicyUpdate, .allowed = true, .reason = "update"});
  const bool other_proxy = proxy_before != state.options.policy->values().upstream_proxy ||
                           !same_value(password_before, state.proxy_password());
  for (const State::Open& open : state.open) {
    // By another proxy, or as somebody else.
    if (other_proxy || !open.still_allowed(*state.options.policy))
      open.stream->end_for("policy_update");
  }
  return {};
}

void Gateway::set_value(std::string_view secret, SharedSecret value,
                        std::optional<WallTime> expires) {
  State& state = *state_;
  const auto entry =
      std::ranges::find(state.options.secrets, secret,
                        [](const SecretEntry& one) -> std::string_view { return one.rule.name; });
  if (entry == state.options.secrets.end()) return;
  // One that it may not have is none, and what there is holds to its end.
  if (value && !check_value_of(entry->rule, value->bytes()).has_value()) return;
  replace_value(*entry, std::move(value), expires);
  state.compile_secrets();
}

void Gateway::State::drop_expired_secrets() {
  if (drop_ended_values(options.secrets, std::chrono::system_clock::now())) compile_secrets();
}

Status check_same_rules(const policy::NetworkPolicy& policy, std::span<const SecretEntry> secrets) {
  for (const policy::SecretRule& rule : policy::rules_with_values(policy)) {
    const auto same = [&](const SecretEntry& entry) { return entry.rule == rule; };
    if (std::ranges::any_of(secrets, same)) continue;
    return fail(Error::invalid(
        policy::key_of(rule) +
        ": found a secret that is not one of the sandbox's, or another rule for it; allowed is the "
        "rule that it was given with, or none"));
  }
  return {};
}

void Gateway::State::compile_secrets() {
  if (options.secrets.empty()) return;
  const std::vector<policy::SecretRule> rules = policy::rules_with_values(options.policy->values());
  for (SecretEntry& entry : options.secrets) {
    const auto rule = std::ranges::find(rules, entry.rule.name, &policy::SecretRule::name);
    entry.revoked = rule == rules.end();
    if (!entry.revoked) entry.rule = *rule;
  }
  auto made = SecretRules::create_fitting(options.secrets);
  if (!made.has_value()) {
    // What does not fit together: no value goes anywhere.
    for (SecretEntry& entry : options.secrets) {
      entry.revoked = true;
      entry.value = nullptr;
      entry.old_values.clear();
    }
    made = SecretRules::create(options.secrets);
  }
  if (made.has_value()) secrets = std::move(*made);
}

SharedSecret Gateway::State::proxy_password() const {
  const auto entry = std::ranges::find_if(options.secrets, [](const SecretEntry& one) {
    return policy::is_proxy_password(one.rule) && !one.revoked;
  });
  if (entry == options.secrets.end()) return nullptr;
  // One that a command made may have ended.
  const bool ended = entry->expires && *entry->expires <= std::chrono::system_clock::now();
  return ended ? nullptr : entry->value;
}

OpenConnection::OpenConnection(std::shared_ptr<State> state, Carrier& stream,
                               std::function<bool(const policy::CompiledNetwork&)> still_allowed)
    : state_(std::move(state)) {
  place_ = state_->open.insert(state_->open.end(),
                               {.stream = &stream, .still_allowed = std::move(still_allowed)});
  // The policy may be another one than when this was decided: names were resolved meanwhile.
  if (!place_->still_allowed(*state_->options.policy)) stream.end_for("policy_update");
}

OpenConnection::~OpenConnection() {
  state_->open.erase(place_);
}

void Gateway::State::record(const AuditRecord& record) {
  if (!options.record) return;
  if (!ended && !record_rate.take(io::Clock::now())) {
    ++unwritten;
    options.record(record, {});
    return;
  }
  count_unwritten();
  options.record(record,
                 audit_line(record, options.sandbox, revision, std::chrono::system_clock::now()));
}

void Gateway::State::count_unwritten() {
  if (unwritten == 0 || !options.record) return;
  const AuditRecord lost{.kind = AuditKind::kLimit,
                         .reason = std::string(kRecordsReason),
                         .detail = std::to_string(unwritten) + " records were not written"};
  unwritten = 0;
  options.record(lost,
                 audit_line(lost, options.sandbox, revision, std::chrono::system_clock::now()));
}

Async<void> Gateway::State::accept_all(std::shared_ptr<State> self) {
  for (;;) {
    auto stream = co_await self->tcp->accept();
    if (!stream.has_value()) co_return;
    self->loop.spawn(serve(self, std::move(*stream)));
  }
}

}  // namespace caisson::egress
