// Commands: exec, which ends with its client, and kept ones, which have a number and go on.
#include <algorithm>
#include <array>
#include <charconv>

#include "api/e2b/process.h"
#include "api/exec_lines.h"
#include "api/sandbox_fields.h"
#include "api/v1/command.h"
#include "api/v1/routes.h"
#include "api/v1/sandbox.h"
#include "base/encoding.h"
#include "base/time_text.h"
#include "base/verdict.h"
#include "box/result_json.h"
#include "io/race.h"
#include "policy/complain.h"

namespace caisson::api::v1 {
namespace {

using fleet::BoxStream;
using fleet::Served;
using proto::FieldReader;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

constexpr std::int64_t kMostOutputKept = 1 << 20;
constexpr std::int64_t kMostSignal = 64;
constexpr std::size_t kInputPiece = 64 * 1024;
constexpr std::uint8_t kKeep = 1, kKeepAndEnd = 2;

// ---- exec

// Writes the input beside the reading of the output; each would otherwise wait for the other.
io::Async<void> feed(std::shared_ptr<BoxStream> stream, std::string input) {
  // A command that ends, or does not read, needs no input.
  const Status written = co_await stream->write(std::move(input));
  if (written.has_value()) stream->finish();
}

io::Async<Result<Answer>> exec(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  const Object body(value);
  CO_TRY(body.only({"command", "env", "workdir", "user", "timeout_ms", "cpu_time_ms",
                    "output_bytes", "terminal", "input"}));
  CO_TRY_ASSIGN(proto::Fields open, read_command(body, *sandbox));
  CO_TRY_ASSIGN(auto input, body.text("input", kMostBody));
  open.put_u8(Tag::kStdin, input.value_or("").empty() ? 0 : 1);
  CO_TRY(check_size(open));
  CO_TRY_ASSIGN(fleet::BoxClient * client, sandbox->client());
  CO_TRY_ASSIGN(auto opened, client->open(proto::Kind::kExec, open));
  // Shared with the coroutine that writes the input.
  const std::shared_ptr<BoxStream> stream = std::move(opened);
  if (!input.value_or("").empty()) call.backend.loop.spawn(feed(stream, std::move(*input)));
  co_return co_await follow(call, *sandbox, stream, WithClient::kEnds);
}

// ---- kept commands

json::Value result_of(const Outcome& outcome, const Served& sandbox) {
  RunResult result;
  result.outcome = outcome;
  return box::result_value(result, {.wall = "namespace",
                                    .image = sandbox.view().template_id,
                                    .output = box::ResultContext::Output::kElsewhere});
}

// As the supervisor lists it. nullopt: the end of the list.
Result<std::optional<json::Value>> listed(std::string_view payload, const Served& sandbox) {
  TRY_ASSIGN(const FieldReader fields, FieldReader::parse(payload));
  const auto number = fields.number_or_none(Tag::kCommand);
  if (!number.has_value()) return std::nullopt;
  json::Value command = json::Value::object();
  command.set("number", *number);
  command.set("pid", fields.number_or_none(Tag::kPid).value_or(0));
  const std::string_view label = fields.text(Tag::kLabel).value_or("");
  command.set("label", is_utf8(label) ? label : "");
  const auto started = fields.number_or_none(Tag::kStartedMs).value_or(0);
  command.set("started",
              time_text(WallTime(std::chrono::milliseconds(static_cast<std::int64_t>(started)))));
  const bool ended = fields.has(Tag::kVerdict);
  command.set("state", ended ? "ended" : "running");
  command.set("takes_input", !ended && fields.number_or_none(Tag::kStdin).value_or(0) != 0);
  if (!ended) return command;
  TRY_ASSIGN(const Outcome outcome, decode_outcome(payload));
  command.set("result", result_of(outcome, sandbox));
  return command;
}

io::Async<Result<json::Value>> all_commands(std::shared_ptr<Served> sandbox) {
  CO_TRY_ASSIGN(const std::vector<std::string> answers,
                co_await ask(sandbox, proto::ControlOperation::kListCommands));
  json::Value commands = json::Value::array();
  for (const std::string& answer : answers) {
    CO_TRY_ASSIGN(std::optional<json::Value> command, listed(answer, *sandbox));
    if (command.has_value()) commands.push(std::move(*command));
  }
  co_return commands;
}

Error no_such_command(std::string_view number) {
  return Error::not_found("command " + policy::quote(number) +
                          " not found; those that ended are forgotten after 30 seconds");
}

// The number in the path. Error: not_found, since nothing else is a command's.
Result<std::uint32_t> number_of(const Call& call) {
  const std::string& text = call.parameter(1);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number == 0)
    return fail(no_such_command(text));
  return number;
}

// A kept command of a path, as it is listed.
struct Found {
  std::shared_ptr<Served> sandbox;
  std::uint32_t number = 0;
  json::Value shown;
};
io::Async<Result<Found>> command_of(const Call& call) {
  Found found;
  CO_TRY_ASSIGN(found.sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(found.number, number_of(call));
  CO_TRY_ASSIGN(const json::Value commands, co_await all_commands(found.sandbox));
  for (const json::Value& command : *commands.as_array()) {
    if (*command.find("number") == json::Value(found.number)) {
      found.shown = command;
      co_return found;
    }
  }
  co_return fail(no_such_command(call.parameter(1)));
}

// A stream to one that runs. Error: also failed_precondition, where it has ended.
struct Joined {
  Found command;
  std::shared_ptr<BoxStream> stream;
};
io::Async<Result<Joined>> join_running(const Call& call) {
  CO_TRY_ASSIGN(Found found, co_await command_of(call));
  const Error ended = Error::precondition("command " + call.parameter(1) + " has ended");
  if (*found.shown.find("state") != json::Value("running")) co_return fail(ended);
  const e2b::Request request{.exchange = call.exchange, .sandbox = found.sandbox};
  auto stream = co_await e2b::join_process(request, found.number);
  if (!stream.has_value()) {
    // It ended meanwhile.
    if (stream.error().code() == Code::kNotFound) co_return fail(ended);
    co_return fail(std::move(stream).error());
  }
  co_return Joined{std::move(found), std::move(*stream)};
}

Result<proto::Fields> parse_kept(const Object& body, const Served& sandbox) {
  TRY(body.only({"command", "env", "workdir", "user", "timeout_ms", "cpu_time_ms", "output_bytes",
                 "terminal", "input", "label", "output_kept", "ends_sandbox"}));
  TRY_ASSIGN(proto::Fields open, read_command(body, sandbox));
  TRY_ASSIGN(const auto input, body.truth("input"));
  open.put_u8(Tag::kStdin, input.value_or(false) ? 1 : 0);
  TRY_ASSIGN(const auto label, body.text("label", proto::kMaxLabel));
  if (label.has_value()) open.put(Tag::kLabel, *label);
  TRY_ASSIGN(const auto kept, body.integer("output_kept", 0, kMostOutputKept));
  // As much as there is, so that who reads along misses nothing.
  open.put_u32(Tag::kKeepOutput, static_cast<std::uint32_t>(kept.value_or(kMostOutputKept)));
  TRY_ASSIGN(const auto last, body.truth("ends_sandbox"));
  open.put_u8(Tag::kKeep, last.value_or(false) ? kKeepAndEnd : kKeep);
  TRY(check_size(open));
  return open;
}

// How a command ended that could not be started. Error: the request itself was refused.
Result<json::Value> not_started(std::string_view payload, const Served& sandbox) {
  TRY_ASSIGN(const FieldReader fields, FieldReader::parse(payload));
  if (!fields.has(Tag::kVerdict)) {
    std::optional<Error> error = fields.error();
    return fail(error.has_value() ? Error(error->code(), error->message())
                                  : Error::internal("the command was not run"));
  }
  TRY_ASSIGN(const Outcome outcome, decode_outcome(payload));
  json::Value body = json::Value::object();
  body.set("result", result_of(outcome, sandbox));
  return body;
}

io::Async<Result<Answer>> start(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  CO_TRY_ASSIGN(const proto::Fields open, parse_kept(Object(value), *sandbox));
  CO_TRY_ASSIGN(fleet::BoxClient * client, sandbox->client());
  CO_TRY_ASSIGN(const auto stream, client->open(proto::Kind::kExec, open));
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream->next());
    if (message.kind == Kind::kClose) {
      CO_TRY_ASSIGN(const json::Value body, not_started(message.bytes, *sandbox));
      co_return Answer::json(200, body);
    }
    if (message.kind != Kind::kEvent) continue;
    CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(message.bytes));
    const auto number = fields.number_or_none(Tag::kCommand);
    const auto pid = fields.number_or_none(Tag::kStarted);
    if (!number.has_value() || !pid.has_value()) continue;
    json::Value body = json::Value::object();
    body.set("number", *number);
    body.set("pid", *pid);
    Answer answer = Answer::json(201, body);
    answer.head.headers.add(
        "Location", "/v1/sandboxes/" + call.parameter(0) + "/commands/" + std::to_string(*number));
    co_return answer;
  }
}

