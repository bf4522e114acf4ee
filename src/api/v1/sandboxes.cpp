// /v1/sandboxes: making, listing, ending, and the time that they have.
#include "api/body.h"
#include "api/create_sandbox.h"
#include "api/sandbox_fields.h"
#include "api/v1/routes.h"
#include "api/v1/sandbox.h"
#include "base/time_text.h"
#include "policy/complain.h"
#include "policy/document.h"
#include "policy/network_document.h"

namespace caisson::api::v1 {
namespace {

using fleet::NewSandbox;
using std::chrono::seconds;

// Of a resume that names no time.
constexpr std::int64_t kUsualSeconds = 300;
constexpr std::int64_t kMostListed = 100;

json::Value texts_of(const Texts& map) {
  json::Value object = json::Value::object();
  for (const auto& [key, value] : map) object.set(key, value);
  return object;
}

json::Value body_of(const fleet::SandboxView& view) {
  json::Value body = json::Value::object();
  body.set("id", view.id);
  body.set("image", view.template_id);
  body.set("state", view.state == fleet::State::kRunning ? "running" : "paused");
  body.set("started", time_text(view.started));
  body.set("ends", time_text(view.end));
  body.set("cpus", view.cpus);
  body.set("memory_mib", view.memory_mib);
  body.set("disk_mib", view.disk_mib);
  body.set("metadata", texts_of(view.metadata));
  body.set("on_timeout", view.on_timeout == NewSandbox::OnTimeout::kKill ? "kill" : "pause");
  body.set("auto_resume", view.auto_resume);
  return body;
}

// What of the spec is not the sandbox's form: who it is made from, its time, its variables. The
// fleet lays the rest over the template.
Status read_spec(const Object& body, NewSandbox& wanted) {
  TRY_ASSIGN(const auto given, body.object("spec"));
  if (!given.has_value()) return {};
  wanted.spec = json::serialize(given->value());
  auto values = policy::parse_spec(wanted.spec, policy::Format::kJson);
  if (!values.has_value()) return fail(std::move(values).error().with("spec"));
  wanted.template_name = values->image;
  TRY_ASSIGN(const auto limits, given->object("limits"));
  if (limits.has_value() && limits->find("timeout") != nullptr) {
    if (!values->limits.timeout_ms.has_value())
      return fail(policy::wrong("spec.limits.timeout", "unlimited", "a time"));
    // Rounded up: nothing is over before its time.
    wanted.timeout = seconds((*values->limits.timeout_ms + 999) / 1000);
  }
  json::Value env = json::Value::object();
  for (auto& [name, value] : values->env) env.set(name, std::move(value));
  json::Value held = json::Value::object();
  held.set("env", std::move(env));
  TRY_ASSIGN(wanted.env, read_env(Object(held, "spec"), "env"));
  return {};
}

Result<NewSandbox> parse_new(const json::Value& value) {
  const Object body(value);
  TRY(body.only({"spec", "on_timeout", "auto_resume", "metadata"}));
  NewSandbox wanted;
  TRY(read_spec(body, wanted));
  TRY_ASSIGN(const auto on_timeout, body.text("on_timeout", 16));
  if (on_timeout.has_value() && on_timeout != "kill" && on_timeout != "pause")
    return fail(policy::wrong("on_timeout", policy::quote(*on_timeout), "kill or pause"));
  if (on_timeout == "pause") wanted.on_timeout = NewSandbox::OnTimeout::kPause;
  TRY_ASSIGN(const auto resume, body.truth("auto_resume"));
  wanted.auto_resume = resume.value_or(false);
  TRY_ASSIGN(wanted.metadata, read_metadata(body, "metadata"));
  return wanted;
}

io::Async<Result<Answer>> create(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kOptional));
  CO_TRY_ASSIGN(NewSandbox wanted, parse_new(body));
  CO_TRY_ASSIGN(const auto made, co_await create_sandbox(call, std::move(wanted)));
  Answer answer = Answer::json(201, body_of(made->view()));
  answer.head.headers.add("Location", "/v1/sandboxes/" + made->view().id);
  co_return answer;
}

