#include "cli/remote/api.h"

#include <array>
#include <utility>

#include "io/resolve.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kMostAnswer = 64u << 20;
constexpr std::size_t kMostError = 64 * 1024;
constexpr std::size_t kPiece = 64 * 1024;
// A server may end a connection that nothing came over for longer.
constexpr std::chrono::seconds kIdleTime{15};

Code code_of(int status) {
  switch (status) {
    case 400:
    case 413:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
      return Code::kFailedPrecondition;
    case 429:
    case 507:
      return Code::kResourceExhausted;
    case 501:
      return Code::kUnimplemented;
    default:
      return Code::kUnavailable;
  }
}

io::Async<Result<std::string>> read_whole(http::ClientExchange& exchange, std::size_t most) {
  std::string body;
  for (;;) {
    CO_TRY_ASSIGN(const std::string piece, co_await exchange.read_some(kPiece));
    if (piece.empty()) co_return body;
    body += piece;
    if (body.size() > most)
      co_return fail(Error(Code::kDataLoss, "the server's answer is longer than " +
                                                std::to_string(most) + " bytes"));
  }
}

}  // namespace

Error error_of_answer(int status, std::string_view body) {
  const auto value = json::parse(body);
  const json::Value* message = value.has_value() ? value->find("message") : nullptr;
  std::string sentence = message != nullptr && message->as_string() != nullptr
                             ? *message->as_string()
                             : "the server answers " + std::to_string(status);
  if (status == 401) sentence += "; the key is $CAISSON_API_KEY, or in --server-key-file";
  return Error(code_of(status), sentence);
}

io::Async<Result<std::unique_ptr<io::Stream>>> Api::connect() {
  if (idle_ != nullptr && io::Clock::now() - idle_since_ < kIdleTime) co_return std::move(idle_);
  idle_.reset();
  const ServerAddress& address = server_.address;
  CO_TRY_ASSIGN(const std::vector<std::string> places,
                co_await io::resolve(loop_, address.host, address.port));
  Result<std::unique_ptr<io::Stream>> stream = fail(Error::unavailable("no address"));
  for (const std::string& place : places) {
    stream = co_await io::connect_tcp(loop_, place);
    if (stream.has_value()) break;
  }
  if (!stream.has_value())
    co_return fail(Error(
        stream.error().code(),
        "the server " + address.authority + " cannot be reached: " + stream.error().message()));
  if (address.scheme == ServerAddress::Scheme::kHttp) co_return stream;
  co_return co_await io::connect_tls(loop_, std::move(*stream), address.host, server_.trust);
}

io::Async<Result<Api::Exchange>> Api::open(std::string method, std::string target,
                                           http::Framing framing) {
  CO_TRY_ASSIGN(std::unique_ptr<io::Stream> stream, co_await connect());
  http::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers.add("Host", server_.address.authority).add("X-API-Key", server_.key);
  auto exchange = std::make_unique<http::ClientExchange>(std::move(stream));
  CO_TRY(co_await exchange->send(std::move(head), framing));
  co_return exchange;
}

io::Async<Status> Api::accept(http::ClientExchange& exchange) {
  CO_TRY_ASSIGN(const http::ResponseHead head, co_await exchange.read_head());
  if (head.status / 100 == 2) co_return Status();
  const auto body = co_await read_whole(exchange, kMostError);
  co_return fail(error_of_answer(head.status, body.value_or("")));
}

void Api::keep(Exchange exchange) {
  idle_ = exchange->release();
  idle_since_ = io::Clock::now();
}

io::Async<Result<json::Value>> Api::call(std::string method, std::string target, json::Value body) {
  const std::string text = body.is_null() ? "" : json::serialize(body);
  const http::Framing framing{.kind = http::Framing::Kind::kLength, .length = text.size()};
  CO_TRY_ASSIGN(Exchange exchange, co_await open(std::move(method), std::move(target), framing));
  CO_TRY(co_await exchange->write(text));
  const Status accepted = co_await accept(*exchange);
  if (!accepted.has_value()) {
    keep(std::move(exchange));
    co_return fail(accepted.error());
  }
  CO_TRY_ASSIGN(const std::string answer, co_await read_whole(*exchange, kMostAnswer));
  keep(std::move(exchange));
  if (answer.empty()) co_return json::Value();
  constexpr std::size_t kMostValues = 1'000'000;
  auto value = json::parse(answer, {.bytes = kMostAnswer, .depth = 32, .values = kMostValues});
  if (!value.has_value())
    co_return fail(
        Error(Code::kDataLoss, "the server's answer is no JSON: " + value.error().message()));
  co_return std::move(*value);
}

}  // namespace caisson::cli
