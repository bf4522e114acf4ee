// process.Process, Start and Connect: what a process says, from its birth or from now on to its
// end. A process outlives whoever reads it.
#include <algorithm>
#include <functional>
#include <map>

#include "api/e2b/messages.h"
#include "api/e2b/methods.h"
#include "api/e2b/path.h"
#include "api/e2b/process.h"
#include "base/verdict.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using json::Value;
using proto::FieldReader;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

namespace {

// The supervisor looks at times every 100 ms; only one that does not answer any more is waited for
// so long behind the deadline.
constexpr auto kGrace = std::chrono::seconds(5);
// Of output that a reader who lags behind still finds.
constexpr std::uint32_t kKeptOutput = 1u << 20;
constexpr std::uint16_t kUsualColumns = 80, kUsualRows = 24;

Value event_message(std::string_view name, Value event) {
  Value inner = Value::object();
  inner.set(name, std::move(event));
  Value message = Value::object();
  return message.set("event", std::move(inner));
}

Value data_message(Terminal terminal, BoxStream::Message message) {
  const char* name = "pty";
  if (terminal == Terminal::kNone)
    name = message.channel == proto::Channel::kErr ? "stderr" : "stdout";
  Value data = Value::object();
  data.set(name, std::move(message.bytes));
  return event_message("data", std::move(data));
}

// Passes on what one stream of a process says.
class Reading {
 public:
  // Gets the pid and the supervisor's number at the process's birth, before the client does.
  using OnStart = std::function<void(std::uint32_t pid, std::uint32_t number)>;
  Reading(const Request& request, RpcAnswer& answer, Terminal terminal, OnStart on_start = nullptr)
      : answer_(answer),
        terminal_(terminal),
        ping_(ping_interval(request)),
        on_start_(std::move(on_start)) {}

  // `until`: when it is over in any case. nullopt: then; else the payload of the stream's CLOSE.
  io::Async<Result<std::optional<std::string>>> run(BoxStream& stream,
                                                    std::optional<io::Clock::time_point> until);
  bool started() const { return started_; }
  std::uint32_t number() const { return number_; }

 private:
  io::Async<Status> pass_event(std::string_view payload);

  RpcAnswer& answer_;
  Terminal terminal_;
  std::chrono::seconds ping_;
  OnStart on_start_;
  bool started_ = false;
  std::uint32_t pid_ = 0, number_ = 0;
};

io::Async<Status> Reading::pass_event(std::string_view payload) {
  CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(payload));
  if (const auto pid = fields.number_or_none(Tag::kStarted); pid.has_value()) {
    started_ = true;
    pid_ = static_cast<std::uint32_t>(*pid);
    number_ = static_cast<std::uint32_t>(fields.number_or_none(Tag::kCommand).value_or(0));
    if (on_start_ != nullptr) on_start_(pid_, number_);
    Value start = Value::object();
    start.set("pid", pid_);
    co_return co_await answer_.send(event_message("start", std::move(start)));
  }
  if (const auto missed = fields.number_or_none(Tag::kMissed); missed.has_value()) {
    co_return fail(Error(Code::kDataLoss, "the output came faster than it was read, and " +
                                              std::to_string(*missed) +
                                              " bytes of it are lost; the process goes on"));
  }
  co_return Status();
}

io::Async<Result<std::optional<std::string>>> Reading::run(
    BoxStream& stream, std::optional<io::Clock::time_point> until) {
  for (;;) {
    // Nothing is answered before the process has started: how that fails is told by the last
    // message alone.
    const auto quiet_until = started_ ? io::Clock::now() + ping_ : io::Clock::time_point::max();
    CO_TRY_ASSIGN(std::optional<BoxStream::Message> message,
                  co_await stream.next_until(std::min(quiet_until, until.value_or(quiet_until))));
    if (!message.has_value()) {
      if (until.has_value() && io::Clock::now() >= *until) co_return std::nullopt;
      CO_TRY(co_await answer_.send(event_message("keepalive", Value::object())));
      continue;
    }
    switch (message->kind) {
      case Kind::kEvent:
        CO_TRY(co_await pass_event(message->bytes));
        break;
      case Kind::kData:
        CO_TRY(co_await answer_.send(data_message(terminal_, std::move(*message))));
        break;
      case Kind::kFinish:
        break;
      case Kind::kClose:
        co_return std::move(message->bytes);
    }
  }
}

