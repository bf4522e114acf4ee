#include "box/exec.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/proto.h"
#include "base/verdict.h"

namespace caisson::box {
namespace {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

constexpr std::size_t kInputChunk = 32 * 1024;
// Input is read only while less than this waits in our own queue.
constexpr std::size_t kInputQueue = 256 * 1024;

std::string two_numbers(std::uint16_t first, std::uint16_t second) {
  std::string bytes;
  for (const std::uint16_t value : {first, second}) {
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  return bytes;
}

Error too_large(std::size_t size) {
  return Error::invalid("the command, its arguments and its environment are " +
                        std::to_string(size) + " bytes, at most " +
                        std::to_string(proto::kMaxOpen) + " are allowed");
}

// The state of one exec stream while it is pumped.
class Pump {
 public:
  Pump(Connection& connection, const RunOptions& options, std::uint32_t stream)
      : connection_(connection), options_(options), stream_(stream) {}

  // Of an exec stream that is open: where its input comes from.
  void feed(const Command& command);
  void open_attach(std::optional<std::uint32_t> number, Sandbox::From from);
  // Until the command runs, or the stream is over.
  Status run_until_started();
  Status run_to_end();

  // Of one that goes on without us: the stream alone ends.
  void leave() { connection_.send(stream_, FrameType::kClose, 0, {}); }

  bool closed() const { return closed_; }
  // As far as its first event told.
  const KeptCommand& kept() const { return kept_; }
  // Empty where the CLOSE frame had no verdict.
  std::optional<Outcome>& outcome() { return outcome_; }
  RunResult& result() { return result_; }

 private:
  Status step();
  Status take(const proto::Frame& frame);
  Status take_close(std::string_view payload);
  void deliver(std::uint8_t channel, std::string_view bytes);
  Status read_control();
  void cancel();
  void send_cancel(std::uint32_t stream);
  Status feed_input();
  bool wants_input() const {
    return input_ != Input::kNone && !closed_ && credit_.may_send() > 0 &&
           connection_.queued() < kInputQueue;
  }
  void end_input() {
    connection_.send(stream_, FrameType::kFinish, static_cast<std::uint8_t>(Channel::kIn), {});
    input_ = Input::kNone;
  }

  enum class Input { kNone, kBytes, kDescriptor };

  Connection& connection_;
  const RunOptions& options_;
  const std::uint32_t stream_;
  Credit credit_;
  Input input_ = Input::kNone;
  int input_fd_ = -1;
  std::string_view input_bytes_;
  int cancels_ = 0;
  bool dropping_ = false;
  bool started_ = false;
  bool closed_ = false;
  bool joined_ = false;  // a command that others started
  KeptCommand kept_;
  std::optional<Outcome> outcome_;
  RunResult result_;
};

void Pump::feed(const Command& command) {
  if (command.input_fd >= 0) {
    input_ = Input::kDescriptor;
    input_fd_ = command.input_fd;
  } else if (!command.input.empty()) {
    input_ = Input::kBytes;
    input_bytes_ = command.input;
  }
}

void Pump::open_attach(std::optional<std::uint32_t> number, Sandbox::From from) {
  joined_ = true;
  proto::Fields fields;
  fields.put_u8(Tag::kAttach, static_cast<std::uint8_t>(from));
  if (number) fields.put_u32(Tag::kCommand, *number);
  connection_.send(stream_, FrameType::kOpen, static_cast<std::uint8_t>(proto::Kind::kExec),
                   fields.bytes());
}

Status Pump::run_until_started() {
  while (!started_ && !closed_) TRY(step());
  return {};
}

Status Pump::run_to_end() {
  while (!closed_) TRY(step());
  return {};
}

Status Pump::step() {
  TRY_ASSIGN(std::optional<proto::Frame> frame, connection_.next());
  if (frame.has_value()) return take(*frame);
  const bool reads_descriptor = input_ == Input::kDescriptor && wants_input();
  if (input_ == Input::kBytes) TRY(feed_input());
  std::array<pollfd, 3> entries = {
      {{.fd = connection_.fd(), .events = connection_.events(), .revents = 0},
       {.fd = options_.control != nullptr ? options_.control->read_fd() : -1,
        .events = POLLIN,
        .revents = 0},
       {.fd = reads_descriptor ? input_fd_ : -1, .events = POLLIN, .revents = 0}}};
  if (::poll(entries.data(), entries.size(), -1) < 0) {
    if (errno == EINTR) return {};
    return fail_errno("poll");
  }
  if (entries[1].revents != 0) TRY(read_control());
  if (entries[2].revents != 0) TRY(feed_input());
  return connection_.progress(entries[0].revents);
}

Status Pump::take(const proto::Frame& frame) {
  if (frame.header.stream != stream_) return {};
  switch (frame.header.type) {
    case FrameType::kData: {
      TRY(credit_.received(frame.header.detail, frame.payload.size()));
      deliver(frame.header.detail, frame.payload);
      const std::uint32_t grant = credit_.consumed(frame.header.detail, frame.payload.size());
      if (grant > 0)
        connection_.send(stream_, FrameType::kCredit, frame.header.detail, credit_payload(grant));
      return {};
    }
    case FrameType::kCredit:
      return credit_.granted(frame.payload);
    case FrameType::kFinish:
      // On kIn it would mean that nobody reads the input any more.
      if (frame.header.detail == static_cast<std::uint8_t>(Channel::kIn)) input_ = Input::kNone;
      return {};
    case FrameType::kEvent: {
      TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(frame.payload));
      if (fields.has(Tag::kStarted) && !started_) {
        started_ = true;
        kept_.pid = static_cast<std::uint32_t>(fields.number_or_none(Tag::kStarted).value_or(0));
        kept_.number = static_cast<std::uint32_t>(fields.number_or_none(Tag::kCommand).value_or(0));
        if (options_.on_started) options_.on_started();
      }
      if (const auto missed = fields.number_or_none(Tag::kMissed); missed && options_.on_missed)
        options_.on_missed(*missed);
      return {};
    }
    case FrameType::kClose:
      return take_close(frame.payload);
    default:
      return {};
  }
}

Status Pump::take_close(std::string_view payload) {
  closed_ = true;
  TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(payload));
  if (fields.has(Tag::kVerdict)) {
    TRY_ASSIGN(outcome_, decode_outcome(payload));
    return {};
  }
  if (!fields.has(Tag::kErrorCode)) return {};
  // The supervisor refused the request itself.
  const std::uint64_t code = fields.number_or_none(Tag::kErrorCode).value_or(0);
  const auto message = fields.text(Tag::kErrorMessage);
  const bool known = code >= static_cast<std::uint64_t>(Code::kCancelled) &&
                     code <= static_cast<std::uint64_t>(Code::kUnauthenticated);
  return fail(Error(known ? static_cast<Code>(code) : Code::kUnknown,
                    message.has_value() ? std::string(*message) : "the command was refused"));
}

void Pump::deliver(std::uint8_t channel, std::string_view bytes) {
  if (dropping_ || bytes.empty()) return;
  const bool error = channel == static_cast<std::uint8_t>(Channel::kErr);
  if (options_.on_output) {
    if (options_.on_output(error ? OutputChannel::kStderr : OutputChannel::kStdout, bytes)) return;
    dropping_ = true;
    joined_ ? leave() : send_cancel(stream_);
    return;
  }
  (error ? result_.standard_error : result_.standard_output) += bytes;
}

void Pump::cancel() {
  if (joined_) return leave();
  if (cancels_ < 2) ++cancels_;
  send_cancel(cancels_ == 1 ? stream_ : 0);
}

void Pump::send_cancel(std::uint32_t stream) {
  proto::Fields fields;
  fields.put_u8(Tag::kControlOperation,
                static_cast<std::uint8_t>(proto::ControlOperation::kShutdown));
  connection_.send(stream, FrameType::kControl, 0, fields.bytes());
}

Status Pump::read_control() {
  Request requests[64];
  const ssize_t count = ::read(options_.control->read_fd(), requests, sizeof requests);
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return {};
    return fail_errno("read the control pipe");
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count) / sizeof(Request); ++i) {
    proto::Fields fields;
    switch (requests[i].kind) {
      case Request::kCancel:
        cancel();
        continue;
      case Request::kSignal:
        fields.put_u32(Tag::kSignal, requests[i].first);
        break;
      case Request::kResize:
        fields.put(Tag::kResize, two_numbers(requests[i].first, requests[i].second));
        break;
      default:
        continue;
    }
    connection_.send(stream_, FrameType::kControl, 0, fields.bytes());
  }
  return {};
}

