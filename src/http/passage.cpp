#include "http/passage.h"

#include <span>
#include <utility>

#include "base/guards.h"
#include "io/race.h"

namespace caisson::http {
namespace {

constexpr std::size_t kPiece = 64 * 1024;
constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::size_t kMostHeaders = 128;
constexpr unsigned kMostInterim = 16;
constexpr auto kForEver = std::chrono::hours(24 * 365);

}  // namespace

bool wants_upgrade(const RequestHead& head) {
  return has_word(head.headers, "Connection", "upgrade") && head.headers.has("Upgrade");
}

Passage::Passage(Exchange& exchange, io::Stream& upstream, PassageOptions options)
    : exchange_(exchange),
      upstream_(upstream),
      options_(std::move(options)),
      upgrades_(wants_upgrade(exchange.request())) {}

io::Async<Result<bool>> Passage::more() {
  if (ended_) co_return false;
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kPiece);
  const auto count = co_await upstream_.read(std::span(buffer_).subspan(before));
  buffer_.resize(before + count.value_or(0));
  if (!count.has_value() && count.error().code() == Code::kDeadlineExceeded)
    co_return fail(Error(Code::kDeadlineExceeded, "it did not answer in time"));
  if (!count.has_value()) co_return fail(count.error());
  ended_ = *count == 0;
  if (!ended_) heard_ = true;
  co_return !ended_;
}

// Of the client's body; empty: it has ended.
io::Async<Result<std::string>> Passage::next_piece() {
  if (options_.early_read == PassageOptions::Read::kAll) co_return std::string();
  co_return co_await exchange_.read_some(kPiece);
}

io::Async<Status> Passage::send_body() {
  const bool chunked = options_.head.headers.has("Transfer-Encoding");
  std::string bytes = std::move(options_.early_body);
  for (bool ended = false;;) {
    if (!bytes.empty()) {
      const std::string framed = chunked ? chunk(bytes) : std::move(bytes);
      CO_TRY(co_await upstream_.write(framed));
    }
    if (ended) break;
    auto piece = co_await next_piece();
    if (piece.has_value()) {
      ended = piece->empty();
      if (options_.change_body && options_.early_read == PassageOptions::Read::kPart)
        piece = options_.change_body(std::move(*piece));
    }
    if (!piece.has_value()) {
      body_fault_ = piece.error();
      co_return fail(piece.error());
    }
    bytes = std::move(*piece);
  }
  if (chunked) CO_TRY(co_await upstream_.write(kLastChunk));
  co_return Status();
}

// Ends only when there is nothing to wait for any more: the client broke off, or has left.
io::Async<void> Passage::send() {
  const Status sent = co_await send_body();
  sent_ = sent.has_value();
  // A program may answer before it has read all; what it does not take any more is its matter.
  if (!sent.has_value() && body_fault_.has_value()) co_return;
  if (!upgrades_ && options_.half_closed == PassageOptions::HalfClosed::kEnds) {
    co_await exchange_.wait_gone();
    if (exchange_.gone()) co_return;
  }
  co_await io::Loop::sleep(kForEver);
}

io::Async<Result<ParsedResponse>> Passage::receive_head() {
  if (upgrades_) upstream_.set_timeout(options_.upgrade_time);
  unsigned interim = 0;
  HeadScanner scanner;
  for (;;) {
    const auto size = scanner.scan(buffer_, kMostHead);
    if (!size.has_value()) co_return fail(Error::invalid(size.error().sentence));
    if (!size->has_value()) {
      CO_TRY_ASSIGN(const bool came, co_await more());
      if (!came) co_return fail(Error::unavailable("it closed the connection before it answered"));
      continue;
    }
    auto parsed = parse_response_head(std::string_view(buffer_).substr(0, **size),
                                      options_.head.method, kMostHeaders);
    if (!parsed.has_value()) co_return fail(Error::invalid(parsed.error().sentence));
    buffer_.erase(0, **size);
    const int status = parsed->head.status;
    if (status >= 200 || status == 101) co_return std::move(*parsed);
    // An interim answer is meant for us.
    if (++interim > kMostInterim) {
      co_return fail(Error::invalid("more than " + std::to_string(kMostInterim) +
                                    " interim answers before the answer"));
    }
    scanner = {};
  }
}