Status check_variable(std::string_view name, std::string_view value) {
  if (name.empty() || name.find('=') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos || value.find('\0') != std::string_view::npos) {
    return fail(Error::invalid("process.envs: '" + std::string(name) +
                               "': a name is not empty and has no '=', and neither it nor its "
                               "value has a zero byte"));
  }
  return {};
}

// The command that a StartRequest asks for.
struct Start {
  proto::Fields fields;
  std::string user, cwd;
  ProcessLabel label;
};

io::Async<Result<std::string>> directory_of(const Request& request, std::string user,
                                            const Value& config) {
  const std::string workdir = request.sandbox->default_workdir();
  const std::string given(text_of(config, "cwd"));
  if (given.empty()) co_return workdir;
  Account account{.name = std::move(user)};
  if (needs_home(given, workdir)) {
    CO_TRY_ASSIGN(account, co_await look_up(request, account.name));
  }
  co_return path_for(request, account, given);
}

Status put_environment(const Request& request, const Value& config, proto::Fields& fields) {
  std::map<std::string, std::string> variables = request.sandbox->env();
  if (const Value* envs = config.find("envs")) {
    for (const json::Member& member : *envs->as_object()) {
      TRY(check_variable(member.key, *member.value.as_string()));
      variables[member.key] = *member.value.as_string();
    }
  }
  for (const auto& [name, value] : variables) fields.put(Tag::kEnv, name + "=" + value);
  return {};
}

Status put_terminal(const Value& message, Start& start) {
  if (const Value* pty = message.find("pty")) {
    Value size = Value::object();
    if (const Value* given = pty->find("size")) size = *given;
    if (number_of(size, "cols") == 0) size.set("cols", kUsualColumns);
    if (number_of(size, "rows") == 0) size.set("rows", kUsualRows);
    TRY_ASSIGN(const std::string bytes, terminal_size(size));
    start.fields.put(Tag::kPty, bytes);
    start.label.terminal = Terminal::kPty;
  } else {
    // Clients from before there was a choice expect a pipe.
    const bool piped = message.find("stdin") == nullptr || truth_of(message, "stdin");
    start.fields.put_u8(Tag::kStdin, piped ? 1 : 0);
  }
  return {};
}

io::Async<Result<Start>> start_of(const Request& request, const Value& message) {
  const Value* config = message.find("process");
  const std::string command(config != nullptr ? text_of(*config, "cmd") : std::string_view());
  if (command.empty()) co_return fail(Error::invalid("process.cmd: it is empty"));
  Start start;
  CO_TRY_ASSIGN(start.user, user_of(request));
  CO_TRY(check_user_name(start.user));
  CO_TRY_ASSIGN(start.cwd, co_await directory_of(request, start.user, *config));
  start.label.config = *config;
  if (message.find("tag") != nullptr) {
    start.label.tag = std::string(text_of(message, "tag"));
    if (start.label.tag->size() > kMaxTag)
      co_return fail(Error::invalid("tag: it has more than " + std::to_string(kMaxTag) + " bytes"));
  }
  start.fields.put(Tag::kArg, command).put(Tag::kUser, start.user);
  if (const Value* args = config->find("args")) {
    for (const Value& arg : *args->as_array()) start.fields.put(Tag::kArg, *arg.as_string());
  }
  if (!start.cwd.empty()) start.fields.put(Tag::kCwd, start.cwd);
  CO_TRY(put_environment(request, *config, start.fields));
  CO_TRY(put_terminal(message, start));
  start.fields.put_u8(Tag::kKeep, 1)
      .put_u32(Tag::kKeepOutput, kKeptOutput)
      .put(Tag::kLabel, encode_label(start.label));
  if (request.deadline.has_value()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*request.deadline - io::Clock::now());
    start.fields.put_u64(Tag::kTimeLimitMs,
                         static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 1)));
  }
  co_return start;
}

