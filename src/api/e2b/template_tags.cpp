#include "api/body.h"
#include "api/e2b/templates.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

constexpr std::size_t kMostName = 512, kMostTags = 32;

struct Named {
  std::string name;
  std::vector<std::string> tags;
};

io::Async<Result<Named>> read_named(Call& call, std::string_view key) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  const Object body(value);
  CO_TRY_ASSIGN(auto name, body.text(key, kMostName));
  if (name.value_or("").empty())
    co_return fail(policy::wrong(key, "nothing", "a template's name or id"));
  CO_TRY_ASSIGN(auto tags, body.texts("tags", kMostTags, kMostName));
  if (!tags.has_value() || tags->empty())
    co_return fail(policy::wrong("tags", "nothing", "a list of tags"));
  co_return Named{.name = std::move(*name), .tags = std::move(*tags)};
}

io::Async<Result<Answer>> assign(Call& call) {
  CO_TRY_ASSIGN(const Named named, co_await read_named(call, "target"));
  CO_TRY_ASSIGN(const std::string build,
                co_await call.backend.templates.set_tags(call.team, named.name, named.tags));
  json::Value body = json::Value::object(), tags = json::Value::array();
  for (const std::string& tag : named.tags) tags.push(tag);
  body.set("buildID", build);
  body.set("tags", std::move(tags));
  co_return Answer::json(201, body);
}

io::Async<Result<Answer>> remove(Call& call) {
  CO_TRY_ASSIGN(const Named named, co_await read_named(call, "name"));
  CO_TRY(co_await call.backend.templates.remove_tags(call.team, named.name, named.tags));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(const auto found,
                co_await call.backend.templates.tags(call.team, call.parameter(0)));
  json::Value body = json::Value::array();
  for (const db::TagInfo& info : found) {
    json::Value tag = json::Value::object();
    tag.set("tag", info.tag);
    tag.set("buildID", info.build_id);
    tag.set("createdAt", time_text(WallTime(std::chrono::milliseconds(info.set_ms))));
    body.push(std::move(tag));
  }
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"POST", "/templates/tags", assign},
    {"DELETE", "/templates/tags", remove},
    {"GET", "/templates/{templateID}/tags", list},
};

}  // namespace

std::span<const Route> template_tag_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
