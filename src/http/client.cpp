#include "http/client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "http/text.h"
#include "io/race.h"
#include "io/relay.h"

namespace caisson::http {

using io::Async;

namespace {

constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::size_t kMostHeaders = 256;
constexpr unsigned kMostInterim = 16;
constexpr std::size_t kRoom = 16 * 1024;
constexpr std::size_t kPiece = 64 * 1024;
// In which a backend takes nothing of what it is sent.
constexpr std::chrono::seconds kWriteTime{60};

std::unexpected<Error> malformed(const Refusal& refusal) {
  return fail(Error::invalid("a malformed answer: " + refusal.sentence));
}

}  // namespace

ClientExchange::ClientExchange(std::unique_ptr<io::Stream> stream) : stream_(std::move(stream)) {}

Async<Status> ClientExchange::send(RequestHead head, Framing body) {
  method_ = head.method;
  sending_ = body;
  sent_ = body.kind != Framing::Kind::kChunked;
  head.headers.remove("content-length").remove("transfer-encoding");
  if (body.kind == Framing::Kind::kLength)
    head.headers.add("Content-Length", std::to_string(body.length));
  if (body.kind == Framing::Kind::kChunked) head.headers.add("Transfer-Encoding", "chunked");
  CO_TRY_ASSIGN(const std::string bytes, encode(head));
  stream_->set_timeout(kWriteTime);
  co_return co_await stream_->write(bytes);
}

Async<Status> ClientExchange::write(std::string_view bytes) {
  if (bytes.empty()) co_return Status();
  std::string framed;
  if (sending_.kind == Framing::Kind::kChunked) {
    framed = chunk(bytes);
    bytes = framed;
  }
  stream_->set_timeout(kWriteTime);
  co_return co_await stream_->write(bytes);
}

Async<Status> ClientExchange::end() {
  if (sending_.kind != Framing::Kind::kChunked) co_return Status();
  stream_->set_timeout(kWriteTime);
  const Status written = co_await stream_->write(kLastChunk);
  sent_ = written.has_value();
  co_return written;
}

Async<Result<bool>> ClientExchange::fill() {
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kRoom);
  stream_->set_timeout({});
  const auto count = co_await stream_->read(std::span(buffer_).subspan(size));
  buffer_.resize(size + count.value_or(0));
  if (!count.has_value()) co_return fail(count.error());
  co_return *count > 0;
}

Async<Result<ResponseHead>> ClientExchange::read_head() {
  for (unsigned interim = 0; interim <= kMostInterim; ++interim) {
    HeadScanner scanner;
    auto size = scanner.scan(buffer_, kMostHead);
    while (size.has_value() && !size->has_value()) {
      CO_TRY_ASSIGN(const bool more, co_await fill());
      if (!more) co_return fail(Error::unavailable("the connection ended before the answer"));
      size = scanner.scan(buffer_, kMostHead);
    }
    if (!size.has_value()) co_return malformed(size.error());
    auto response =
        parse_response_head(std::string_view(buffer_).substr(0, **size), method_, kMostHeaders);
    buffer_.erase(0, **size);
    if (!response.has_value()) co_return malformed(response.error());
    if (response->head.status < 200 && response->head.status != 101) continue;
    decoder_ = BodyDecoder(response->body);
    stays_ = response->keep_alive && response->head.status != 101;
    co_return std::move(response->head);
  }
  co_return fail(Error::invalid("a malformed answer: too many interim ones"));
}

Async<Result<std::string>> ClientExchange::read_some(std::size_t most) {
  while (!decoder_.done()) {
    std::string_view rest = buffer_;
    const auto piece = decoder_.take(rest, most);
    if (!piece.has_value()) co_return malformed(piece.error());
    std::string bytes(*piece);
    buffer_.erase(0, buffer_.size() - rest.size());
    if (!bytes.empty()) co_return bytes;
    if (decoder_.done()) break;
    CO_TRY_ASSIGN(const bool more, co_await fill());
    if (!more && !decoder_.end_of_input())
      co_return fail(Error::unavailable("the connection ended before the answer did"));
  }
  co_return std::string();
}

std::unique_ptr<io::Stream> ClientExchange::release() {
  // Bytes behind the answer are nobody's.
  if (!stays_ || !sent_ || !decoder_.done() || !buffer_.empty()) return nullptr;
  return std::move(stream_);
}

// ---- forward
// --------------------------------------------------------------------------------------

