// process.Process but for what streams: which processes there are, their signals, input and
// terminals.
#include "api/e2b/process.h"

#include <algorithm>

#include "api/e2b/messages.h"
#include "api/e2b/methods.h"
#include "http/connect.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using json::Value;
using proto::FieldReader;
using proto::Tag;

namespace {

constexpr std::int64_t kSigterm = 15, kSigkill = 9;

Error input_closed() {
  return Error::internal("stdin not enabled or closed");
}

io::Async<Result<Value>> list(const Request& request, const Value&) {
  CO_TRY_ASSIGN(std::vector<Process> processes, co_await list_processes(request));
  Value::Array shown;
  for (Process& process : processes) {
    if (!process.running) continue;
    Value info = Value::object();
    info.set("config", std::move(process.label.config)).set("pid", process.pid);
    if (process.label.tag.has_value()) info.set("tag", *process.label.tag);
    shown.push_back(std::move(info));
  }
  Value response = Value::object();
  response.set("processes", Value(std::move(shown)));
  co_return response;
}

io::Async<Result<Value>> send_signal(const Request& request, const Value& message) {
  const std::int64_t signal = number_of(message, "signal");
  if (signal != kSigterm && signal != kSigkill)
    co_return fail(Error::invalid("signal: allowed are SIGNAL_SIGTERM and SIGNAL_SIGKILL"));
  CO_TRY_ASSIGN(const Process process, co_await select_process(request, message, Wanted::kRunning));
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                co_await join_process(request, process.number));
  proto::Fields fields;
  fields.put_u32(Tag::kSignal, static_cast<std::uint32_t>(signal));
  stream->control(fields);
  co_return Value::object();
}

// Gives bytes to a process by a stream that follows it.
// Why the supervisor ended a stream that took input.
io::Async<Status> reason_of_end(const Request& request, BoxStream& stream) {
  for (;;) {
    CO_TRY_ASSIGN(const BoxStream::Message message, co_await next_message(request, stream));
    if (message.kind != BoxStream::Message::Kind::kClose) continue;
    CO_TRY(status_of_close(message.bytes));
    co_return fail(input_closed());
  }
}

io::Async<Status> put_input(const Request& request, const Process& process, BoxStream& stream,
                            const Value& input) {
  const bool is_pty = process.label.terminal == Terminal::kPty;
  if (input.find("pty") != nullptr && !is_pty)
    co_return fail(Error::invalid("the process has no terminal; its input is stdin"));
  if (input.find("stdin") != nullptr && is_pty)
    co_return fail(Error::invalid("the process has a terminal; its input is pty"));
  std::string bytes(text_of(input, is_pty ? "pty" : "stdin"));
  if (bytes.empty()) co_return Status();
  if (!process.takes_input) co_return fail(input_closed());
  Status written =
      fail(Error(Code::kDeadlineExceeded, "the process did not take its input in time"));
  auto write = [](BoxStream& to, std::string text, Status& into) -> io::Async<void> {
    into = co_await to.write(std::move(text));
    // What the supervisor still holds when its stream ends may be too much for it.
    if (into.has_value()) into = co_await to.taken();
  };
  // A command that does not read would hold this up for as long as it lives.
  co_await while_client_waits(request, write(stream, std::move(bytes), written));
  if (written.has_value()) co_return Status();
  const Code code = written.error().code();
  if (code == Code::kFailedPrecondition) co_return co_await reason_of_end(request, stream);
  if (code == Code::kUnavailable) co_return fail(input_closed());
  co_return written;
}

io::Async<Result<Value>> send_input(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const Process process, co_await select_process(request, message, Wanted::kRunning));
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                co_await join_process(request, process.number));
  const Value* input = message.find("input");
  if (input == nullptr) co_return fail(Error::invalid("input: stdin or pty is wanted"));
  CO_TRY(co_await put_input(request, process, *stream, *input));
  co_return Value::object();
}

io::Async<Result<Value>> close_stdin(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const Process process, co_await select_process(request, message, Wanted::kRunning));
  if (process.label.terminal == Terminal::kPty) {
    co_return fail(Error::invalid(
        "the input of a terminal is not closed; send it the end-of-file character (0x04)"));
  }
  if (!process.takes_input) co_return Value::object();
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                co_await join_process(request, process.number));
  stream->finish();
  co_return Value::object();
}

io::Async<Result<Value>> update(const Request& request, const Value& message) {
  CO_TRY_ASSIGN(const Process process, co_await select_process(request, message, Wanted::kRunning));
  const Value* pty = message.find("pty");
  const Value* size = pty != nullptr ? pty->find("size") : nullptr;
  if (size == nullptr) co_return Value::object();
  if (process.label.terminal != Terminal::kPty)
    co_return fail(Error::invalid("the process has no terminal to resize"));
  CO_TRY_ASSIGN(const std::string bytes, terminal_size(*size));
  CO_TRY_ASSIGN(const std::unique_ptr<BoxStream> stream,
                co_await join_process(request, process.number));
  proto::Fields fields;
  fields.put(Tag::kResize, bytes);
  stream->control(fields);
  co_return Value::object();
}

const UnaryMethod kMethods[] = {
    {"/process.Process/List", kEmpty, kListResponse, list},
    {"/process.Process/SendSignal", kSendSignalRequest, kEmpty, send_signal},
    {"/process.Process/SendInput", kSendInputRequest, kEmpty, send_input},
    {"/process.Process/CloseStdin", kCloseStdinRequest, kEmpty, close_stdin},
    {"/process.Process/Update", kUpdateRequest, kEmpty, update},
};

