#include "egress/gateway/upstream.h"

#include <utility>

#include "egress/gateway/dial.h"

namespace caisson::egress {
namespace {

using io::Async;
using State = Gateway::State;

constexpr std::string_view kHttp2 = "h2";

Refused dial_refusal(const DialFault& fault) {
  Refused refused{.detail = fault.sentence};
  if (fault.denied) {
    refused.reason = policy::to_string(fault.denied->reason);
    refused.rule = fault.denied->rule;
    return refused;
  }
  refused.status = fault.late ? 504 : 502;
  refused.reason = reason_of(fault);
  return refused;
}

Refused tls_refusal(const Error& error) {
  if (error.code() == Code::kDeadlineExceeded)
    return {.status = 504, .reason = "timeout", .detail = error.message()};
  const bool untrusted = error.code() == Code::kUnauthenticated;
  return {.status = 502,
          .reason = untrusted ? "upstream_certificate" : "upstream_tls",
          .detail = error.message()};
}

}  // namespace

Async<Connected> connect_upstream(State& state, Route route, io::Alpn alpn) {
  Upstream upstream{.place = UpstreamPlace::take(state.meter)};
  if (upstream.place == nullptr) {
    Refused full{.status = 503, .reason = "connections"};
    full.detail = "the requests under way need as many connections as limits.connections allows";
    co_return std::unexpected(std::move(full));
  }
  std::optional<DialResult> dialed =
      co_await State::dial_for(state, route.to, route.port, route.tls, route.decision);
  if (!dialed.has_value())
    co_return std::unexpected(Refused{.status = 502, .reason = "unreachable"});
  if (!dialed->has_value()) co_return std::unexpected(dial_refusal(dialed->error()));
  upstream.address = (*dialed)->address;
  upstream.stream = std::move((*dialed)->stream);
  if (!route.tls) co_return upstream;
  // Nothing of the request has gone there before it is known who answers.
  auto secured =
      co_await State::secure_for(state, std::move(upstream.stream), route.name, route.port, alpn);
  if (!secured.has_value()) co_return std::unexpected(tls_refusal(secured.error()));
  if ((*secured)->protocol() != kHttp2) {
    upstream.stream = std::move(*secured);
    co_return upstream;
  }
  upstream.session = std::make_shared<H2Session>(state.loop, std::move(*secured),
                                                 H2Session::Side::kClient, state.h2_budget);
  state.loop.spawn(H2Session::run(upstream.session, nullptr, nullptr));
  co_return upstream;
}

std::shared_ptr<KeptUpstream> keep_upstream(State& state, const Route& route, Upstream used) {
  used.stream->set_timeout({});
  auto kept = std::make_shared<KeptUpstream>(KeptUpstream{.to = route.to,
                                                          .name = route.name,
                                                          .port = route.port,
                                                          .tls = route.tls,
                                                          .address = std::move(used.address),
                                                          .revision = state.revision,
                                                          .since = io::Clock::now(),
                                                          .stream = std::move(used.stream)});
  state.kept.add(state.loop, kept);
  return kept;
}

std::optional<Upstream> take_kept(State& state, const Route& route,
                                  std::shared_ptr<KeptUpstream> kept) {
  const bool is_for_it = kept->to == route.to && kept->name == route.name &&
                         kept->port == route.port && kept->tls == route.tls;
  if (kept->stream == nullptr || !is_for_it || kept->revision != state.revision ||
      io::Clock::now() - kept->since > kMostKept || !kept->stream->quiet() ||
      !state.may_stand(*state.options.policy, route.to, route.port, kept->address, route.decision))
    return std::nullopt;
  Upstream upstream{.address = std::move(kept->address),
                    .place = UpstreamPlace::take(state.meter),
                    .stream = std::move(kept->stream),
                    .session = nullptr,
                    .was_kept = true};
  if (upstream.place == nullptr) return std::nullopt;
  return upstream;
}

Upstreams::Upstreams(std::shared_ptr<State> state)
    : state_(std::move(state)), made_(state_->loop) {}

Upstreams::~Upstreams() {
  for (const Shared& shared : shared_) shared.session->close();
}

std::optional<Upstream> Upstreams::find(const Route& route) {
  std::erase_if(shared_, [](const Shared& shared) { return shared.session->ended(); });
  for (const Shared& shared : shared_) {
    if (shared.to != route.to || shared.name != route.name || !shared.session->may_open()) continue;
    if (!state_->may_stand(*state_->options.policy, route.to, route.port, shared.address,
                           route.decision))
      continue;
    return Upstream{.address = shared.address, .session = shared.session};
  }
  return std::nullopt;
}

// The first that is being made.
class Upstreams::Making {
 public:
  explicit Making(Upstreams& upstreams)
      : upstreams_(upstreams), first_(!std::exchange(upstreams.making_, true)) {}
  ~Making() {
    if (!first_) return;
    upstreams_.making_ = false;
    upstreams_.made_.notify();
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  Upstreams& upstreams_;
  const bool first_;
};

Async<Connected> Upstreams::connect(std::shared_ptr<Upstreams> self, Route route) {
  auto found = self->find(route);
  if (!found && self->making_ && !self->one_each_) {
    co_await self->made_.wait();
    found = self->find(route);
  }
  if (found) co_return std::move(*found);
  const Making making(*self);
  const policy::Host to = route.to, name = route.name;
  Connected made = co_await connect_upstream(*self->state_, std::move(route), io::Alpn::kHttp2);
  if (!made.has_value()) co_return made;
  self->one_each_ = made->session == nullptr;
  if (made->session != nullptr) {
    self->shared_.push_back({.to = to,
                             .name = name,
                             .address = made->address,
                             .place = std::move(made->place),
                             .session = made->session});
  }
  co_return made;
}

}  // namespace caisson::egress
