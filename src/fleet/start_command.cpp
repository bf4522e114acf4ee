#include "fleet/start_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/verdict.h"
#include "io/latch.h"
#include "io/race.h"

namespace caisson::fleet {

using proto::Tag;
using std::chrono::milliseconds;
using Kind = BoxStream::Message::Kind;

namespace {

constexpr milliseconds kFirstPause{50}, kLongestPause{2000};
// From so much on output is not lost to who follows it.
constexpr std::uint32_t kKeptOutput = 1u << 20;

proto::Fields login_shell(const std::string& command, const StartOptions& options) {
  proto::Fields fields;
  fields.put(Tag::kArg, "/bin/bash").put(Tag::kArg, "-l").put(Tag::kArg, "-c");
  fields.put(Tag::kArg, command).put_u8(Tag::kStdin, 0);
  if (!options.user.empty()) fields.put(Tag::kUser, options.user);
  for (const auto& [name, value] : options.env) fields.put(Tag::kEnv, name + "=" + value);
  return fields;
}

std::string ending(const Outcome& outcome) {
  std::string text = outcome.verdict == Verdict::kExited
                         ? "exit status " + std::to_string(outcome.exit_code)
                         : std::string(to_string(outcome.verdict));
  if (!outcome.detail.empty()) text += ": " + outcome.detail;
  return text;
}

bool succeeded(const Outcome& outcome) {
  return outcome.verdict == Verdict::kExited && outcome.exit_code == 0;
}

// Follows a command to its end. `birth`, where it is given, is told.
io::Async<Result<Outcome>> follow(BoxStream& stream, const StartOptions& options,
                                  io::Latch* birth) {
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream.next());
    if (message.kind == Kind::kData && options.output) options.output(message.bytes);
    if (message.kind == Kind::kEvent && birth != nullptr) birth->set();
    if (message.kind != Kind::kClose) continue;
    CO_TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(message.bytes));
    if (!fields.has(Tag::kVerdict)) {
      const auto error = fields.error();
      co_return fail(error.has_value() ? *error : Error::internal("a command ended untold"));
    }
    co_return decode_outcome(message.bytes);
  }
}

// The start command's failure, if it comes to one; else it waits until it is cancelled.
io::Async<void> watch(io::Loop& loop, BoxStream& stream, const StartOptions& options,
                      io::Latch& birth, std::optional<Error>& failure) {
  auto outcome = co_await follow(stream, options, &birth);
  if (!outcome.has_value()) {
    failure = std::move(outcome).error();
    co_return;
  }
  if (!succeeded(*outcome)) {
    failure = Error::precondition("the start command failed: " + ending(*outcome));
    co_return;
  }
  io::Latch never(loop);
  co_await never.wait();
}

io::Async<Status> try_ready(BoxClient& client, const StartCommand& what,
                            const StartOptions& options) {
  const auto until = io::Clock::now() + options.ready_time;
  milliseconds pause = kFirstPause;
  std::string last = "it did not end";
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - io::Clock::now());
    if (left.count() > 0) {
      proto::Fields fields = login_shell(what.ready, options);
      fields.put_u64(Tag::kTimeLimitMs, static_cast<std::uint64_t>(left.count()));
      CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                    client.open(proto::Kind::kExec, fields));
      CO_TRY_ASSIGN(const Outcome outcome, co_await follow(*stream, options, nullptr));
      if (succeeded(outcome)) co_return Status();
      last = ending(outcome);
    }
    if (io::Clock::now() + pause >= until)
      co_return fail(
          Error(Code::kDeadlineExceeded, "the ready command did not succeed within " +
                                             std::to_string(options.ready_time.count() / 1000) +
                                             " seconds; at last: " + last));
    co_await io::Loop::sleep(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

io::Async<void> wait_ready(BoxClient& client, const StartCommand& what, const StartOptions& options,
                           io::Latch& birth, Status& ready) {
  if (!what.ready.empty()) {
    ready = co_await try_ready(client, what, options);
    co_return;
  }
  co_await birth.wait();
  co_await io::Loop::sleep(options.watch_time);
}

}  // namespace

json::Value start_json(const StartCommand& what) {
  json::Value value = json::Value::object();
  value.set("command", what.command).set("ready", what.ready).set("label", what.label);
  return value;
}

Result<StartCommand> parse_start(const json::Value& value) {
  StartCommand what;
  struct Part {
    std::string_view key;
    std::string& to;
  };
  for (const Part& part :
       {Part{"command", what.command}, Part{"ready", what.ready}, Part{"label", what.label}}) {
    const json::Value* found = value.find(part.key);
    if (found == nullptr || found->as_string() == nullptr)
      return fail(Error::invalid("start." + std::string(part.key) + ": found no text"));
    part.to = *found->as_string();
  }
  return what;
}

std::map<std::string, std::string> own_variables(const std::string& id) {
  return {{"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", id}};
}

io::Async<Status> start_and_wait(io::Loop& loop, BoxClient& client, StartCommand what,
                                 StartOptions options) {
  proto::Fields fields = login_shell(what.command, options);
  fields.put_u8(Tag::kKeep, 1).put_u32(Tag::kKeepOutput, kKeptOutput).put(Tag::kLabel, what.label);
  if (fields.bytes().size() > proto::kMaxPayload)
    co_return fail(Error::invalid("the start command is longer than 64 KiB"));
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream, client.open(proto::Kind::kExec, fields));
  std::optional<Error> failure;
  Status ready;
  io::Latch birth(loop);
  co_await io::race(watch(loop, *stream, options, birth, failure),
                    wait_ready(client, what, options, birth, ready));
  if (failure.has_value()) co_return fail(std::move(*failure));
  co_return ready;
}

}  // namespace caisson::fleet