io::Async<Result<Answer>> list(Call& call) {
  CO_TRY_ASSIGN(std::shared_ptr<Served> sandbox, running_sandbox_of(call));
  json::Value body = json::Value::object();
  CO_TRY_ASSIGN(json::Value commands, co_await all_commands(std::move(sandbox)));
  body.set("commands", std::move(commands));
  co_return Answer::json(200, body);
}

io::Async<Result<Answer>> get(Call& call) {
  CO_TRY_ASSIGN(const Found found, co_await command_of(call));
  co_return Answer::json(200, found.shown);
}

io::Async<Result<Answer>> output(Call& call) {
  const std::string_view from = call.query("from").value_or("oldest");
  const std::array<std::string_view, 3> kFrom = {"kept", "oldest", "now"};  // values of kAttach
  const auto place = std::ranges::find(kFrom, from);
  if (place == kFrom.end())
    co_return fail(policy::wrong("from", policy::quote(from), "kept, oldest or now"));
  CO_TRY_ASSIGN(const Answered ends, query_truth(call, "ends_with_client"));
  CO_TRY_ASSIGN(const Found found, co_await command_of(call));
  proto::Fields fields;
  fields.put_u8(Tag::kAttach, static_cast<std::uint8_t>(place - kFrom.begin()))
      .put_u32(Tag::kCommand, found.number);
  CO_TRY_ASSIGN(fleet::BoxClient * client, found.sandbox->client());
  CO_TRY_ASSIGN(auto opened, client->open(proto::Kind::kExec, fields));
  co_return co_await follow(call, *found.sandbox, std::move(opened),
                            ends == Answered::kYes ? WithClient::kEnds : WithClient::kGoesOn);
}

