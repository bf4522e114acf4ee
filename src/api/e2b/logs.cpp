#include "api/e2b/logs.h"

#include <array>
#include <charconv>

#include "base/json.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

using fleet::Event;
using fleet::EventQuery;
using std::chrono::milliseconds;

constexpr std::int64_t kMostEntries = 1000;
constexpr std::size_t kMostSearch = 256;
constexpr std::int64_t kLatestMs = 7'258'118'400'000;  // 2200-01-01
constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warn", "error"};
constexpr std::array<std::string_view, 2> kDirections = {"forward", "backward"};

std::string_view level_text(Event::Level level) {
  return kLevels.at(static_cast<std::size_t>(level));
}

// Old clients write an id as "ID-CLIENT"; an id itself has no dash.
std::string sandbox_id(const Call& call) {
  const std::string& text = call.parameter(0);
  return text.substr(0, text.find('-'));
}

Result<std::optional<std::int64_t>> number(const Call& call, std::string_view name,
                                           std::int64_t most) {
  const auto text = call.query(name);
  if (!text.has_value()) return std::nullopt;
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > most) {
    return fail(policy::wrong(name, policy::quote(*text),
                              "a whole number from 0 to " + std::to_string(most)));
  }
  return value;
}

// The place of the query's word among `words`; nullopt where there is none.
template <std::size_t N>
Result<std::optional<std::size_t>> word(const Call& call, std::string_view name,
                                        const std::array<std::string_view, N>& words) {
  const auto text = call.query(name);
  if (!text.has_value()) return std::nullopt;
  for (std::size_t at = 0; at < N; ++at) {
    if (words[at] == *text) return at;
  }
  return fail(policy::wrong(name, policy::quote(*text), policy::alternatives(words.data(), N)));
}

Result<std::optional<fleet::WallClock::time_point>> time(const Call& call, std::string_view name) {
  TRY_ASSIGN(const auto ms, number(call, name, kLatestMs));
  if (!ms.has_value()) return std::nullopt;
  return fleet::WallClock::time_point(milliseconds(*ms));
}

// One entry as a line of JSON, which is what the old form holds.
std::string line_of(const Event& event) {
  json::Value line = json::Value::object();
  for (const auto& [key, value] : event.fields) line.set(key, value);
  line.set("logger", "caisson");
  line.set("level", level_text(event.level)).set("message", event.message);
  return json::serialize(line);
}

json::Value entry_of(const Event& event) {
  json::Value fields = json::Value::object();
  for (const auto& [key, value] : event.fields) fields.set(key, value);
  json::Value entry = json::Value::object();
  entry.set("timestamp", time_text(event.time)).set("level", level_text(event.level));
  entry.set("message", event.message).set("fields", std::move(fields));
  return entry;
}

io::Async<Result<Answer>> logs_v1(Call& call) {
  EventQuery query;
  CO_TRY_ASSIGN(query.from, time(call, "start"));
  CO_TRY_ASSIGN(const auto limit, number(call, "limit", INT32_MAX));
  query.limit = static_cast<std::uint32_t>(std::min(limit.value_or(kMostEntries), kMostEntries));
  CO_TRY_ASSIGN(const auto events,
                co_await call.backend.fleet.events(call.team, sandbox_id(call), std::move(query)));
  json::Value lines = json::Value::array(), entries = json::Value::array();
  for (const Event& event : events) {
    json::Value line = json::Value::object();
    line.set("timestamp", time_text(event.time)).set("line", line_of(event));
    lines.push(std::move(line));
    entries.push(entry_of(event));
  }
  json::Value body = json::Value::object();
  body.set("logs", std::move(lines)).set("logEntries", std::move(entries));
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> logs_v2(Call& call) {
  EventQuery query;
  CO_TRY_ASSIGN(const auto cursor, time(call, "cursor"));
  CO_TRY_ASSIGN(const auto limit, number(call, "limit", kMostEntries));
  CO_TRY_ASSIGN(const auto direction, word(call, "direction", kDirections));
  CO_TRY_ASSIGN(const auto level, word(call, "level", kLevels));
  query.limit = static_cast<std::uint32_t>(limit.value_or(kMostEntries));
  query.least = static_cast<Event::Level>(level.value_or(0));
  query.text = call.query("search").value_or("");
  if (query.text.size() > kMostSearch) {
    co_return fail(policy::wrong("search", std::to_string(query.text.size()) + " bytes",
                                 "at most " + std::to_string(kMostSearch)));
  }
  if (direction.value_or(0) == 0) {
    query.from = cursor;
  } else {
    query.to = cursor;
    query.order = EventQuery::Order::kNewestFirst;
  }
  CO_TRY_ASSIGN(const auto events,
                co_await call.backend.fleet.events(call.team, sandbox_id(call), std::move(query)));
  json::Value entries = json::Value::array();
  for (const Event& event : events) entries.push(entry_of(event));
  json::Value body = json::Value::object();
  body.set("logs", std::move(entries));
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"GET", "/sandboxes/{sandboxID}/logs", logs_v1},
    {"GET", "/v2/sandboxes/{sandboxID}/logs", logs_v2},
};

}  // namespace

std::span<const Route> log_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