namespace {

bool asks_for_upgrade(const RequestHead& head) {
  return head.headers.has("upgrade") && has_word(head.headers, "connection", "upgrade");
}

// What of the client's head is for the backend too.
RequestHead passed_on(RequestHead head) {
  const bool upgrade = asks_for_upgrade(head);
  const std::string protocol = head.headers.joined("upgrade");
  remove_hop_by_hop(head.headers);
  head.headers.remove("expect");  // the body follows at once
  head.minor_version = 1;
  if (!head.headers.has("host")) head.headers.add("Host", "localhost");
  if (upgrade) head.headers.add("Connection", "Upgrade").add("Upgrade", protocol);
  return head;
}

enum class Watch : std::uint8_t { kClient, kNobody };

// How it ended: the side that ends first says so. The other one is cancelled and does not know.
using Outcome = std::optional<Status>;

// The client has gone, or broke its body off: the backend must not take a part for the whole.
void give_up(ClientExchange& backend, Outcome& outcome) {
  if (outcome.has_value()) return;
  backend.stream().close(io::Stream::Close::kReset);
  outcome = fail(Error::unavailable("the client has gone"));
}

// Returns only where the client has gone; whoever waits for the answer ends it else.
Async<void> pass_request(Exchange& exchange, ClientExchange& backend, Watch watch,
                         Outcome& outcome) {
  for (;;) {
    const auto piece = co_await exchange.read_some(kPiece);
    if (!piece.has_value()) {
      give_up(backend, outcome);
      co_return;
    }
    if (piece->empty()) break;
    // A backend that takes no more may answer all the same.
    const Status written = co_await backend.write(*piece);
    if (!written.has_value()) break;
  }
  const Status ignored = co_await backend.end();
  if (watch == Watch::kClient) {
    co_await exchange.wait_gone();
    if (exchange.gone()) {
      give_up(backend, outcome);
      co_return;
    }
  }
  for (;;) co_await io::Loop::sleep(std::chrono::hours(24));
}

Async<Status> switch_protocols(Exchange& exchange, ClientExchange& backend, ResponseHead head) {
  const std::string protocol = head.headers.joined("upgrade");
  remove_hop_by_hop(head.headers);
  head.headers.add("Upgrade", protocol);
  CO_TRY_ASSIGN(Exchange::Upgraded upgraded, co_await exchange.upgrade(std::move(head)));
  backend.stream().set_timeout({});
  co_await io::relay(*upgraded.stream, std::move(upgraded.early), backend.stream(),
                     backend.take_early());
  co_return Status();
}

Async<Status> pass_answer(Exchange& exchange, ClientExchange& backend) {
  CO_TRY_ASSIGN(ResponseHead head, co_await backend.read_head());
  if (head.status == 101) co_return co_await switch_protocols(exchange, backend, std::move(head));
  remove_hop_by_hop(head.headers);
  CO_TRY(co_await exchange.begin(std::move(head)));
  for (;;) {
    CO_TRY_ASSIGN(const std::string piece, co_await backend.read_some(kPiece));
    if (piece.empty()) break;
    CO_TRY(co_await exchange.write(piece));
  }
  co_return co_await exchange.end();
}

Async<void> answer_side(Exchange& exchange, ClientExchange& backend, Outcome& outcome) {
  Status status = co_await pass_answer(exchange, backend);
  if (!outcome.has_value()) outcome = std::move(status);
}

}  // namespace

Async<Status> forward(Exchange& exchange, RequestHead head, std::unique_ptr<io::Stream> stream) {
  ClientExchange backend(std::move(stream));
  // Seeing the client go takes reading ahead, after which a connection cannot be handed over.
  const Watch watch = asks_for_upgrade(head) ? Watch::kNobody : Watch::kClient;
  Framing body{.kind = Framing::Kind::kChunked};
  if (const auto length = exchange.body_length(); length.has_value())
    body = {*length == 0 ? Framing::Kind::kNone : Framing::Kind::kLength, *length};
  CO_TRY(co_await backend.send(passed_on(std::move(head)), body));
  Outcome outcome;
  co_await io::race(pass_request(exchange, backend, watch, outcome),
                    answer_side(exchange, backend, outcome));
  if (outcome->has_value() || exchange.gone()) co_return Status();
  if (!exchange.begun()) co_return std::move(*outcome);
  exchange.abort();
  co_return Status();
}

}  // namespace caisson::http
