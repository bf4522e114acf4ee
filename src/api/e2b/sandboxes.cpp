#include "api/e2b/sandboxes.h"

#include <algorithm>
#include <charconv>

#include "api/body.h"
#include "api/create_sandbox.h"
#include "api/e2b/network.h"
#include "api/e2b/new_sandbox.h"
#include "api/e2b/view.h"
#include "api/sandbox_fields.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

using std::chrono::seconds;

constexpr std::int64_t kMostRefresh = 3600;
// What a refresh or a resume gives where it does not say how much.
constexpr std::int64_t kShortLife = 15;
constexpr std::int64_t kLongLife = 300;
constexpr std::size_t kMostIds = 100;

// A time to live of the body, zero and less being "at once".
Result<std::optional<seconds>> life(const Object& body, std::string_view key, std::int64_t least,
                                    std::int64_t most) {
  TRY_ASSIGN(const auto number, body.integer(key, least, most));
  if (!number.has_value()) return std::nullopt;
  return seconds(std::max<std::int64_t>(*number, 0));
}

io::Async<Result<Answer>> create(Call& call, Dialect dialect) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(fleet::NewSandbox wanted, parse_new_sandbox(body, dialect, call.backend.egress));
  CO_TRY_ASSIGN(const auto made, co_await create_sandbox(call, std::move(wanted)));
  co_return Answer::json(201, sandbox_body(made->view(), call.backend.domain));
}
io::Async<Result<Answer>> create_v1(Call& call) {
  return create(call, Dialect::kV1);
}
io::Async<Result<Answer>> create_v2(Call& call) {
  return create(call, Dialect::kV2);
}

io::Async<Result<Answer>> get(Call& call) {
  const std::string id = sandbox_id(call);
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr || found->ended()) co_return fail(no_such_sandbox(id));
  co_return Answer::json(200, detail_body(found->view(), call.backend.domain));
}

io::Async<Result<Answer>> kill(Call& call) {
  CO_TRY(co_await call.backend.fleet.kill(call.team, sandbox_id(call)));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> set_timeout(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const auto timeout, life(Object(body), "timeout", -kMostSeconds, kMostSeconds));
  if (!timeout.has_value()) {
    co_return fail(policy::wrong("timeout", "nothing", "a number of seconds"));
  }
  CO_TRY(co_await call.backend.fleet.set_timeout(call.team, sandbox_id(call), *timeout,
                                                 fleet::Fleet::Timeout::kSet));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> refresh(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kOptional));
  CO_TRY_ASSIGN(const auto duration, life(Object(body), "duration", 0, kMostRefresh));
  const seconds time = std::max(duration.value_or(seconds(0)), seconds(kShortLife));
  CO_TRY(co_await call.backend.fleet.set_timeout(call.team, sandbox_id(call), time,
                                                 fleet::Fleet::Timeout::kExtendOnly));
  co_return Answer::empty(204);
}

// 200 where it ran, 201 where it was resumed.
io::Async<Result<Answer>> connect_to(Call& call, seconds timeout, fleet::Resume how) {
  const std::string id = sandbox_id(call);
  CO_TRY_ASSIGN(const bool resumed,
                co_await call.backend.fleet.connect(call.team, id, timeout, how));
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  // It may have ended since; its client is told what is so now.
  if (found == nullptr) co_return fail(no_such_sandbox(id));
  co_return Answer::json(resumed ? 201 : 200, sandbox_body(found->view(), call.backend.domain));
}

io::Async<Result<Answer>> connect_v1(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const auto timeout, life(Object(body), "timeout", 0, kMostSeconds));
  if (!timeout.has_value()) {
    co_return fail(policy::wrong("timeout", "nothing", "a number of seconds"));
  }
  co_return co_await connect_to(call, *timeout, fleet::Resume::kWhatWasKept);
}

io::Async<Result<Answer>> connect_v2(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kOptional));
  const Object body(value);
  CO_TRY_ASSIGN(const auto timeout, life(body, "timeout", 0, kMostSeconds));
  CO_TRY_ASSIGN(const auto memory, body.truth("memory"));
  co_return co_await connect_to(
      call, timeout.value_or(seconds(kLongLife)),
      memory.value_or(true) ? fleet::Resume::kWhatWasKept : fleet::Resume::kReboot);
}

io::Async<Result<Answer>> resume(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kOptional));
  CO_TRY_ASSIGN(const auto timeout, life(Object(body), "timeout", 0, kMostSeconds));
  const std::string id = sandbox_id(call);
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr) co_return fail(no_such_sandbox(id));
  if (found->view().state == fleet::State::kRunning) {
    co_return fail(Error::precondition("sandbox " + policy::quote(id) + " is running already"));
  }
  CO_TRY_ASSIGN(Answer answer, co_await connect_to(call, timeout.value_or(seconds(kShortLife)),
                                                   fleet::Resume::kWhatWasKept));
  answer.head.status = 201;  // also where somebody else resumed it meanwhile: it runs
  co_return answer;
}

