#include "cli/remote/remote_command.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/encoding.h"
#include "base/fd.h"
#include "box/exec.h"
#include "box/result_json.h"
#include "cli/remote/output_lines.h"
#include "cli/remote/waiting.h"
#include "io/race.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kPiece = 64 * 1024;
constexpr int kLookAgainMs = 200;

std::string command_path(const std::string& sandbox, std::uint32_t number,
                         std::string_view below = "") {
  return sandbox + "/commands/" + std::to_string(number) + std::string(below);
}

Result<json::Value> text_value(std::string_view what, const std::string& text) {
  if (is_utf8(text)) return json::Value(text);
  return fail(Error::invalid(std::string(what) +
                             ": found bytes that are not UTF-8, which a server cannot be sent"));
}

json::Value one(std::string_view key, json::Value value) {
  json::Value object = json::Value::object();
  object.set(key, std::move(value));
  return object;
}

// What of `fd` can be read, once something can; empty at its end; nullopt where `stop_fd` is
// readable before, or the user gives up. Blocks.
std::optional<std::string> read_or_stop(int fd, int stop_fd) {
  for (;;) {
    pollfd entries[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                        {.fd = stop_fd, .events = POLLIN, .revents = 0}};
    if (::poll(entries, 2, kLookAgainMs) < 0 && errno != EINTR) return std::nullopt;
    if (entries[1].revents != 0 || Session::interrupts() >= kGivesUpAfter) return std::nullopt;
    if (entries[0].revents == 0) continue;
    std::string piece(kPiece, '\0');
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // What cannot be read any more has ended.
    piece.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return piece;
  }
}

// A command while it is followed.
class Following {
 public:
  Following(Api& api, std::string sandbox, std::uint32_t number, const Command& command,
            const RunOptions& options)
      : api_(api),
        sandbox_(std::move(sandbox)),
        number_(number),
        command_(command),
        options_(options),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  io::Async<Result<RunResult>> run();

 private:
  // Each returns when the command has ended.
  io::Async<void> read_output();
  io::Async<void> feed_input();
  io::Async<void> obey_control();
  io::Async<void> beside() { return io::both(feed_input(), obey_control()); }

  io::Async<Result<Outcome>> read_lines();
  bool take_output(OutputLines::Line line);
  io::Async<void> pass_input();
  io::Async<std::optional<std::string>> next_from(int fd);
  io::Async<void> do_request(box::Request request);
  void stop();

  Api& api_;
  const std::string sandbox_;
  const std::uint32_t number_;
  const Command& command_;
  const RunOptions& options_;
  const Fd stop_;  // readable when the command has ended
  Api::Exchange input_;
  bool ended_ = false, unwanted_ = false;
  int cancels_ = 0;
  std::uint64_t missed_ = 0;
  std::optional<Result<Outcome>> outcome_;
  RunResult result_;
};

io::Async<Result<RunResult>> Following::run() {
  if (!stop_.valid()) co_return fail_errno("eventfd");
  co_await io::both(read_output(), beside());
  CO_TRY_ASSIGN(result_.outcome, std::move(*outcome_));
  if (missed_ > 0)
    co_return fail(Error(Code::kDataLoss, std::to_string(missed_) +
                                              " bytes of output are lost: they came faster than "
                                              "they were read"));
  co_return std::move(result_);
}

void Following::stop() {
  ended_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  // A server that takes no more input of a command that has ended is not waited for.
  if (input_ != nullptr) input_->stream().close();
}

io::Async<void> Following::read_output() {
  outcome_ = co_await read_lines();
  stop();
}

bool Following::take_output(OutputLines::Line line) {
  if (options_.on_output) return options_.on_output(line.channel, line.bytes);
  (line.channel == OutputChannel::kStdout ? result_.standard_output : result_.standard_error) +=
      line.bytes;
  return true;
}

