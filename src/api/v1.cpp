#include "api/v1.h"

#include <charconv>

#include "api/body.h"
#include "api/exec_lines.h"
#include "api/sandbox_fields.h"
#include "base/proto.h"
#include "base/time_text.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

using fleet::NewSandbox;
using proto::Tag;

constexpr std::size_t kMostArguments = 4096;

json::Value texts_of(const Texts& map) {
  json::Value object = json::Value::object();
  for (const auto& [key, value] : map) object.set(key, value);
  return object;
}

json::Value body_of(const fleet::SandboxView& view) {
  json::Value body = json::Value::object();
  body.set("id", view.id);
  body.set("template", view.template_id);
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

Result<NewSandbox> parse_new(const json::Value& value) {
  const Object body(value);
  TRY(body.only({"template", "timeout_seconds", "on_timeout", "auto_resume", "env", "metadata"}));
  NewSandbox wanted;
  TRY_ASSIGN(auto name, body.text("template", kMostTemplateName));
  if (name.value_or("").empty()) {
    return fail(policy::wrong("template", "nothing", "a template's name or id"));
  }
  wanted.template_name = std::move(*name);
  TRY_ASSIGN(const auto timeout, body.integer("timeout_seconds", 1, kMostSeconds));
  if (timeout.has_value()) wanted.timeout = std::chrono::seconds(*timeout);
  TRY_ASSIGN(const auto on_timeout, body.text("on_timeout", 16));
  if (on_timeout.has_value() && on_timeout != "kill" && on_timeout != "pause") {
    return fail(policy::wrong("on_timeout", policy::quote(*on_timeout), "kill or pause"));
  }
  if (on_timeout == "pause") wanted.on_timeout = NewSandbox::OnTimeout::kPause;
  TRY_ASSIGN(const auto resume, body.truth("auto_resume"));
  wanted.auto_resume = resume.value_or(false);
  TRY_ASSIGN(wanted.env, read_env(body, "env"));
  TRY_ASSIGN(wanted.metadata, read_metadata(body, "metadata"));
  return wanted;
}

io::Async<Result<Answer>> create(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(NewSandbox wanted, parse_new(body));
  CO_TRY_ASSIGN(const auto made, co_await call.backend.fleet.create(call.team, std::move(wanted)));
  Answer answer = Answer::json(201, body_of(made->view()));
  answer.head.headers.add("Location", "/v1/sandboxes/" + made->view().id);
  co_return answer;
}

Result<fleet::ListQuery> parse_list(const Call& call) {
  fleet::ListQuery query;
  if (const auto text = call.query("limit")) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (error != std::errc() || end != text->data() + text->size() || query.limit < 1 ||
        query.limit > 100) {
      return fail(policy::wrong("limit", policy::quote(*text), "a number from 1 to 100"));
    }
  }
  const std::string_view state = call.query("state").value_or("");
  if (state != "" && state != "running" && state != "paused") {
    return fail(policy::wrong("state", policy::quote(state), "running or paused"));
  }
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

io::Async<Result<Answer>> get(Call& call) {
  const std::string& id = call.parameter(0);
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr || found->ended()) co_return fail(no_such_sandbox(id));
  co_return Answer::json(200, body_of(found->view()));
}

io::Async<Result<Answer>> kill(Call& call) {
  CO_TRY(co_await call.backend.fleet.kill(call.team, call.parameter(0)));
  co_return Answer::empty(204);
}

struct Exec {
  proto::Fields open;
  std::string input;
};