Result<fleet::ListQuery> parse_list(const Call& call) {
  fleet::ListQuery query;
  TRY_ASSIGN(const auto limit, query_number(call, "limit", 1, kMostListed));
  query.limit = static_cast<std::size_t>(limit.value_or(kMostListed));
  const std::string_view state = call.query("state").value_or("");
  if (state != "" && state != "running" && state != "paused")
    return fail(policy::wrong("state", policy::quote(state), "running or paused"));
  query.running = state != "paused";
  query.paused = state != "running";
  query.after = call.query("after").value_or("");
  return query;
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(const fleet::ListQuery query, parse_list(call));
  CO_TRY_ASSIGN(const fleet::ListPage page, call.backend.fleet.list(call.team, query));
  json::Value sandboxes = json::Value::array();
  for (const fleet::SandboxView& view : page.sandboxes) sandboxes.push(body_of(view));
  json::Value body = json::Value::object();
  body.set("sandboxes", std::move(sandboxes));
  if (!page.next_token.empty()) body.set("next", page.next_token);
  co_return Answer::json(200, body);
}

// What is so now, for every call that changed it.
Result<Answer> shown(const Call& call) {
  TRY_ASSIGN(const std::shared_ptr<fleet::Served> found, sandbox_of(call));
  return Answer::json(200, body_of(found->view()));
}

io::Async<Result<Answer>> get(Call& call) {
  co_return shown(call);
}

io::Async<Result<Answer>> kill(Call& call) {
  CO_TRY(co_await call.backend.fleet.kill(call.team, call.parameter(0)));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> set_deadline(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  const Object body(value);
  CO_TRY(body.only({"seconds"}));
  CO_TRY_ASSIGN(const auto from_now, body.integer("seconds", 1, kMostSeconds));
  if (!from_now.has_value())
    co_return fail(policy::wrong("seconds", "nothing", "a number of seconds from now"));
  CO_TRY(co_await call.backend.fleet.set_timeout(call.team, call.parameter(0), seconds(*from_now),
                                                 fleet::Fleet::Timeout::kSet));
  co_return shown(call);
}

// The policy of a spec, and what is so then.
io::Async<Result<Answer>> set_network(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY(Object(value).only({"network"}));
  if (value.find("network") == nullptr)
    co_return fail(policy::wrong("network", "nothing", "deny, allow-public or a policy"));
  CO_TRY_ASSIGN(policy::NetworkPolicy network,
                policy::parse_network_policy(json::serialize(value), policy::Format::kJson));
  CO_TRY_ASSIGN(const std::shared_ptr<fleet::Served> found, sandbox_of(call));
  if (!found->view().has_network)
    co_return fail(Error::precondition("the sandbox was made without a network"));
  CO_TRY(co_await call.backend.fleet.set_network(call.team, call.parameter(0), std::move(network),
                                                 "{}", {}));
  co_return shown(call);
}

// Asking for what is so already is no error, neither here nor below.
io::Async<Result<Answer>> pause(Call& call) {
  CO_TRY_ASSIGN(const std::shared_ptr<fleet::Served> found, sandbox_of(call));
  if (found->view().state == fleet::State::kPaused) co_return shown(call);
  CO_TRY(co_await call.backend.fleet.pause(call.team, call.parameter(0), fleet::Keep::kMemory));
  co_return shown(call);
}

io::Async<Result<Answer>> resume(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kOptional));
  const Object body(value);
  CO_TRY(body.only({"seconds"}));
  CO_TRY_ASSIGN(const auto from_now, body.integer("seconds", 1, kMostSeconds));
  CO_TRY_ASSIGN(const std::shared_ptr<fleet::Served> found, sandbox_of(call));
  if (found->view().state == fleet::State::kRunning) co_return shown(call);
  CO_TRY(co_await call.backend.fleet.connect(call.team, call.parameter(0),
                                             seconds(from_now.value_or(kUsualSeconds)),
                                             fleet::Resume::kWhatWasKept));
  co_return shown(call);
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/sandboxes", create},
    {"GET", "/v1/sandboxes", list},
    {"GET", "/v1/sandboxes/{id}", get},
    {"DELETE", "/v1/sandboxes/{id}", kill},
    {"PUT", "/v1/sandboxes/{id}/deadline", set_deadline},
    {"PUT", "/v1/sandboxes/{id}/network", set_network},
    {"POST", "/v1/sandboxes/{id}/pause", pause},
    {"POST", "/v1/sandboxes/{id}/resume", resume},
};

}  // namespace

std::span<const Route> sandbox_routes() {
  return kRoutes;
}

}  // namespace caisson::api::v1