io::Async<Result<Answer>> pause(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kOptional));
  CO_TRY_ASSIGN(const auto memory, Object(body).truth("memory"));
  CO_TRY(co_await call.backend.fleet.pause(
      call.team, sandbox_id(call),
      memory.value_or(true) ? fleet::Keep::kMemory : fleet::Keep::kFiles));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> set_network(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const Network network, parse_network_update(Object(body)));
  const std::string id = sandbox_id(call);
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr || found->ended()) co_return fail(no_such_sandbox(id));
  if (found->view().state == fleet::State::kPaused) {
    co_return fail(Error::precondition("sandbox " + policy::quote(id) + " is paused"));
  }
  // One of an earlier server has what it was made with.
  Egress egress = call.backend.egress;
  egress.exists = found->view().has_network;
  CO_TRY_ASSIGN(auto policy, policy_of(network, egress));
  // A sandbox without any network has held all of it from its start.
  if (policy.has_value())
    CO_TRY(co_await call.backend.fleet.set_network(
        call.team, id, std::move(*policy), network_fields(network, egress), values_of(network)));
  co_return Answer::empty(204);
}

// A time of the query in seconds since 1970.
Result<std::optional<fleet::WallClock::time_point>> query_time(const Call& call,
                                                               std::string_view name) {
  const std::optional<std::string_view> text = call.query(name);
  if (!text.has_value()) return std::nullopt;
  constexpr std::int64_t kMost = 7'258'118'400;  // 2200-01-01
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0 || number > kMost) {
    return fail(policy::wrong(name, policy::quote(*text), "a time in seconds since 1970"));
  }
  return fleet::WallClock::time_point(seconds(number));
}

io::Async<Result<Answer>> metrics(Call& call) {
  CO_TRY_ASSIGN(const auto from, query_time(call, "start"));
  CO_TRY_ASSIGN(const auto to, query_time(call, "end"));
  if (from.has_value() && to.has_value() && *from > *to) {
    co_return fail(Error::invalid("start: found a time after end; allowed is one before it"));
  }
  CO_TRY_ASSIGN(const auto samples,
                call.backend.fleet.samples(call.team, sandbox_id(call), from, to));
  json::Value body = json::Value::array();
  for (const fleet::Sample& sample : samples) body.push(sample_body(sample));
  co_return Answer::json(200, body);
}

// The newest sample of each of several sandboxes; who is not there has none.
io::Async<Result<Answer>> metrics_of_many(Call& call) {
  std::string_view rest = call.query("sandbox_ids").value_or("");
  if (rest.empty()) co_return fail(policy::wrong("sandbox_ids", "nothing", "ids with commas"));
  json::Value bodies = json::Value::object();
  for (std::size_t count = 1; !rest.empty(); ++count) {
    if (count > kMostIds) {
      co_return fail(policy::wrong("sandbox_ids", "more than 100 ids", "at most 100"));
    }
    const std::string_view id = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), id.size() + 1));
    const auto samples = call.backend.fleet.samples(call.team, id, std::nullopt, std::nullopt);
    if (!samples.has_value() && samples.error().code() != Code::kNotFound) {
      co_return fail(samples.error());
    }
    if (samples.has_value() && !samples->empty()) bodies.set(id, sample_body(samples->back()));
  }
  json::Value body = json::Value::object();
  body.set("sandboxes", std::move(bodies));
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"POST", "/sandboxes", create_v1},
    {"POST", "/v2/sandboxes", create_v2},
    {"GET", "/sandboxes/metrics", metrics_of_many},
    {"GET", "/sandboxes/{sandboxID}", get},
    {"DELETE", "/sandboxes/{sandboxID}", kill},
    {"GET", "/sandboxes/{sandboxID}/metrics", metrics},
    {"POST", "/sandboxes/{sandboxID}/timeout", set_timeout},
    {"POST", "/sandboxes/{sandboxID}/refreshes", refresh},
    {"POST", "/sandboxes/{sandboxID}/connect", connect_v1},
    {"POST", "/v2/sandboxes/{sandboxID}/connect", connect_v2},
    {"POST", "/sandboxes/{sandboxID}/resume", resume},
    {"POST", "/sandboxes/{sandboxID}/pause", pause},
    {"PUT", "/sandboxes/{sandboxID}/network", set_network},
};

}  // namespace

std::string sandbox_id(const Call& call) {
  const std::string& text = call.parameter(0);
  return text.substr(0, text.find('-'));
}

std::span<const Route> sandbox_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