Result<Exec> parse_exec(const json::Value& value, const fleet::Served& served) {
  const Object body(value);
  TRY(body.only({"command", "env", "workdir", "user", "input", "timeout_ms"}));
  Exec exec;
  TRY_ASSIGN(const auto command, body.texts("command", kMostArguments, proto::kMaxPayload));
  if (!command.has_value() || command->empty() || command->front().empty()) {
    return fail(policy::wrong("command", "nothing", "an array of a program and its arguments"));
  }
  for (const std::string& argument : *command) {
    if (argument.contains('\0')) {
      return fail(policy::wrong("command", "a zero byte", "arguments without any"));
    }
    exec.open.put(Tag::kArg, argument);
  }
  // The request's own go before the sandbox's.
  TRY_ASSIGN(Texts env, read_env(body, "env"));
  env.insert(served.env().begin(), served.env().end());
  for (const auto& [name, text] : env) exec.open.put(Tag::kEnv, name + "=" + text);
  TRY_ASSIGN(const auto workdir, body.text("workdir", 4096));
  const std::string where = workdir.value_or(served.default_workdir());
  if (!where.empty()) exec.open.put(Tag::kCwd, where);
  TRY_ASSIGN(const auto user, body.text("user", 256));
  exec.open.put(Tag::kUser, user.value_or(served.default_user()));
  TRY_ASSIGN(const auto timeout, body.integer("timeout_ms", 1, kMostSeconds * 1000));
  if (timeout.has_value()) {
    exec.open.put_u64(Tag::kTimeLimitMs, static_cast<std::uint64_t>(*timeout));
  }
  TRY_ASSIGN(auto input, body.text("input", kMostBody));
  exec.input = std::move(input).value_or("");
  exec.open.put_u8(Tag::kStdin, exec.input.empty() ? 0 : 1);
  if (exec.open.bytes().size() > proto::kMaxPayload) {
    return fail(policy::wrong("command and env",
                              std::to_string(exec.open.bytes().size()) + " bytes together",
                              "at most " + std::to_string(proto::kMaxPayload)));
  }
  return exec;
}

// Writes the input beside the reading of the output; each would otherwise wait for the other.
io::Async<void> feed(std::shared_ptr<fleet::BoxStream> stream, std::string input) {
  // A command that ends, or does not read, needs no input.
  const Status written = co_await stream->write(std::move(input));
  if (written.has_value()) stream->finish();
}

void end_command(fleet::BoxStream& stream) {
  stream.control(proto::Fields().put_u8(
      Tag::kControlOperation, static_cast<std::uint8_t>(proto::ControlOperation::kShutdown)));
}

io::Async<Result<Answer>> exec(Call& call) {
  CO_TRY_ASSIGN(const json::Value body, co_await read_object(call.exchange, Body::kRequired));
  const std::string& id = call.parameter(0);
  const std::shared_ptr<fleet::Served> found = call.backend.fleet.find(call.team, id);
  if (found == nullptr || found->ended()) co_return fail(no_such_sandbox(id));
  if (found->view().state == fleet::State::kPaused) {
    co_return fail(Error::precondition("sandbox " + policy::quote(id) + " is paused"));
  }
  CO_TRY_ASSIGN(Exec wanted, parse_exec(body, *found));
  CO_TRY_ASSIGN(fleet::BoxClient * client, found->client());
  CO_TRY_ASSIGN(auto opened, client->open(proto::Kind::kExec, wanted.open));
  // Shared with the coroutine that writes the input.
  const std::shared_ptr<fleet::BoxStream> stream = std::move(opened);
  if (!wanted.input.empty()) call.backend.loop.spawn(feed(stream, std::move(wanted.input)));

  // The command ends with its client, also where it says nothing that could not be delivered.
  call.exchange.on_gone([weak = std::weak_ptr(stream)] {
    if (const std::shared_ptr<fleet::BoxStream> open = weak.lock()) end_command(*open);
  });
  http::ResponseHead head;
  head.headers.add("Content-Type", "application/x-ndjson");
  CO_TRY(co_await call.exchange.begin(std::move(head)));
  ExecLines lines(found->view().template_id);
  while (!lines.ended()) {
    CO_TRY_ASSIGN(const fleet::BoxStream::Message message, co_await stream->next());
    CO_TRY_ASSIGN(const std::string text, lines.take(message));
    if (text.empty()) continue;
    const Status written = co_await call.exchange.write(text);
    if (written.has_value()) continue;
    end_command(*stream);
    co_return Answer::already_sent();
  }
  [[maybe_unused]] const Status ended = co_await call.exchange.end();
  co_return Answer::already_sent();
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/sandboxes", create},         {"GET", "/v1/sandboxes", list},
    {"GET", "/v1/sandboxes/{id}", get},        {"DELETE", "/v1/sandboxes/{id}", kill},
    {"POST", "/v1/sandboxes/{id}/exec", exec},
};

}  // namespace

std::span<const Route> v1_routes() {
  return kRoutes;
}

}  // namespace caisson::api
