#include "api/e2b/secrets.h"

#include <charconv>
#include <chrono>
#include <utility>

#include "api/body.h"
#include "api/secret_body.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

constexpr std::size_t kPage = 100, kMostPage = 1000;
constexpr std::size_t kMostName = 256;
// The fields of one are judged where they are kept.
constexpr Object::MapLimits kMetadata{1000, 8192, 8192};

std::string time_of(std::int64_t ms) {
  return time_text(WallTime(std::chrono::milliseconds(ms)));
}

json::Value body_of(const SecretView& view) {
  json::Value metadata = json::Value::object();
  for (const auto& [key, value] : view.metadata) metadata.set(key, value);
  json::Value body = json::Value::object();
  body.set("secretID", view.id)
      .set("name", view.name)
      .set("currentVersion", view.version)
      .set("metadata", std::move(metadata))
      .set("createdAt", time_of(view.created_ms))
      .set("updatedAt", time_of(view.updated_ms));
  return body;
}

// The value goes to the vault; what is left of the body is read here.
io::Async<Result<SealedSecret>> seal(Call& call, std::string secret) {
  CO_TRY_ASSIGN(Fd body, co_await forward_body(call.exchange));
  co_return co_await call.backend.secrets.seal(call.team, std::move(secret), std::move(body));
}

io::Async<Result<Answer>> create(Call& call) {
  CO_TRY_ASSIGN(SealedSecret sealed, co_await seal(call, ""));
  CO_TRY_ASSIGN(const json::Value value, parse_object(sealed.rest, Body::kRequired));
  const Object body(value);
  CO_TRY_ASSIGN(const auto name, body.text("name", kMostName));
  CO_TRY_ASSIGN(auto metadata, body.map("metadata", kMetadata));
  CO_TRY_ASSIGN(const SecretView made,
                co_await call.backend.secrets.create(
                    call.team, name.value_or(""), std::move(metadata).value_or(Secrets::Metadata()),
                    std::move(sealed)));
  co_return Answer::json(201, body_of(made));
}

io::Async<Result<Answer>> update(Call& call) {
  CO_TRY_ASSIGN(SealedSecret sealed, co_await seal(call, std::string(call.parameter(0))));
  CO_TRY_ASSIGN(const json::Value value, parse_object(sealed.rest, Body::kRequired));
  const Object body(value);
  CO_TRY_ASSIGN(auto metadata, body.map("metadata", kMetadata));
  CO_TRY_ASSIGN(const SecretView changed, co_await call.backend.secrets.update(
                                              call.team, std::move(metadata), std::move(sealed)));
  co_return Answer::json(200, body_of(changed));
}

io::Async<Result<Answer>> show(Call& call) {
  CO_TRY_ASSIGN(const SecretView found,
                co_await call.backend.secrets.find(call.team, call.parameter(0)));
  co_return Answer::json(200, body_of(found));
}

io::Async<Result<Answer>> list(Call& call) {
  std::size_t limit = kPage;
  if (const auto text = call.query("limit")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (error != std::errc() || end != text->data() + text->size() || limit < 1 ||
        limit > kMostPage)
      co_return fail(policy::wrong("limit", policy::quote(*text), "a number from 1 to 1000"));
  }
  CO_TRY_ASSIGN(const SecretViews page,
                co_await call.backend.secrets.list(
                    call.team, limit, std::string(call.query("nextToken").value_or(""))));
  json::Value bodies = json::Value::array();
  for (const SecretView& view : page.secrets) bodies.push(body_of(view));
  Answer answer = Answer::json(200, bodies);
  if (!page.next_token.empty()) answer.head.headers.add("X-Next-Token", page.next_token);
  co_return answer;
}

io::Async<Result<Answer>> remove(Call& call) {
  CO_TRY(co_await call.backend.secrets.remove(call.team, call.parameter(0)));
  co_return Answer::empty(204);
}

constexpr Route kRoutes[] = {{"GET", "/secrets", list},
                             {"POST", "/secrets", create},
                             {"GET", "/secrets/{secretID}", show},
                             {"POST", "/secrets/{secretID}", update},
                             {"DELETE", "/secrets/{secretID}", remove}};

}  // namespace

std::span<const Route> secret_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