// One event of a client's stream of input.
struct InputStream {
  std::optional<Process> process;
  std::unique_ptr<BoxStream> stream;
};

io::Async<Status> take_input_event(const Request& request, const Value& event, InputStream& to) {
  if (const Value* start = event.find("start")) {
    if (to.process.has_value()) co_return fail(Error::invalid("start: it comes once, first"));
    CO_TRY_ASSIGN(to.process, co_await select_process(request, *start, Wanted::kRunning));
    CO_TRY_ASSIGN(to.stream, co_await join_process(request, to.process->number));
    co_return Status();
  }
  const Value* data = event.find("data");
  if (data == nullptr) co_return Status();
  if (!to.process.has_value()) co_return fail(Error::invalid("data: start comes before it"));
  const Value* input = data->find("input");
  if (input == nullptr) co_return fail(Error::invalid("data.input: stdin or pty is wanted"));
  co_return co_await put_input(request, *to.process, *to.stream, *input);
}

}  // namespace

Result<std::string> terminal_size(const Value& size) {
  const std::int64_t columns = number_of(size, "cols"), rows = number_of(size, "rows");
  if (columns < 1 || rows < 1 || columns > 0xffff || rows > 0xffff)
    return fail(Error::invalid("pty.size: cols and rows are from 1 to 65535"));
  std::string bytes;
  for (const std::int64_t number : {columns, rows}) {
    bytes += static_cast<char>(number & 0xff);
    bytes += static_cast<char>(number >> 8);
  }
  return bytes;
}

io::Async<Status> stream_input(const Request& request, Encoding encoding) {
  http::EnvelopeReader reader(kMaxMessage);
  InputStream to;
  for (;;) {
    CO_TRY_ASSIGN(const std::optional<http::EnvelopeReader::Message> next, reader.next());
    if (next.has_value()) {
      if (next->flags != 0) co_return fail(Error::invalid("messages of input have no flags"));
      CO_TRY_ASSIGN(const Value event, decode_message(kStreamInputRequest, encoding, next->bytes));
      CO_TRY(co_await take_input_event(request, event, to));
      request.exchange.let_go();
      CO_TRY(request.exchange.hold(reader.buffered()));
      continue;
    }
    CO_TRY_ASSIGN(const std::string bytes, co_await request.exchange.read_some(64 * 1024));
    if (bytes.empty()) break;
    CO_TRY(request.exchange.hold(bytes.size()));
    reader.feed(bytes);
  }
  if (reader.partial()) co_return fail(Error::invalid("the last message is cut off"));
  co_return Status();
}

io::Async<Result<std::vector<Process>>> list_processes(const Request& request) {
  CO_TRY_ASSIGN(fleet::BoxClient * client, request.sandbox->client());
  CO_TRY_ASSIGN(const std::vector<std::string> answers,
                co_await client->request(proto::ControlOperation::kListCommands, {}));
  std::vector<Process> processes;
  for (const std::string& answer : answers) {
    CO_TRY_ASSIGN(const FieldReader fields, FieldReader::parse(answer));
    const auto number = fields.number_or_none(Tag::kCommand);
    if (!number.has_value()) continue;  // the end of the list
    Process process;
    process.number = static_cast<std::uint32_t>(*number);
    process.pid = static_cast<std::uint32_t>(fields.number_or_none(Tag::kPid).value_or(0));
    process.label = decode_label(fields.text(Tag::kLabel).value_or(std::string_view()));
    process.running = !fields.has(Tag::kVerdict);
    process.takes_input = fields.number_or_none(Tag::kStdin).value_or(0) != 0;
    processes.push_back(std::move(process));
  }
  co_return processes;
}

io::Async<Result<Process>> select_process(const Request& request, const Value& message,
                                          Wanted wanted) {
  const Value* selector = message.find("process");
  const bool by_tag = selector != nullptr && selector->find("tag") != nullptr;
  if (!by_tag && (selector == nullptr || selector->find("pid") == nullptr))
    co_return fail(Error::invalid("process: pid or tag is wanted"));
  const std::string tag(text_of(*selector, "tag"));
  const std::int64_t pid = number_of(*selector, "pid");
  CO_TRY_ASSIGN(std::vector<Process> processes, co_await list_processes(request));
  Process* found = nullptr;
  for (Process& process : processes) {
    if (by_tag ? process.label.tag != tag : process.pid != pid) continue;
    if (wanted == Wanted::kRunning && !process.running) continue;
    if (found == nullptr || process.running || !found->running) found = &process;
  }
  if (found == nullptr) {
    co_return fail(Error::not_found(
        "process with " + (by_tag ? "tag " + tag : "pid " + std::to_string(pid)) + " not found"));
  }
  co_return std::move(*found);
}

io::Async<Result<std::unique_ptr<BoxStream>>> join_process(const Request& request,
                                                           std::uint32_t number) {
  constexpr std::uint8_t kFromNow = 2;
  proto::Fields fields;
  fields.put_u8(Tag::kAttach, kFromNow).put_u32(Tag::kCommand, number);
  CO_TRY_ASSIGN(std::unique_ptr<BoxStream> stream,
                open_stream(request, proto::Kind::kExec, fields));
  CO_TRY_ASSIGN(const BoxStream::Message first, co_await next_message(request, *stream));
  if (first.kind == BoxStream::Message::Kind::kClose) CO_TRY(status_of_close(first.bytes));
  if (first.kind != BoxStream::Message::Kind::kEvent)
    co_return fail(Error::not_found("the process has just ended"));
  co_return stream;
}

std::span<const UnaryMethod> process_methods() {
  return kMethods;
}

}  // namespace caisson::api::e2b