io::Async<Result<Outcome>> Following::read_lines() {
  using Kind = OutputLines::Line::Kind;
  CO_TRY_ASSIGN(
      Api::Exchange exchange,
      co_await api_.open(
          "GET", command_path(sandbox_, number_, "/output") + "?from=oldest&ends_with_client=true",
          {}));
  CO_TRY(co_await api_.accept(*exchange));
  OutputLines lines;
  for (;;) {
    CO_TRY_ASSIGN(std::optional<OutputLines::Line> line, lines.next());
    if (!line.has_value()) {
      CO_TRY_ASSIGN(const std::string piece, co_await exchange->read_some(kPiece));
      if (piece.empty())
        co_return fail(Error::unavailable("the server's answer ended before the command did"));
      lines.feed(piece);
      continue;
    }
    if (line->kind == Kind::kEnd) co_return std::move(line->outcome);
    if (line->kind == Kind::kMissed) missed_ += line->missed;
    if (line->kind != Kind::kOutput || unwanted_ || take_output(std::move(*line))) continue;
    // What follows is dropped; the verdict is still wanted.
    unwanted_ = true;
    const box::Request cancel{.kind = box::Request::kCancel};
    co_await do_request(cancel);
  }
}

io::Async<std::optional<std::string>> Following::next_from(int fd) {
  auto read = [fd, stop_fd = stop_.get()] { return read_or_stop(fd, stop_fd); };
  co_return co_await api_.loop().in_pool(std::move(read));
}

io::Async<void> Following::feed_input() {
  const bool has_input = !command_.input.empty() || command_.input_fd >= 0;
  if (has_input) co_await pass_input();
}

io::Async<void> Following::pass_input() {
  // A command that takes none, or no more, is no failure of the run.
  auto opened = co_await api_.open("POST", command_path(sandbox_, number_, "/input") + "?end=true",
                                   {.kind = http::Framing::Kind::kChunked});
  if (!opened.has_value() || ended_) co_return;
  input_ = std::move(*opened);
  std::optional<std::string> piece = command_.input;
  if (command_.input.empty()) {
    piece = co_await next_from(command_.input_fd);
  }
  while (piece.has_value() && !piece->empty() && !ended_) {
    const Status written = co_await input_->write(*piece);
    if (!written.has_value() || command_.input_fd < 0) break;
    piece = co_await next_from(command_.input_fd);
  }
  if (ended_) co_return;
  const Status ended = co_await input_->end();
  if (!ended.has_value()) co_return;
  [[maybe_unused]] const Status taken = co_await api_.accept(*input_);
}

// What cannot be done any more was not needed: the command has ended.
io::Async<void> Following::do_request(box::Request request) {
  std::string path = command_path(sandbox_, number_), method = "DELETE";
  json::Value body;
  if (request.kind == box::Request::kSignal) {
    method = "POST";
    path += "/signal";
    body = one("signal", request.first);
  } else if (request.kind == box::Request::kResize) {
    method = "PUT";
    path += "/terminal";
    body = one("columns", request.first);
    body.set("rows", request.second);
  } else if (++cancels_ > 1) {
    path = sandbox_;
  }
  [[maybe_unused]] const auto done =
      co_await api_.call(std::move(method), std::move(path), std::move(body));
}

io::Async<void> Following::obey_control() {
  if (options_.control == nullptr) co_return;
  std::string waiting;
  while (!ended_) {
    const auto bytes = co_await next_from(options_.control->read_fd());
    if (!bytes.has_value() || bytes->empty()) co_return;
    waiting += *bytes;
    while (waiting.size() >= sizeof(box::Request)) {
      box::Request request;
      std::memcpy(&request, waiting.data(), sizeof request);
      waiting.erase(0, sizeof request);
      co_await do_request(request);
    }
  }
}

}  // namespace