Status Pump::feed_input() {
  const std::uint8_t channel = static_cast<std::uint8_t>(Channel::kIn);
  while (input_ == Input::kBytes && wants_input()) {
    const std::size_t size =
        std::min<std::uint64_t>({credit_.may_send(), input_bytes_.size(), kInputChunk});
    if (size > 0) {
      connection_.send(stream_, FrameType::kData, channel, input_bytes_.substr(0, size));
      credit_.spent(size);
      input_bytes_.remove_prefix(size);
    }
    if (input_bytes_.empty()) end_input();
  }
  if (input_ != Input::kDescriptor) return {};
  char buffer[kInputChunk];
  const std::size_t room = std::min<std::uint64_t>(credit_.may_send(), sizeof buffer);
  const ssize_t count = ::read(input_fd_, buffer, room);
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return {};
    // A terminal that has gone, a directory: the command sees the end of its input.
    end_input();
    return {};
  }
  if (count == 0) {
    end_input();
    return {};
  }
  connection_.send(stream_, FrameType::kData, channel, {buffer, static_cast<std::size_t>(count)});
  credit_.spent(static_cast<std::uint64_t>(count));
  return {};
}

}  // namespace

namespace {

// `more` is what a command alone does not say.
Result<std::uint32_t> open_stream(Connection& connection, const Command& command,
                                  const proto::Fields& more) {
  if (command.arguments.empty() || command.arguments[0].empty())
    return fail(Error::invalid("command: empty; give a program to run"));
  proto::Fields fields;
  for (const std::string& argument : command.arguments) {
    if (argument.contains('\0'))
      return fail(Error::invalid("command: an argument has a NUL byte in it"));
    fields.put(Tag::kArg, argument);
  }
  for (const auto& [name, value] : command.env) fields.put(Tag::kEnv, name + "=" + value);
  if (!command.workdir.empty()) fields.put(Tag::kCwd, command.workdir);
  if (!command.user.empty()) fields.put(Tag::kUser, command.user);
  if (command.terminal.has_value())
    fields.put(Tag::kPty, two_numbers(command.terminal->columns, command.terminal->rows));
  fields.put_u8(Tag::kStdin, command.input_fd >= 0 || !command.input.empty() ? 1 : 0);
  const std::string payload = fields.bytes() + more.bytes();
  if (payload.size() > proto::kMaxOpen) return fail(too_large(payload.size()));
  const std::uint32_t stream = connection.new_stream();
  connection.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(proto::Kind::kExec), payload);
  return stream;
}

}  // namespace