io::Async<Status> Passage::pass_body(BodyDecoder decoder) {
  while (!decoder.done()) {
    std::string_view rest = buffer_;
    std::string body;  // many small chunks become one write
    while (!rest.empty() && !decoder.done()) {
      const auto piece = decoder.take(rest, kPiece);
      if (!piece.has_value()) co_return fail(Error::invalid(piece.error().sentence));
      body += *piece;
    }
    extra_ = !rest.empty();
    buffer_.clear();
    if (options_.change_answer_body && !body.empty()) {
      CO_TRY_ASSIGN(body, options_.change_answer_body(std::move(body)));
    }
    if (!body.empty()) CO_TRY(co_await exchange_.write(body));
    if (decoder.done()) break;
    CO_TRY_ASSIGN(const bool came, co_await more());
    if (!came && !decoder.end_of_input())
      co_return fail(Error::unavailable("its answer is cut off"));
    if (!came) break;
  }
  if (options_.change_answer_body) {
    CO_TRY_ASSIGN(const std::string last, options_.change_answer_body(""));
    if (!last.empty()) CO_TRY(co_await exchange_.write(last));
  }
  co_return co_await exchange_.end();
}

io::Async<Status> Passage::receive_answer() {
  CO_TRY_ASSIGN(ParsedResponse answer, co_await receive_head());
  if (upgrades_) upstream_.set_timeout({});
  answer_status_ = answer.head.status;
  // The version is of who sends it: to our client that is us.
  answer.head.minor_version = 1;
  if (answer.head.status == 101) {
    if (options_.on_answer) CO_TRY(options_.on_answer(answer.head));
    if (!upgrades_ && !guard_off(Guard::kUpgradeUnasked))
      co_return fail(Error::invalid("it changes the protocol unasked"));
    co_return co_await tunnel(std::move(answer.head));
  }
  remove_hop_by_hop(answer.head.headers);
  answer.head.headers.remove("Transfer-Encoding");
  if (options_.on_answer) CO_TRY(options_.on_answer(answer.head));
  CO_TRY(co_await exchange_.begin(std::move(answer.head)));
  const bool lasts = answer.keep_alive && answer.body.kind != Framing::Kind::kUntilClose;
  CO_TRY(co_await pass_body(BodyDecoder(answer.body)));
  free_ = lasts && sent_ && !ended_ && !extra_ && buffer_.empty();
  co_return Status();
}

io::Async<void> Passage::tunnel_out(io::Stream& client, std::string early) {
  std::string bytes = std::move(early);
  for (;;) {
    if (!bytes.empty()) {
      const Status written = co_await upstream_.write(bytes);
      if (!written.has_value()) co_return;
    }
    bytes.assign(kPiece, '\0');
    const auto count = co_await client.read(bytes);
    if (!count.has_value()) co_return;
    if (*count == 0) break;
    bytes.resize(*count);
  }
  // The other direction may go on.
  co_await upstream_.finish();
  co_await io::Loop::sleep(kForEver);
}

io::Async<Status> Passage::tunnel_in(io::Stream& client) {
  for (;;) {
    if (!buffer_.empty()) {
      const std::string bytes = std::exchange(buffer_, {});
      CO_TRY(co_await client.write(bytes));
    }
    CO_TRY_ASSIGN(const bool came, co_await more());
    if (!came) co_return Status();
  }
}

io::Async<Status> Passage::tunnel(ResponseHead head) {
  CO_TRY_ASSIGN(Exchange::Upgraded upgraded, co_await exchange_.upgrade(std::move(head)));
  auto receive = [](Passage& self, io::Stream& client) -> io::Async<void> {
    co_await self.tunnel_in(client);
  };
  co_await io::race(tunnel_out(*upgraded.stream, std::move(upgraded.early)),
                    receive(*this, *upgraded.stream));
  co_return Status();
}

io::Async<void> Passage::receive(Status& result) {
  result = co_await receive_answer();
}

io::Async<Status> Passage::run() {
  CO_TRY_ASSIGN(const std::string bytes, encode(options_.head));
  CO_TRY(co_await upstream_.write(bytes));
  Status result = fail(Error(Code::kCancelled, "the client has gone"));
  co_await io::race(send(), receive(result));
  if (!result.has_value() && body_fault_.has_value()) co_return fail(*body_fault_);
  co_return result;
}

}  // namespace caisson::http