// Why a process did not start, as clients know it.
Error not_started(const Start& start, const FieldReader& close, const Outcome& outcome) {
  using proto::ErrorSubject;
  const auto subject =
      static_cast<ErrorSubject>(close.number_or_none(Tag::kErrorSubject).value_or(0));
  const auto error_number = close.number_or_none(Tag::kErrorErrno).value_or(0);
  switch (subject) {
    case ErrorSubject::kUser:
      return Error(Code::kUnauthenticated, "invalid username: '" + start.user + "'");
    case ErrorSubject::kDirectory: {
      std::string text = "cwd '" + start.cwd + "' ";
      text += error_number == ENOENT    ? "does not exist"
              : error_number == ENOTDIR ? "is not a directory"
                                        : "cannot be entered";
      return Error::invalid(text);
    }
    case ErrorSubject::kProgram:
      return Error::invalid("error starting process '" +
                            std::string(text_of(start.label.config, "cmd")) +
                            "': " + outcome.detail);
  }
  return Error::internal(outcome.detail.empty() ? "the process did not start" : outcome.detail);
}

// What the sandbox's log has of a process. Not its arguments, which may be secret.
std::map<std::string, std::string> log_fields(const ProcessLabel& label, std::uint32_t pid) {
  std::map<std::string, std::string> fields = {{"cmd", std::string(text_of(label.config, "cmd"))},
                                               {"pid", std::to_string(pid)}};
  if (label.tag.has_value()) fields["tag"] = *label.tag;
  return fields;
}

// The end of a reading. A sandbox that is being killed ends its commands too: of that no end is
// told, the connection breaks off.
io::Async<Status> tell_end(const Request& request, RpcAnswer& answer, const Outcome& outcome) {
  if (request.sandbox->ended()) {
    request.exchange.abort();
    co_return fail(Error::unavailable("the sandbox has ended"));
  }
  CO_TRY_ASSIGN(Value end, end_event(outcome));
  co_return co_await answer.send(event_message("end", std::move(end)));
}

io::Async<Status> start_process(const Request& request, const Value& message, RpcAnswer& answer) {
  CO_TRY_ASSIGN(const Start start, co_await start_of(request, message));
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                open_stream(request, proto::Kind::kExec, start.fields));
  const auto note_start = [&](std::uint32_t pid, std::uint32_t number) {
    request.sandbox->note_start(number, log_fields(start.label, pid));
  };
  Reading reading(request, answer, start.label.terminal, note_start);
  const auto too_late = [] {
    return fail(Error(Code::kDeadlineExceeded, "the process was killed at the request's deadline"));
  };
  std::optional<io::Clock::time_point> until = request.deadline;
  if (until.has_value()) *until += kGrace;
  CO_TRY_ASSIGN(const std::optional<std::string> close, co_await reading.run(*stream, until));
  if (!close.has_value()) {
    constexpr std::uint32_t kKill = 9;
    proto::Fields kill;
    kill.put_u32(Tag::kSignal, kKill);
    stream->control(kill);
    co_return too_late();
  }
  CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(*close));
  if (!fields.has(Tag::kVerdict)) {
    CO_TRY(status_of_close(*close));
    co_return fail(Error::internal("the supervisor told no verdict"));
  }
  CO_TRY_ASSIGN(const Outcome outcome, decode_outcome(*close));
  if (!reading.started()) co_return fail(not_started(start, fields, outcome));
  request.sandbox->note_end(reading.number(), outcome);
  if (outcome.verdict == Verdict::kTimeLimit && request.deadline.has_value()) co_return too_late();
  co_return co_await tell_end(request, answer, outcome);
}

io::Async<Status> connect_process(const Request& request, const Value& message, RpcAnswer& answer) {
  CO_TRY_ASSIGN(const Process process, co_await select_process(request, message, Wanted::kAny));
  constexpr std::uint8_t kFromNow = 2;
  proto::Fields fields;
  fields.put_u8(Tag::kAttach, kFromNow).put_u32(Tag::kCommand, process.number);
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                open_stream(request, proto::Kind::kExec, fields));
  Reading reading(request, answer, process.label.terminal);
  CO_TRY_ASSIGN(const std::optional<std::string> close,
                co_await reading.run(*stream, request.deadline));
  if (!close.has_value())
    co_return fail(Error(Code::kDeadlineExceeded, "the time to read the process is over"));
  CO_TRY(status_of_close(*close));
  CO_TRY_ASSIGN(const Outcome outcome, decode_outcome(*close));
  co_return co_await tell_end(request, answer, outcome);
}

const StreamMethod kStreams[] = {
    {"/process.Process/Start", kStartRequest, kProcessStream, start_process},
    {"/process.Process/Connect", kConnectRequest, kProcessStream, connect_process},
};

}  // namespace

std::span<const StreamMethod> process_streams() {
  return kStreams;
}

}  // namespace caisson::api::e2b
