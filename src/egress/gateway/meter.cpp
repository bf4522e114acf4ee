#include "egress/gateway/meter.h"

#include <algorithm>
#include <utility>

namespace caisson::egress {
namespace {

// What is read to look at it, and what is written at once where it is counted out.
constexpr std::size_t kPiece = 16 * 1024;
// How far a slow direction may run ahead of its rate: what is in flight anyway.
constexpr std::chrono::milliseconds kAhead{50};
constexpr std::uint64_t kMostPerSecond = 1'000'000'000;

std::optional<TokenBucket> bucket(std::optional<std::uint64_t> per_second) {
  if (!per_second) return std::nullopt;
  const auto rate =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(*per_second, 1, kMostPerSecond));
  return TokenBucket(Rate{.per_second = rate, .burst = rate}, io::Clock::now());
}

}  // namespace

Meter::Meter(const policy::NetworkLimits& limits) {
  set_limits(limits);
}

void Meter::set_limits(const policy::NetworkLimits& limits) {
  limits_ = limits;
  new_connections_ = bucket(limits.connections_per_second);
  queries_ = bucket(limits.dns_per_second);
}

std::string_view Meter::connection_fault() {
  if (limits_.connections && streams_.size() >= *limits_.connections) return "connections";
  if (new_connections_ && !new_connections_->take(io::Clock::now()))
    return "connections_per_second";
  if (limits_.bytes_up && up_.total >= *limits_.bytes_up) return "bytes_up";
  if (limits_.bytes_down && down_.total >= *limits_.bytes_down) return "bytes_down";
  return {};
}

void Meter::reset_all() {
  for (MeteredStream* const stream : streams_) stream->close(io::Stream::Close::kReset);
}

bool Meter::take_query() {
  return !queries_ || queries_->take(io::Clock::now());
}

Result<io::Clock::duration> Meter::pass(Direction& direction, std::optional<std::uint64_t> most,
                                        std::optional<std::uint64_t> rate, std::size_t bytes) {
  if (most && direction.total + bytes > *most) {
    return fail(Error(Code::kResourceExhausted, &direction == &up_ ? "bytes_up" : "bytes_down"));
  }
  direction.total += bytes;
  if (!rate) return io::Clock::duration::zero();
  const io::Clock::time_point now = io::Clock::now();
  const std::chrono::duration<double> takes(static_cast<double>(bytes) /
                                            static_cast<double>(*rate));
  direction.free_at =
      std::max(direction.free_at, now) + std::chrono::duration_cast<io::Clock::duration>(takes);
  return std::max(direction.free_at - now - kAhead, io::Clock::duration::zero());
}

std::unique_ptr<UpstreamPlace> UpstreamPlace::take(Meter& meter) {
  const auto most = meter.limits().connections;
  if (most && meter.upstreams_ >= *most) return nullptr;
  return std::unique_ptr<UpstreamPlace>(new UpstreamPlace(meter));
}

MeteredStream::MeteredStream(Meter& meter, std::unique_ptr<io::Stream> stream, std::string seen)
    : meter_(meter), stream_(std::move(stream)), seen_(std::move(seen)) {
  place_ = meter_.streams_.insert(meter_.streams_.end(), this);
}

MeteredStream::~MeteredStream() {
  meter_.streams_.erase(place_);
}

void MeteredStream::end_for(std::string_view limit) {
  ended_by_ = limit;
  stream_->close(Close::kReset);
}

io::Async<Status> MeteredStream::look_further(io::Clock::duration time) {
  std::string piece(kPiece, '\0');
  stream_->set_timeout(time);
  const auto count = co_await stream_->read(piece);
  stream_->set_timeout({});
  if (!count.has_value()) co_return fail(count.error());
  if (*count == 0) co_return fail(Error::unavailable("the sandbox closed the connection"));
  seen_.append(piece, 0, *count);
  co_return Status();
}

io::Async<Result<std::size_t>> MeteredStream::read(std::span<char> into) {
  std::size_t count = 0;
  if (!seen_.empty()) {
    count = seen_.copy(into.data(), into.size());
    seen_.erase(0, count);
  } else {
    CO_TRY_ASSIGN(count, co_await stream_->read(into));
  }
  moved_at_ = io::Clock::now();
  const auto wait = meter_.pass(meter_.up_, meter_.limits_.bytes_up, meter_.limits_.rate_up, count);
  if (!wait.has_value()) {
    end_for("bytes_up");
    co_return fail(wait.error());
  }
  up_ += count;
  if (*wait > io::Clock::duration::zero()) co_await io::Loop::sleep(*wait);
  co_return count;
}

io::Async<Status> MeteredStream::wait_readable() {
  if (!seen_.empty()) co_return Status();
  co_return co_await stream_->wait_readable();
}

io::Async<Status> MeteredStream::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const policy::NetworkLimits& limits = meter_.limits_;
    const bool counted_out = limits.rate_down || limits.bytes_down;
    const std::string_view piece = bytes.substr(0, counted_out ? kPiece : bytes.size());
    const auto wait = meter_.pass(meter_.down_, meter_.limits_.bytes_down, meter_.limits_.rate_down,
                                  piece.size());
    if (!wait.has_value()) {
      end_for("bytes_down");
      co_return fail(wait.error());
    }
    if (*wait > io::Clock::duration::zero()) co_await io::Loop::sleep(*wait);
    CO_TRY(co_await stream_->write(piece));
    down_ += piece.size();
    moved_at_ = io::Clock::now();
    bytes.remove_prefix(piece.size());
  }
  co_return Status();
}

io::Async<void> MeteredStream::finish() {
  co_await stream_->finish();
}

void MeteredStream::close(Close how) {
  stream_->close(how);
}

void MeteredStream::set_timeout(io::Clock::duration time) {
  stream_->set_timeout(time);
}

}  // namespace caisson::egress
