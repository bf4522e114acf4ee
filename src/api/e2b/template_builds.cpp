#include <charconv>
#include <optional>

#include "api/body.h"
#include "api/e2b/templates.h"
#include "api/e2b/view.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

constexpr std::size_t kMostImage = 512, kMostLogin = 4096;
constexpr std::int64_t kMostEntries = 100;
constexpr std::size_t kPiece = 256 * 1024;
constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};

// ---- the order ----------------------------------------------------------------------------------

Result<std::optional<image::Credentials>> read_login(const Object& body) {
  TRY_ASSIGN(const auto registry, body.object("fromImageRegistry"));
  if (!registry.has_value()) return std::nullopt;
  TRY_ASSIGN(const auto type, registry->text("type", kMostLogin));
  if (type == "aws" || type == "gcp")
    return fail({Code::kUnimplemented,
                 "fromImageRegistry: this server logs in by a user and a password alone (type "
                 "\"registry\"), which those registries give out for a time too"});
  if (type != "registry")
    return fail(policy::wrong(registry->path_of("type"),
                              type.has_value() ? policy::quote(*type) : "nothing", "\"registry\""));
  image::Credentials login;
  for (const auto& [key, into] :
       {std::pair("username", &login.user), std::pair("password", &login.secret)}) {
    TRY_ASSIGN(auto text, registry->text(key, kMostLogin));
    if (text.value_or("").empty())
      return fail(policy::wrong(registry->path_of(key), "nothing", "a string"));
    *into = std::move(*text);
  }
  return login;
}

Result<BuildOrder> parse_order(const Object& body) {
  BuildOrder order;
  TRY_ASSIGN(auto image, body.text("fromImage", kMostImage));
  TRY_ASSIGN(auto base, body.text("fromTemplate", kMostImage));
  order.from_image = image.value_or("");
  order.from_template = base.value_or("");
  if (order.from_image.empty() == order.from_template.empty())
    return fail(policy::wrong(
        "fromImage",
        order.from_image.empty() ? "neither it nor fromTemplate" : "it and fromTemplate",
        "one of them"));
  TRY_ASSIGN(order.login, read_login(body));
  if (const json::Value* steps = body.find("steps"); steps != nullptr) {
    auto parsed = build::parse_template_steps(*steps);
    if (!parsed.has_value()) return fail(Error::invalid(parsed.error().message()));
    order.steps = std::move(*parsed);
  }
  TRY_ASSIGN(auto start, body.text("startCmd", kMostCommand));
  TRY_ASSIGN(auto ready, body.text("readyCmd", kMostCommand));
  order.start_command = start.value_or("");
  order.ready_command = ready.value_or("");
  TRY_ASSIGN(const auto force, body.truth("force"));
  order.force = force.value_or(false);
  return order;
}

io::Async<Result<Answer>> start(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(BuildOrder order, parse_order(Object(body)));
  CO_TRY(co_await call.backend.templates.start_build(call.team, call.parameter(0),
                                                     call.parameter(1), std::move(order)));
  co_return Answer::empty(202);
}

// ---- the log ------------------------------------------------------------------------------------

json::Value entry_body(const db::LogEntry& entry) {
  json::Value body = json::Value::object();
  body.set("timestamp", time_text(WallTime(std::chrono::milliseconds(entry.time_ms))));
  body.set("level", kLevels[static_cast<std::size_t>(entry.level)]);
  body.set("message", entry.message);
  if (!entry.step.empty()) body.set("step", entry.step);
  return body;
}

Result<std::optional<std::int64_t>> query_number(const Call& call, std::string_view name,
                                                 std::int64_t most) {
  const auto text = call.query(name);
  if (!text.has_value()) return std::nullopt;
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0 || number > most)
    return fail(policy::wrong(name, policy::quote(*text),
                              "a whole number from 0 to " + std::to_string(most)));
  return number;
}

Result<db::LogLevel> query_level(const Call& call) {
  const auto text = call.query("level");
  if (!text.has_value()) return db::LogLevel::kDebug;
  for (std::size_t at = 0; at < std::size(kLevels); ++at)
    if (kLevels[at] == *text) return static_cast<db::LogLevel>(at);
  return fail(policy::wrong("level", policy::quote(*text), "debug, info, warn or error"));
}