// Nobody is to wait for a reader of the output here.
io::Async<void> drop_output(BoxStream& stream) {
  for (;;) {
    const auto message = co_await stream.next();
    if (!message.has_value() || message->kind == Kind::kClose) co_return;
  }
}

enum class End : std::uint8_t { kStaysOpen, kCloses };

io::Async<void> pass_input(http::Exchange& exchange, BoxStream& stream, End end, Status& result) {
  for (;;) {
    auto piece = co_await exchange.read_some(kInputPiece);
    if (!piece.has_value()) {
      result = fail(std::move(piece).error());
      co_return;
    }
    if (piece->empty()) break;
    const Status written = co_await stream.write(std::move(*piece));
    if (!written.has_value()) {
      result = written;
      co_return;
    }
  }
  if (end == End::kCloses) stream.finish();
  // What the supervisor still holds when its stream ends may be too much for it.
  result = co_await stream.taken();
}

io::Async<Result<Answer>> input(Call& call) {
  CO_TRY_ASSIGN(const Answered end, query_truth(call, "end"));
  CO_TRY_ASSIGN(const Joined joined, co_await join_running(call));
  if (*joined.command.shown.find("takes_input") != json::Value(true))
    co_return fail(
        Error::precondition("command " + call.parameter(1) + " takes no input, or no more"));
  Status result = fail(Error::precondition("command " + call.parameter(1) + " has ended"));
  co_await io::race(pass_input(call.exchange, *joined.stream,
                               end == Answered::kYes ? End::kCloses : End::kStaysOpen, result),
                    drop_output(*joined.stream));
  CO_TRY(Status(result));
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> signal(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  const Object body(value);
  CO_TRY(body.only({"signal"}));
  CO_TRY_ASSIGN(const auto number, body.integer("signal", 1, kMostSignal));
  if (!number.has_value())
    co_return fail(policy::wrong("signal", "nothing", "a number from 1 to 64"));
  CO_TRY_ASSIGN(const Joined joined, co_await join_running(call));
  proto::Fields fields;
  fields.put_u32(Tag::kSignal, static_cast<std::uint32_t>(*number));
  joined.stream->control(fields);
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> resize(Call& call) {
  CO_TRY_ASSIGN(const json::Value value, co_await read_object(call.exchange, Body::kRequired));
  CO_TRY_ASSIGN(const std::string size, read_terminal(Object(value)));
  CO_TRY_ASSIGN(const Joined joined, co_await join_running(call));
  proto::Fields fields;
  fields.put(Tag::kResize, size);
  joined.stream->control(fields);
  co_return Answer::empty(204);
}

io::Async<Result<Answer>> cancel(Call& call) {
  CO_TRY_ASSIGN(const Joined joined, co_await join_running(call));
  end_command(*joined.stream);
  co_return Answer::empty(204);
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/sandboxes/{id}/exec", exec},
    {"POST", "/v1/sandboxes/{id}/commands", start},
    {"GET", "/v1/sandboxes/{id}/commands", list},
    {"GET", "/v1/sandboxes/{id}/commands/{number}", get},
    {"DELETE", "/v1/sandboxes/{id}/commands/{number}", cancel},
    {"GET", "/v1/sandboxes/{id}/commands/{number}/output", output},
    {"POST", "/v1/sandboxes/{id}/commands/{number}/input", input},
    {"POST", "/v1/sandboxes/{id}/commands/{number}/signal", signal},
    {"PUT", "/v1/sandboxes/{id}/commands/{number}/terminal", resize},
};

}  // namespace

std::span<const Route> command_routes() {
  return kRoutes;
}

}  // namespace caisson::api::v1
