#include "api/e2b/snapshots.h"

#include <charconv>

#include "api/body.h"
#include "api/e2b/sandboxes.h"
#include "api/e2b/view.h"
#include "api/sandbox_fields.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

using std::chrono::seconds;

constexpr std::int64_t kMostForks = 100;
constexpr std::int64_t kForkLife = 300;
constexpr std::size_t kPage = 100;

json::Value snapshot_body(const SnapshotView& view) {
  json::Value names = json::Value::array();
  for (const std::string& name : view.names) names.push(name);
  json::Value body = json::Value::object();
  body.set("snapshotID", view.id).set("names", std::move(names));
  return body;
}

io::Async<Result<Answer>> take(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kOptional));
  CO_TRY_ASSIGN(const auto name, Object(body).text("name", kMostTemplateName));
  const std::string id = sandbox_id(call);
  // Before files are read for it, which takes long.
  CO_TRY(co_await call.backend.snapshots.check(call.team, name.value_or("")));
  CO_TRY_ASSIGN(fleet::Snapshot taken, co_await call.backend.fleet.snapshot(call.team, id));
  CO_TRY_ASSIGN(const SnapshotView added, co_await call.backend.snapshots.add(
                                              call.team, id, name.value_or(""), std::move(taken)));
  co_return Answer::json(201, snapshot_body(added));
}

io::Async<Result<Answer>> list(Call& call) {
  SnapshotQuery query{.sandbox = {}, .name = {}, .limit = kPage, .after = {}};
  if (const auto id = call.query("sandboxID"); id.value_or("") != "")
    query.sandbox = std::string(id->substr(0, id->find('-')));
  if (const auto name = call.query("name"); name.value_or("") != "") query.name = *name;
  if (const auto text = call.query("limit")) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (error != std::errc() || end != text->data() + text->size() || query.limit < 1 ||
        query.limit > kPage) {
      co_return fail(policy::wrong("limit", policy::quote(*text), "a number from 1 to 100"));
    }
  }
  query.after = call.query("nextToken").value_or("");
  CO_TRY_ASSIGN(const SnapshotPage page, co_await call.backend.snapshots.list(call.team, query));
  json::Value bodies = json::Value::array();
  for (const SnapshotView& view : page.snapshots) bodies.push(snapshot_body(view));
  Answer answer = Answer::json(200, bodies);
  if (!page.next_token.empty()) answer.head.headers.add("X-Next-Token", page.next_token);
  co_return answer;
}

io::Async<Result<Answer>> fork(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kOptional));
  const Object body(value);
  CO_TRY_ASSIGN(const auto timeout, body.integer("timeout", 1, kMostSeconds));
  CO_TRY_ASSIGN(const auto count, body.integer("count", 1, kMostForks));
  CO_TRY_ASSIGN(const auto forks,
                co_await call.backend.fleet.fork(call.team, sandbox_id(call),
                                                 seconds(timeout.value_or(kForkLife)),
                                                 static_cast<std::size_t>(count.value_or(1))));
  json::Value bodies = json::Value::array();
  for (const auto& one : forks) {
    json::Value each = json::Value::object();
    if (one.has_value()) {
      each.set("sandbox", sandbox_body((*one)->view(), call.backend.domain));
    } else {
      json::Value error = json::Value::object();
      error.set("code", http_status_of(one.error().code())).set("message", one.error().message());
      each.set("error", std::move(error));
    }
    bodies.push(std::move(each));
  }
  co_return Answer::json(201, bodies);
}

constexpr Route kRoutes[] = {
    {"POST", "/sandboxes/{sandboxID}/snapshots", take},
    {"POST", "/sandboxes/{sandboxID}/fork", fork},
    {"GET", "/snapshots", list},
};

}  // namespace

std::span<const Route> snapshot_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