Result<json::Value> command_body(const Command& command, CommandBounds bounds, Lives lives) {
  json::Value body = json::Value::object();
  json::Value words = json::Value::array();
  for (const std::string& word : command.arguments) {
    TRY_ASSIGN(json::Value value, text_value("the command", word));
    words.push(std::move(value));
  }
  body.set("command", std::move(words));
  json::Value env = json::Value::object();
  for (const auto& [name, text] : command.env) {
    TRY_ASSIGN(json::Value value, text_value("--env " + name, text));
    env.set(name, std::move(value));
  }
  if (!command.env.empty()) body.set("env", std::move(env));
  if (!command.workdir.empty()) {
    TRY_ASSIGN(json::Value workdir, text_value("--workdir", command.workdir));
    body.set("workdir", std::move(workdir));
  }
  if (!command.user.empty()) body.set("user", command.user);
  if (command.terminal.has_value()) {
    json::Value size = json::Value::object();
    size.set("columns", command.terminal->columns).set("rows", command.terminal->rows);
    body.set("terminal", std::move(size));
  }
  if (!command.input.empty() || command.input_fd >= 0) body.set("input", true);
  if (bounds.timeout_ms.has_value()) body.set("timeout_ms", *bounds.timeout_ms);
  if (bounds.output.has_value()) body.set("output_bytes", *bounds.output);
  if (lives == Lives::kForTheCommand) body.set("ends_sandbox", true);
  return body;
}

io::Async<Result<Started>> start_command(Api& api, std::string sandbox, const Command& command,
                                         CommandBounds bounds, Lives lives) {
  CO_TRY_ASSIGN(json::Value body, command_body(command, bounds, lives));
  CO_TRY_ASSIGN(const json::Value answer,
                co_await api.call("POST", sandbox + "/commands", std::move(body)));
  Started started;
  if (const json::Value* result = answer.find("result")) {
    CO_TRY_ASSIGN(started.outcome, box::outcome_of(*result));
    co_return started;
  }
  const json::Value* number = answer.find("number");
  if (number == nullptr || number->as_integer() == nullptr ||
      !std::in_range<std::uint32_t>(*number->as_integer()))
    co_return fail(Error(Code::kDataLoss, "the server gives the command no number"));
  started.number = static_cast<std::uint32_t>(*number->as_integer());
  co_return started;
}

io::Async<Result<RunResult>> follow_command(Api& api, std::string sandbox, std::uint32_t number,
                                            const Command& command, const RunOptions& options) {
  Following following(api, std::move(sandbox), number, command, options);
  co_return co_await following.run();
}

io::Async<Result<std::optional<Outcome>>> read_command(Api& api, std::string sandbox,
                                                       std::uint32_t number, Sandbox::Follow follow,
                                                       const RunOptions& options) {
  using Kind = OutputLines::Line::Kind;
  const std::string from = follow == Sandbox::Follow::kYes ? "?from=oldest" : "?from=kept";
  CO_TRY_ASSIGN(Api::Exchange exchange,
                co_await api.open("GET", command_path(sandbox, number, "/output") + from, {}));
  CO_TRY(co_await api.accept(*exchange));
  OutputLines lines;
  for (;;) {
    CO_TRY_ASSIGN(std::optional<OutputLines::Line> line, lines.next());
    if (!line.has_value()) {
      CO_TRY_ASSIGN(const std::string piece, co_await exchange->read_some(kPiece));
      if (piece.empty())
        co_return fail(Error::unavailable("the server's answer ended before the command did"));
      lines.feed(piece);
      continue;
    }
    if (line->kind == Kind::kEnd) co_return std::move(line->outcome);
    if (line->kind == Kind::kGoesOn) co_return std::nullopt;
    if (line->kind == Kind::kMissed && options.on_missed) options.on_missed(line->missed);
    // Who wants no more leaves; the command goes on.
    if (line->kind == Kind::kOutput && options.on_output &&
        !options.on_output(line->channel, line->bytes))
      co_return std::nullopt;
  }
}

}  // namespace caisson::cli
