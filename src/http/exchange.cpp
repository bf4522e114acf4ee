#include "http/exchange.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/guards.h"
#include "base/json.h"
#include "base/secret.h"
#include "http/text.h"

namespace caisson::http {

using io::Async;

namespace {

constexpr std::size_t kBodyRoom = 16 * 1024;
// How much of a body that the handler did not want is read before the next request.
constexpr std::uint64_t kMostDropped = 64 * 1024;
constexpr std::chrono::seconds kDropTime{2};
// A large piece of an answer is framed in parts of this size.
constexpr std::size_t kMostChunk = 64 * 1024;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

std::string error_body(int status, std::string_view sentence) {
  json::Value body = json::Value::object();
  body.set("code", status).set("message", sentence);
  return json::serialize(body);
}

Async<Result<std::string>> Exchange::read_all(std::size_t most) {
  const auto too_long = [most] {
    return fail(Error::exhausted("the body is longer than " + std::to_string(most) + " bytes"));
  };
  if (body_length().value_or(0) > most) co_return too_long();
  std::string all;
  for (;;) {
    // One more than allowed, to see that it is too long.
    CO_TRY_ASSIGN(const std::string piece, co_await read_some(most - all.size() + 1));
    if (piece.empty()) co_return all;
    if (piece.size() > most - all.size()) co_return too_long();
    CO_TRY(hold(piece.size()));
    all += piece;
  }
}

ServerExchange::ServerExchange(std::shared_ptr<Connection> connection, ParsedRequest request)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      decoder_(request_.body),
      continued_(!request_.expects_continue) {
  id_ = connection_->server().next_id();
  connection_->set_body_open(!decoder_.done());
}

bool ServerExchange::parse_target() {
  const RequestHead& head = request_.head;
  if (head.method == "CONNECT" || head.target == "*") {
    target_.path = head.target;
    return true;
  }
  auto parsed = http::parse_target(head.target);
  if (parsed.has_value()) target_ = std::move(*parsed);
  return parsed.has_value();
}

// ---- the request's body
// ---------------------------------------------------------------------------

Status ServerExchange::hold(std::size_t bytes) {
  TRY(connection_->server().hold(bytes));
  held_ += bytes;
  return {};
}

void ServerExchange::let_go() {
  connection_->server().held -= std::exchange(held_, 0);
}

std::optional<std::uint64_t> ServerExchange::body_length() const {
  if (request_.body.kind == Framing::Kind::kChunked) return std::nullopt;
  return request_.body.length;
}

Async<Result<std::string>> ServerExchange::read_some(std::size_t most) {
  return next_piece(most, connection_->server().limits.body_time);
}

Async<Result<std::string>> ServerExchange::next_piece(std::size_t most, io::Clock::duration time) {
  VERIFY(most > 0);
  if (upgraded()) co_return std::string();
  Connection::Buffer& buffer = connection_->buffer();
  for (;;) {
    if (body_refusal_.has_value()) co_return fail(Error::invalid(body_refusal_->sentence));
    if (decoder_.done()) co_return std::string();
    if (!buffer.empty() && !connection_->filling()) {
      continued_ = true;
      // Many small chunks are one piece. A fault behind them is told by the next call.
      std::string_view rest = buffer;
      // At once, so that whoever takes it has the only copy.
      std::string bytes;
      bytes.reserve(std::min(most, rest.size()));
      while (!rest.empty() && bytes.size() < most && !decoder_.done()) {
        auto piece = decoder_.take(rest, most - bytes.size());
        if (!piece.has_value()) {
          body_refusal_ = std::move(piece).error();
          break;
        }
        bytes += *piece;
      }
      buffer.erase(0, buffer.size() - rest.size());
      if (decoder_.done()) connection_->set_body_open(false);
      if (!bytes.empty()) co_return bytes;
      continue;
    }
    if (!continued_ && !begun_) {
      continued_ = true;
      CO_TRY(co_await Connection::write(connection_, kContinue));
    }
    const Status filled =
        co_await Connection::fill(connection_, kBodyRoom, connection_->server().limits.body_time);
    if (!filled.has_value()) {
      body_refusal_ = Refusal{400, "the request's body broke off"};
      co_return fail(Error(filled.error()).with("the request's body broke off"));
    }
  }
}

Async<bool> ServerExchange::drop_body() {
  const io::Clock::time_point until = io::Clock::now() + kDropTime;
  std::uint64_t dropped = 0;
  while (!decoder_.done()) {
    const io::Clock::duration left = until - io::Clock::now();
    if (dropped + decoder_.left() > kMostDropped || left <= io::Clock::duration::zero())
      co_return false;
    auto piece = co_await next_piece(kBodyRoom, left);
    if (!piece.has_value()) co_return false;
    dropped += piece->size();
    // It may be a secret that its sender had no right to give.
    wipe(*piece);
  }
  co_return true;
}

// ---- the answer
// -----------------------------------------------------------------------------------

Status ServerExchange::not_begun() const {
  if (answer_ == Answer::kNone) return {};
  return fail(Error::precondition("the answer has begun already"));
}

bool ServerExchange::may_stay() const {
  if (!request_.keep_alive || connection_->server().draining || body_refusal_.has_value())
    return false;
  if (decoder_.done()) return true;
  // The client may or may not send a body that it was not asked for.
  return continued_ && decoder_.left() <= kMostDropped;
}

bool ServerExchange::has_no_body(int status) const {
  return request_.head.method == "HEAD" || status < 200 || status == 204 || status == 304;
}

Result<std::string> ServerExchange::make_head(ResponseHead head,
                                              std::optional<std::uint64_t> length) {
  Headers& headers = head.headers;
  stays_ = may_stay() && !has_word(headers, "connection", "close");
  const bool interim = head.status < 200;
  headers.remove("transfer-encoding").remove("connection");
  // A 304 may name a coding (RFC 9112, section 6.1), and some clients then wait for a body.
  const bool unframed = head.status == 304 && !length.has_value();
  if (interim || head.status == 204 || unframed) {
    body_ = Body::kNone;
    headers.remove("content-length");
  } else if (length.has_value()) {
    body_ = Body::kLength;
    left_ = *length;
    headers.set("Content-Length", std::to_string(*length));
  } else if (request_.head.minor_version == 1) {
    body_ = Body::kChunked;
    headers.add("Transfer-Encoding", "chunked");
  } else {
    body_ = Body::kUntilClose;
    stays_ = false;
  }
  if (has_no_body(head.status)) body_ = Body::kNone;
  if (!headers.has("date")) headers.add("Date", connection_->server().date());
  if (connection_->server().limits.request_ids) headers.set("X-Request-Id", id_);
  if (!stays_) headers.add("Connection", "close");
  if (stays_ && request_.head.minor_version == 0) headers.add("Connection", "keep-alive");
  return encode(head);
}

Async<Status> ServerExchange::respond(ResponseHead head, std::string body) {
  CO_TRY(not_begun());
  std::uint64_t length = body.size();
  // Of an answer to HEAD the handler may know the length without having the body.
  if (request_.head.method == "HEAD" && body.empty()) {
    const std::string_view stated = head.headers.get("content-length").value_or("0");
    std::from_chars(stated.data(), stated.data() + stated.size(), length);
  }
  CO_TRY_ASSIGN(std::string bytes, make_head(std::move(head), length));
  begun_ = true;
  answer_ = Answer::kEnded;
  if (body_ != Body::kNone) bytes += body;
  co_return co_await Connection::write(connection_, bytes);
}

Async<Status> ServerExchange::begin(ResponseHead head) {
  CO_TRY(not_begun());
  std::optional<std::uint64_t> length;
  if (const auto stated = head.headers.get("content-length"); stated.has_value()) {
    std::uint64_t number = 0;
    const char* const end = stated->data() + stated->size();
    const auto parsed = std::from_chars(stated->data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      co_return fail(Error::invalid("the answer's Content-Length is no number"));
    length = number;
  }
  CO_TRY_ASSIGN(const std::string bytes, make_head(std::move(head), length));
  begun_ = true;
  answer_ = Answer::kBegun;
  co_return co_await Connection::write(connection_, bytes);
}

Async<Status> ServerExchange::write(std::string_view bytes) {
  if (answer_ != Answer::kBegun)
    co_return fail(Error::precondition("the answer has not begun, or has ended"));
  if (body_ == Body::kLength && bytes.size() > left_) {
    abort();
    co_return fail(Error::internal("the answer is longer than its Content-Length"));
  }
  if (body_ == Body::kNone || bytes.empty()) {
    if (gone()) co_return fail(Error::unavailable("the client has gone"));
    co_return Status();
  }
  if (body_ != Body::kChunked) {
    if (body_ == Body::kLength) left_ -= bytes.size();
    co_return co_await Connection::write(connection_, bytes);
  }
  while (!bytes.empty()) {
    const std::string framed = chunk(bytes.substr(0, kMostChunk));
    bytes.remove_prefix(std::min(kMostChunk, bytes.size()));
    CO_TRY(co_await Connection::write(connection_, framed));
  }
  co_return Status();
}

Async<Status> ServerExchange::end() {
  if (answer_ != Answer::kBegun)
    co_return fail(Error::precondition("the answer has not begun, or has ended"));
  if (body_ == Body::kLength && left_ > 0) {
    abort();
    co_return fail(Error::internal("the answer is shorter than its Content-Length"));
  }
  answer_ = Answer::kEnded;
  if (body_ != Body::kChunked) co_return Status();
  co_return co_await Connection::write(connection_, kLastChunk);
}

void ServerExchange::abort() {
  begun_ = true;
  answer_ = Answer::kEnded;
  stays_ = false;
  connection_->close(io::Stream::Close::kReset);
}

Async<void> ServerExchange::refuse(int status, std::string sentence) {
  ResponseHead head{.status = status, .headers = {{"Content-Type", "application/json"}}};
  co_await respond(std::move(head), error_body(status, sentence));
}

Async<bool> ServerExchange::finish() {
  if (on_gone_ != nullptr) *on_gone_ = nullptr;
  if (upgraded() || gone()) co_return false;
  if (answer_ == Answer::kNone) co_await refuse(500, "the request was not answered");
  if (answer_ == Answer::kBegun) abort();
  if (!stays_ || gone()) co_return false;
  co_return co_await drop_body();
}

// ---- the client's end
// -----------------------------------------------------------------------------

Async<void> ServerExchange::wait_gone() {
  return Connection::watch(connection_, connection_->number());
}

void ServerExchange::on_gone(std::function<void()> call) {
  const bool watched = on_gone_ != nullptr;
  if (!watched) on_gone_ = std::make_shared<std::function<void()>>();
  *on_gone_ = std::move(call);
  if (watched) return;
  auto watch = [](std::shared_ptr<Connection> connection, std::uint64_t number,
                  std::shared_ptr<std::function<void()>> held) -> Async<void> {
    co_await Connection::watch(connection, number);
    if (connection->gone() && *held != nullptr) (*held)();
  };
  connection_->server().loop.spawn(watch(connection_, connection_->number(), on_gone_));
}

Async<Result<Exchange::Upgraded>> ServerExchange::upgrade(ResponseHead head) {
  CO_TRY(not_begun());
  if ((!request_.upgrade && !guard_off(Guard::kUpgradeUnasked)) || !decoder_.done())
    co_return fail(Error::precondition("the request asks for no other protocol"));
  if (connection_->reading())
    co_return fail(Error::precondition("the connection is being read already"));
  head.headers.remove("content-length").remove("transfer-encoding").remove("connection");
  if (head.status == 101) head.headers.add("Connection", "Upgrade");
  if (connection_->server().limits.request_ids) head.headers.set("X-Request-Id", id_);
  CO_TRY_ASSIGN(const std::string bytes, encode(head));
  begun_ = true;
  answer_ = Answer::kUpgraded;
  CO_TRY(co_await Connection::write(connection_, bytes));
  connection_->stream().set_timeout({});
  Upgraded upgraded{.stream = &connection_->stream()};
  upgraded.early = connection_->buffer();
  connection_->buffer().clear();
  co_return upgraded;
}

}  // namespace caisson::http
