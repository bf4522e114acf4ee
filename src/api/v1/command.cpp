#include "api/v1/command.h"

#include "api/exec_lines.h"
#include "api/sandbox_fields.h"
#include "policy/complain.h"

namespace caisson::api::v1 {

using fleet::BoxStream;
using proto::Tag;

namespace {

constexpr std::size_t kMostArguments = 4096;
constexpr std::size_t kMostPath = 4096;
constexpr std::size_t kMostUser = 256;
constexpr std::int64_t kMostBytes = 1ll << 50;

Status put_program(const Object& body, proto::Fields& open) {
  TRY_ASSIGN(const auto command, body.texts("command", kMostArguments, proto::kMaxOpen));
  if (!command.has_value() || command->empty() || command->front().empty())
    return fail(policy::wrong("command", "nothing", "an array of a program and its arguments"));
  for (const std::string& argument : *command) {
    if (argument.contains('\0'))
      return fail(policy::wrong("command", "a zero byte", "arguments without any"));
    open.put(Tag::kArg, argument);
  }
  return {};
}

Status put_limits(const Object& body, proto::Fields& open) {
  for (const auto& [key, tag, most] :
       {std::tuple{"timeout_ms", Tag::kTimeLimitMs, kMostSeconds * 1000},
        {"cpu_time_ms", Tag::kCpuLimitMs, kMostSeconds * 1000},
        {"output_bytes", Tag::kOutputLimit, kMostBytes}}) {
    TRY_ASSIGN(const auto limit, body.integer(key, 1, most));
    if (limit.has_value()) open.put_u64(tag, static_cast<std::uint64_t>(*limit));
  }
  return {};
}

}  // namespace

Result<proto::Fields> read_command(const Object& body, const fleet::Served& sandbox) {
  proto::Fields open;
  TRY(put_program(body, open));
  // The request's own go before the sandbox's.
  TRY_ASSIGN(Texts env, read_env(body, "env"));
  env.insert(sandbox.env().begin(), sandbox.env().end());
  for (const auto& [name, text] : env) open.put(Tag::kEnv, name + "=" + text);
  TRY_ASSIGN(const auto workdir, body.text("workdir", kMostPath));
  const std::string where = workdir.value_or(sandbox.default_workdir());
  if (!where.empty()) open.put(Tag::kCwd, where);
  TRY_ASSIGN(const auto user, body.text("user", kMostUser));
  open.put(Tag::kUser, user.value_or(sandbox.default_user()));
  TRY(put_limits(body, open));
  TRY_ASSIGN(const auto terminal, body.object("terminal"));
  if (terminal.has_value()) {
    TRY_ASSIGN(const std::string size, read_terminal(*terminal));
    open.put(Tag::kPty, size);
  }
  return open;
}

Status check_size(const proto::Fields& open) {
  if (open.bytes().size() <= proto::kMaxOpen) return {};
  return fail(policy::wrong("command and env",
                            std::to_string(open.bytes().size()) + " bytes together",
                            "at most " + std::to_string(proto::kMaxOpen)));
}

Result<std::string> read_terminal(const Object& size) {
  TRY(size.only({"columns", "rows"}));
  std::string bytes;
  for (const char* key : {"columns", "rows"}) {
    TRY_ASSIGN(const auto number, size.integer(key, 1, 0xffff));
    if (!number.has_value())
      return fail(policy::wrong(size.path_of(key), "nothing", "a number from 1 to 65535"));
    bytes += static_cast<char>(*number & 0xff);
    bytes += static_cast<char>(*number >> 8);
  }
  return bytes;
}

void end_command(BoxStream& stream) {
  stream.control(proto::Fields().put_u8(
      Tag::kControlOperation, static_cast<std::uint8_t>(proto::ControlOperation::kShutdown)));
}

io::Async<Result<Answer>> follow(Call& call, const fleet::Served& sandbox,
                                 std::shared_ptr<BoxStream> stream, WithClient with_client) {
  // Also where the command says nothing that could not be delivered.
  if (with_client == WithClient::kEnds) {
    call.exchange.on_gone([weak = std::weak_ptr(stream)] {
      if (const std::shared_ptr<BoxStream> open = weak.lock()) end_command(*open);
    });
  }
  const std::string image = sandbox.view().template_id;
  http::ResponseHead head;
  head.headers.add("Content-Type", "application/x-ndjson");
  CO_TRY(co_await call.exchange.begin(std::move(head)));
  ExecLines lines(image);
  while (!lines.ended()) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await stream->next());
    CO_TRY_ASSIGN(const std::string text, lines.take(message));
    if (text.empty()) continue;
    const Status written = co_await call.exchange.write(text);
    if (written.has_value()) continue;
    if (with_client == WithClient::kEnds) end_command(*stream);
    co_return Answer::already_sent();
  }
  [[maybe_unused]] const Status ended = co_await call.exchange.end();
  co_return Answer::already_sent();
}

}  // namespace caisson::api::v1
