#include "http/client.h"

#include <algorithm>
#include <utility>

#include "http/text.h"
#include "io/relay.h"

namespace caisson::http {

using io::Async;

namespace {

constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::size_t kMostHeaders = 256;
constexpr unsigned kMostInterim = 16;
constexpr std::size_t kRoom = 16 * 1024;
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
  co_return co_await stream_->write(kLastChunk);
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

// ---- forward
// --------------------------------------------------------------------------------------

namespace {

// One request on its way. Lives in forward(), which waits for the coroutine that it spawns.
struct Forwarding {
  Forwarding(io::Loop& on, Exchange& from, std::unique_ptr<io::Stream> to)
      : loop(on), exchange(from), backend(std::move(to)), changed(on) {}

  io::Loop& loop;
  Exchange& exchange;
  ClientExchange backend;
  io::Event changed;
  bool answered = false;  // the answer's side has ended
  Status result;          // of it
};

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

Async<Status> switch_protocols(Forwarding& forwarding, ResponseHead head) {
  const std::string protocol = head.headers.joined("upgrade");
  remove_hop_by_hop(head.headers);
  head.headers.add("Upgrade", protocol);
  CO_TRY_ASSIGN(Exchange::Upgraded upgraded, co_await forwarding.exchange.upgrade(std::move(head)));
  io::Stream& backend = forwarding.backend.stream();
  backend.set_timeout({});
  co_await io::relay(forwarding.loop, *upgraded.stream, std::move(upgraded.early), backend,
                     forwarding.backend.take_early());
  co_return Status();
}

Async<Status> pass_answer(Forwarding& forwarding) {
  Exchange& exchange = forwarding.exchange;
  CO_TRY_ASSIGN(ResponseHead head, co_await forwarding.backend.read_head());
  if (head.status == 101) co_return co_await switch_protocols(forwarding, std::move(head));
  remove_hop_by_hop(head.headers);
  // A length beside another framing was refused, so what is stated is the answer's own.
  CO_TRY(co_await exchange.begin(std::move(head)));
  for (;;) {
    const auto piece = co_await forwarding.backend.read_some(64 * 1024);
    if (!piece.has_value()) co_return fail(piece.error());
    if (piece->empty()) break;
    CO_TRY(co_await exchange.write(*piece));
  }
  co_return co_await exchange.end();
}

Async<void> answer_side(Forwarding& forwarding) {
  forwarding.result = co_await pass_answer(forwarding);
  forwarding.answered = true;
  forwarding.changed.notify();
}

// Until the body has ended, the answer has, or something broke.
Async<void> pass_body(Forwarding& forwarding) {
  while (!forwarding.answered) {
    const auto piece = co_await forwarding.exchange.read_some(64 * 1024);
    if (!piece.has_value()) {
      // The backend must not take a part for the whole.
      if (!forwarding.answered) forwarding.backend.stream().close(io::Stream::Close::kReset);
      co_return;
    }
    if (piece->empty()) break;
    // A backend that takes no more may have answered all the same.
    const Status written = co_await forwarding.backend.write(*piece);
    if (!written.has_value()) co_return;
  }
  const Status ignored = co_await forwarding.backend.end();
}

}  // namespace

Async<Status> forward(io::Loop& loop, Exchange& exchange, RequestHead head,
                      std::unique_ptr<io::Stream> backend) {
  Forwarding forwarding(loop, exchange, std::move(backend));
  const bool upgrade = asks_for_upgrade(head);
  Framing body{.kind = Framing::Kind::kChunked};
  if (const auto length = exchange.body_length(); length.has_value())
    body = {*length == 0 ? Framing::Kind::kNone : Framing::Kind::kLength, *length};
  CO_TRY(co_await forwarding.backend.send(passed_on(std::move(head)), body));
  // Seeing the client go takes reading ahead, after which a connection cannot be handed over.
  if (!upgrade)
    exchange.on_gone(
        [&forwarding] { forwarding.backend.stream().close(io::Stream::Close::kReset); });
  loop.spawn(answer_side(forwarding));
  co_await pass_body(forwarding);
  while (!forwarding.answered) co_await forwarding.changed.wait();
  if (!upgrade) exchange.on_gone(nullptr);
  if (!forwarding.result.has_value() && exchange.begun() && !exchange.gone()) exchange.abort();
  if (exchange.begun() || exchange.gone()) co_return Status();
  co_return std::move(forwarding.result);
}

}  // namespace caisson::http