io::Async<Result<Answer>> status(Call& call) {
  constexpr std::int64_t kMostOffset = 1 << 30;
  LogQuery query;
  CO_TRY_ASSIGN(const auto offset, query_number(call, "logsOffset", kMostOffset));
  CO_TRY_ASSIGN(const auto limit, query_number(call, "limit", kMostEntries));
  CO_TRY_ASSIGN(query.least, query_level(call));
  query.offset = static_cast<std::uint32_t>(offset.value_or(0));
  query.limit = static_cast<std::uint32_t>(limit.value_or(kMostEntries));
  CO_TRY_ASSIGN(const BuildProgress found,
                co_await call.backend.templates.progress(call.team, call.parameter(0),
                                                         call.parameter(1), query));
  json::Value body = json::Value::object();
  body.set("templateID", found.build.template_id);
  body.set("buildID", found.build.id);
  body.set("status", status_text(static_cast<TemplateView::Status>(found.build.status)));
  json::Value logs = json::Value::array(), entries = json::Value::array();
  for (const db::LogEntry& entry : found.entries) {
    logs.push(entry.message);
    entries.push(entry_body(entry));
  }
  body.set("logs", std::move(logs));
  body.set("logEntries", std::move(entries));
  if (found.build.status == db::BuildStatus::kError) {
    json::Value reason = json::Value::object();
    reason.set("message", found.build.failure);
    if (!found.build.failure_step.empty()) reason.set("step", found.build.failure_step);
    reason.set("logEntries", json::Value::array());
    body.set("reason", std::move(reason));
  }
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> logs(Call& call) {
  constexpr std::int64_t kMostTime = 7'258'118'400'000;  // 2200-01-01
  db::LogWindow window;
  CO_TRY_ASSIGN(window.time_ms, query_number(call, "cursor", kMostTime));
  CO_TRY_ASSIGN(const auto limit, query_number(call, "limit", kMostEntries));
  CO_TRY_ASSIGN(window.least, query_level(call));
  window.limit = static_cast<std::uint32_t>(limit.value_or(kMostEntries));
  const std::string_view direction = call.query("direction").value_or("forward");
  if (direction != "forward" && direction != "backward")
    co_return fail(policy::wrong("direction", policy::quote(direction), "forward or backward"));
  if (direction == "backward") window.direction = db::LogWindow::Direction::kBackward;
  CO_TRY_ASSIGN(const auto found, co_await call.backend.templates.logs(call.team, call.parameter(0),
                                                                       call.parameter(1), window));
  json::Value body = json::Value::object(), entries = json::Value::array();
  for (const db::LogEntry& entry : found) entries.push(entry_body(entry));
  body.set("logs", std::move(entries));
  co_return Answer::json(200, body);
}

// ---- files --------------------------------------------------------------------------------------

// Where the client itself reached us. A proxy that speaks TLS for us says so.
std::string own_url(const http::Exchange& exchange) {
  const http::Headers& headers = exchange.request().headers;
  const bool tls = exchange.secure() || headers.get("X-Forwarded-Proto") == "https";
  return (tls ? "https://" : "http://") + std::string(headers.get("Host").value_or("localhost"));
}

io::Async<Result<Answer>> upload_place(Call& call) {
  const std::string& hash = call.parameter(1);
  CO_TRY_ASSIGN(const UploadPlace place,
                co_await call.backend.templates.upload_place(call.team, call.parameter(0), hash));
  json::Value body = json::Value::object();
  body.set("present", place.present);
  body.set("url", own_url(call.exchange) + "/templates/" + place.id + "/files/" + hash +
                      "?expires=" + std::to_string(place.expires) + "&token=" + place.token);
  co_return Answer::json(201, body);
}

// The URL of upload_place(): its token is the right to write there.
io::Async<Result<Answer>> upload(Call& call) {
  constexpr std::int64_t kMostTime = 7'258'118'400;
  CO_TRY_ASSIGN(const auto expires, query_number(call, "expires", kMostTime));
  const std::string token(call.query("token").value_or(""));
  CO_TRY_ASSIGN(const std::shared_ptr<Upload> to,
                co_await call.backend.templates.begin_upload(call.parameter(0), call.parameter(1),
                                                             expires.value_or(0), token));
  for (;;) {
    CO_TRY_ASSIGN(std::string piece, co_await call.exchange.read_some(kPiece));
    if (piece.empty()) break;
    auto append = [to, bytes = std::move(piece)] { return to->append(bytes); };
    CO_TRY(co_await call.backend.loop.in_pool(std::move(append)));
  }
  auto keep = [to] { return to->keep(); };
  CO_TRY(co_await call.backend.loop.in_pool(std::move(keep)));
  co_return Answer::empty(200);
}

constexpr Route kRoutes[] = {
    {"POST", "/v2/templates/{templateID}/builds/{buildID}", start},
    {"GET", "/templates/{templateID}/builds/{buildID}/status", status},
    {"GET", "/templates/{templateID}/builds/{buildID}/logs", logs},
    {"GET", "/templates/{templateID}/files/{hash}", upload_place},
    {"PUT", "/templates/{templateID}/files/{hash}", upload, Route::Right::kOwn},
};

}  // namespace

std::span<const Route> template_build_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