Result<std::uint32_t> open_exec(Connection& connection, const Command& command) {
  return open_stream(connection, command, {});
}

Result<RunResult> run_exec(Connection& connection, std::uint32_t stream, const Command& command,
                           const RunOptions& options) {
  Pump pump(connection, options, stream);
  pump.feed(command);
  TRY(pump.run_to_end());
  if (!pump.outcome().has_value())
    return fail(Error::internal("the supervisor closed the command without a verdict"));
  pump.result().outcome = std::move(*pump.outcome());
  return std::move(pump.result());
}

Result<RunResult> run_exec(Connection& connection, const Command& command,
                           const RunOptions& options) {
  TRY_ASSIGN(const std::uint32_t stream, open_exec(connection, command));
  return run_exec(connection, stream, command, options);
}

Result<std::optional<Outcome>> start_exec(Connection& connection, const Command& command) {
  const RunOptions options;
  TRY_ASSIGN(const std::uint32_t stream, open_exec(connection, command));
  Pump pump(connection, options, stream);
  pump.feed(command);
  TRY(pump.run_until_started());
  return std::move(pump.outcome());
}

Result<std::variant<KeptCommand, Outcome>> keep_exec(Connection& connection, const Command& command,
                                                     const KeepOptions& options) {
  if (command.input_fd >= 0 || !command.input.empty())
    return fail(Error::invalid("command: a kept command gets no input here"));
  proto::Fields more;
  more.put_u8(Tag::kKeep, 1)
      .put(Tag::kLabel, options.label)
      .put_u32(Tag::kKeepOutput, options.output_kept);
  if (options.timeout_ms) more.put_u64(Tag::kTimeLimitMs, *options.timeout_ms);
  if (options.output) more.put_u64(Tag::kOutputLimit, *options.output);
  TRY_ASSIGN(const std::uint32_t stream, open_stream(connection, command, more));
  const RunOptions nothing;
  Pump pump(connection, nothing, stream);
  TRY(pump.run_until_started());
  if (pump.outcome().has_value()) return std::move(*pump.outcome());
  if (pump.kept().number == 0)
    return fail(Error::internal("the supervisor started the command without keeping it"));
  pump.leave();
  TRY(pump.run_to_end());
  KeptCommand kept = pump.kept();
  kept.label = options.label;
  return kept;
}

Result<std::optional<Outcome>> attach_exec(Connection& connection,
                                           std::optional<std::uint32_t> number, Sandbox::From from,
                                           const RunOptions& options) {
  Pump pump(connection, options, connection.new_stream());
  pump.open_attach(number, from);
  TRY(pump.run_to_end());
  return std::move(pump.outcome());
}

}  // namespace caisson::box
