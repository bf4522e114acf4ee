#include "api/e2b/templates.h"

#include "api/body.h"
#include "api/e2b/view.h"
#include "policy/complain.h"

namespace caisson::api::e2b {
namespace {

// Of the wire; what a server allows is less (Templates::create).
constexpr std::int64_t kLeastMemory = 128, kMostMemory = 1 << 30, kMostCpus = 1'000'000;
constexpr std::size_t kMostName = 256, kMostTags = 32;

// Whether a name is taken: clients ask before they build. 403 is a yes too.
io::Async<Result<Answer>> find_alias(Call& call) {
  CO_TRY_ASSIGN(const TemplateView found,
                co_await call.backend.templates.find(call.team, call.parameter(0)));
  json::Value body = json::Value::object();
  body.set("templateID", found.id);
  body.set("public", found.access == TemplateView::Access::kPublic);
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(const auto found, co_await call.backend.templates.list(call.team));
  json::Value body = json::Value::array();
  for (const TemplateView& view : found) body.push(template_body(view));
  co_return Answer::json(200, body);
}

// `keys`: under which the name is given, the first that is there.
Result<NewTemplate> parse_new(const Object& body, std::initializer_list<std::string_view> keys) {
  NewTemplate wanted;
  for (const std::string_view key : keys) {
    TRY_ASSIGN(auto name, body.text(key, kMostName));
    if (wanted.name.empty() && name.has_value()) wanted.name = std::move(*name);
  }
  if (wanted.name.empty())
    return fail(policy::wrong(body.path_of(*keys.begin()), "nothing", "a template's name"));
  TRY_ASSIGN(auto tags, body.texts("tags", kMostTags, kMostName));
  if (tags.has_value()) wanted.tags = std::move(*tags);
  TRY_ASSIGN(const auto cpus, body.integer("cpuCount", 1, kMostCpus));
  if (cpus.has_value()) wanted.cpus = static_cast<std::uint32_t>(*cpus);
  TRY_ASSIGN(const auto memory, body.integer("memoryMB", kLeastMemory, kMostMemory));
  if (memory.has_value()) wanted.memory_mib = static_cast<std::uint64_t>(*memory);
  return wanted;
}

io::Async<Result<NewBuild>> make(Call& call, std::initializer_list<std::string_view> keys) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(NewTemplate wanted, parse_new(Object(body), keys));
  co_return co_await call.backend.templates.create(call.team, std::move(wanted));
}

io::Async<Result<Answer>> create_v3(Call& call) {
  CO_TRY_ASSIGN(const NewBuild made, co_await make(call, {"name", "alias"}));
  json::Value body = json::Value::object();
  body.set("templateID", made.view.id);
  body.set("buildID", made.view.build_id);
  body.set("public", made.view.access == TemplateView::Access::kPublic);
  set_names(body, made.view);
  json::Value tags = json::Value::array();
  for (const std::string& tag : made.tags) tags.push(tag);
  body.set("tags", std::move(tags));
  co_return Answer::json(202, body);
}

io::Async<Result<Answer>> create_v2(Call& call) {
  CO_TRY_ASSIGN(const NewBuild made, co_await make(call, {"alias"}));
  co_return Answer::json(202, template_body(made.view));
}

json::Value build_body(const db::Build& build) {
  const auto text = [](std::int64_t ms) {
    return time_text(WallTime(std::chrono::milliseconds(ms)));
  };
  json::Value body = json::Value::object();
  body.set("buildID", build.id);
  body.set("status", status_text(static_cast<TemplateView::Status>(build.status)));
  body.set("createdAt", text(build.created_ms));
  body.set("updatedAt", text(build.finished_ms.value_or(build.created_ms)));
  if (build.finished_ms.has_value()) body.set("finishedAt", text(*build.finished_ms));
  body.set("cpuCount", (build.size.cpu_milli + 999) / 1000);
  body.set("memoryMB", build.size.memory >> 20);
  body.set("envdVersion", kEnvdVersion);
  return body;
}

io::Async<Result<Answer>> get(Call& call) {
  CO_TRY_ASSIGN(const Templates::Details found,
                co_await call.backend.templates.details(call.team, call.parameter(0)));
  json::Value body = json::Value::object();
  body.set("templateID", found.view.id);
  body.set("public", found.view.access == TemplateView::Access::kPublic);
  set_names(body, found.view);
  body.set("createdAt", time_text(found.view.created));
  body.set("updatedAt", time_text(found.view.updated));
  // Nobody counts these here; clients want the keys.
  body.set("lastSpawnedAt", nullptr);
  body.set("spawnCount", 0);
  json::Value builds = json::Value::array();
  for (const db::Build& build : found.builds) builds.push(build_body(build));
  body.set("builds", std::move(builds));
  co_return Answer::json(200, body);
}

// Snapshots are removed by the same call.
io::Async<Result<Answer>> remove(Call& call) {
  const Status gone = co_await call.backend.snapshots.remove(call.team, call.parameter(0));
  if (gone.has_value()) co_return Answer::empty(204);
  if (gone.error().code() != Code::kNotFound) co_return fail(gone.error());
  CO_TRY(co_await call.backend.templates.remove(call.team, call.parameter(0)));
  co_return Answer::empty(204);
}

io::Async<Result<TemplateView>> change(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const auto open, Object(body).truth("public"));
  // Nothing else can be changed, so without it nothing is.
  if (!open.has_value()) {
    CO_TRY_ASSIGN(Templates::Details found,
                  co_await call.backend.templates.details(call.team, call.parameter(0)));
    co_return std::move(found.view);
  }
  co_return co_await call.backend.templates.set_access(
      call.team, call.parameter(0),
      *open ? TemplateView::Access::kPublic : TemplateView::Access::kTeam);
}

io::Async<Result<Answer>> change_v1(Call& call) {
  CO_TRY(co_await change(call));
  co_return Answer::json(200, json::Value::object());
}
io::Async<Result<Answer>> change_v2(Call& call) {
  CO_TRY_ASSIGN(const TemplateView changed, co_await change(call));
  json::Value body = json::Value::object();
  set_names(body, changed);
  co_return Answer::json(200, body);
}

constexpr Route kRoutes[] = {
    {"GET", "/templates/aliases/{alias}", find_alias},
    {"GET", "/templates", list},
    {"GET", "/v2/templates", list},
    {"POST", "/v2/templates", create_v2},
    {"POST", "/v3/templates", create_v3},
    {"GET", "/templates/{templateID}", get},
    {"DELETE", "/templates/{templateID}", remove},
    {"PATCH", "/templates/{templateID}", change_v1},
    {"PATCH", "/v2/templates/{templateID}", change_v2},
};

}  // namespace

std::span<const Route> template_routes() {
  return kRoutes;
}

}  // namespace caisson::api::e2b
