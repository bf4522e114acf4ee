#include "api/e2b/rpc.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "io/race.h"

namespace caisson::api::e2b {

namespace {

constexpr auto kUsualPing = std::chrono::seconds(90);
constexpr long kLongestPing = 600;

std::string_view content_type(Encoding encoding, RpcKind kind) {
  if (kind == RpcKind::kUnary)
    return encoding == Encoding::kJson ? "application/json" : "application/proto";
  return encoding == Encoding::kJson ? "application/connect+json" : "application/connect+proto";
}

Status check_plain(const Request& request, std::string_view header) {
  const auto coding = request.header(header);
  if (!coding.has_value() || coding->empty() || *coding == "identity") return {};
  return fail(Error(Code::kUnimplemented, "compression '" + std::string(*coding) +
                                              "' is not served; allowed is identity"));
}

// Until the client has left; for ever where that cannot be seen.
io::Async<void> until_gone(http::Exchange& exchange) {
  co_await exchange.wait_gone();
  while (!exchange.gone()) co_await io::Loop::sleep(std::chrono::hours(1));
}

io::Async<void> until_ended(const Request& request, bool& ended) {
  co_await request.sandbox->wait_ended();
  ended = true;
}

}  // namespace

std::optional<Encoding> encoding_of(std::optional<std::string_view> type, RpcKind kind) {
  if (!type.has_value()) return std::nullopt;
  std::string_view name = type->substr(0, type->find(';'));
  while (name.ends_with(' ')) name.remove_suffix(1);
  for (const Encoding encoding : {Encoding::kJson, Encoding::kBinary})
    if (name == content_type(encoding, kind)) return encoding;
  return std::nullopt;
}

io::Async<Result<json::Value>> read_message(const Request& request, Encoding encoding,
                                            const WireMessage& message) {
  CO_TRY(check_plain(request, "Content-Encoding"));
  CO_TRY_ASSIGN(std::string body, co_await request.exchange.read_all(kMaxMessage));
  // proto3's JSON has no empty text; some clients send one for a message without fields.
  if (body.empty() && encoding == Encoding::kJson) co_return json::Value::object();
  co_return decode_message(message, encoding, body);
}

io::Async<Result<json::Value>> read_enveloped(const Request& request, Encoding encoding,
                                              const WireMessage& message) {
  CO_TRY(check_plain(request, "Connect-Content-Encoding"));
  http::EnvelopeReader reader(kMaxMessage);
  std::optional<std::string> found;
  for (;;) {
    CO_TRY_ASSIGN(std::optional<http::EnvelopeReader::Message> next, reader.next());
    if (next.has_value()) {
      if (found.has_value() || next->flags != 0)
        co_return fail(Error::invalid("the request is one message, without flags"));
      found = std::move(next->bytes);
      continue;
    }
    CO_TRY_ASSIGN(std::string bytes, co_await request.exchange.read_some(64 * 1024));
    if (bytes.empty()) break;
    CO_TRY(request.exchange.hold(bytes.size()));
    reader.feed(bytes);
  }
  if (!found.has_value() || reader.partial())
    co_return fail(Error::invalid("the request's message is missing or cut off"));
  auto decoded = decode_message(message, encoding, *found);
  // A stream lives long, and keeps little of it.
  request.exchange.let_go();
  co_return decoded;
}

io::Async<Status> answer_message(const Request& request, Encoding encoding,
                                 const WireMessage& message, const json::Value& value) {
  http::ResponseHead head;
  head.headers = answer_headers(content_type(encoding, RpcKind::kUnary));
  co_return co_await request.exchange.respond(std::move(head),
                                              encode_message(message, encoding, value));
}

io::Async<Status> answer_rpc_error(const Request& request, const Error& error) {
  http::ResponseHead head;
  head.status = http::rpc_status_of(error.code());
  head.headers = answer_headers("application/json");
  co_return co_await request.exchange.respond(std::move(head), http::error_json(error));
}

io::Async<Status> RpcAnswer::write(std::uint8_t flags, std::string_view bytes) {
  if (!exchange_.begun()) {
    http::ResponseHead head;
    head.headers = answer_headers(content_type(encoding_, RpcKind::kStream));
    // Nothing on the way may hold back a message until there are more.
    head.headers.add("Cache-Control", "no-cache").add("X-Accel-Buffering", "no");
    CO_TRY(co_await exchange_.begin(std::move(head)));
  }
  const std::string enveloped = http::envelope(flags, bytes);
  co_return co_await exchange_.write(enveloped);
}

io::Async<Status> RpcAnswer::send(const json::Value& value) {
  const std::string bytes = encode_message(message_, encoding_, value);
  co_return co_await write(0, bytes);
}

io::Async<Status> RpcAnswer::end(const std::optional<Error>& error) {
  const std::string last = http::end_stream_json(error);
  CO_TRY(co_await write(http::kEndStream, last));
  co_return co_await exchange_.end();
}

io::Async<void> while_watched(const Request& request, io::Async<void> streaming) {
  bool ended = false;
  io::Async<void> either = io::race(until_gone(request.exchange), until_ended(request, ended));
  co_await io::race(std::move(streaming), std::move(either));
  if (ended) request.exchange.abort();
}

io::Async<void> while_client_stays(const Request& request, io::Async<void> work) {
  co_await io::race(std::move(work), until_gone(request.exchange));
}

io::Async<void> while_client_waits(const Request& request, io::Async<void> work) {
  auto patience = [](const Request& of) -> io::Async<void> {
    constexpr auto kLongest = std::chrono::hours(1);
    const auto now = io::Clock::now();
    co_await io::Loop::sleep(std::max<io::Clock::duration>(
        of.deadline.value_or(now + kLongest) - now, io::Clock::duration::zero()));
  };
  io::Async<void> either = io::race(until_gone(request.exchange), patience(request));
  co_await io::race(std::move(work), std::move(either));
}

std::chrono::seconds ping_interval(const Request& request) {
  const auto header = request.header("Keepalive-Ping-Interval");
  if (!header.has_value()) return kUsualPing;
  long number = 0;
  const auto [end, error] =
      std::from_chars(header->data(), header->data() + header->size(), number);
  if (error != std::errc() || end != header->data() + header->size() || number <= 0)
    return kUsualPing;
  return std::chrono::seconds(std::min(number, kLongestPing));
}

}  // namespace caisson::api::e2b
