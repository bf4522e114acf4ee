#include "http/client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "http/text.h"

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

}  // namespace caisson::http
