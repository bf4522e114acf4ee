#include "http/connection.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "http/exchange.h"

namespace caisson::http {
namespace {

using io::Async;
using io::Clock;
using Held = std::shared_ptr<Connection>;

// What an idle connection waits with; the rest of a head is read in larger pieces.
constexpr std::size_t kFirstRoom = 1024;
constexpr std::size_t kHeadRoom = 4096;
// How much is read ahead at most to see whether the client has gone: of a body, or of the requests
// behind the one that is being served.
constexpr std::size_t kMostAhead = 16 * 1024;
// An upload is under way while its refusal is: many clients read an answer only when they have sent
// all.
constexpr std::size_t kMostLingering = 16u << 20;
constexpr std::chrono::seconds kLingerTime{2};

}  // namespace

Connection::Connection(std::shared_ptr<Server::State> server, std::unique_ptr<io::Stream> stream,
                       Server::Transport transport, Handler handler)
    : server_(std::move(server)),
      handler_(std::move(handler)),
      stream_(std::move(stream)),
      transport_(transport),
      changed_(server_->loop) {
  server_->connections.push_back(this);
  place_ = std::prev(server_->connections.end());
  ++server_->counts.connections;
  ++server_->counts.connections_total;
}

Connection::~Connection() {
  leave_idle();
  server_->connections.erase(place_);
  --server_->counts.connections;
  server_->one_ended.notify();
}

Async<void> Connection::run(Held self) {
  Next next = Next::kRequest;
  while (next == Next::kRequest) {
    // A part of a head is no request yet, or it would hold a place that others need.
    self->enter_idle();
    const Status woken = co_await wait_for_request(self);
    if (!woken.has_value()) break;
    Head head = co_await read_head(self);
    self->leave_idle();
    if (head.refusal.has_value()) {
      co_await refuse(self, std::move(*head.refusal));
      break;
    }
    if (!head.request.has_value()) break;
    next = co_await serve(self, std::move(*head.request));
  }
  if (next == Next::kLinger) co_await linger(*self->stream_);
  self->close(io::Stream::Close::kPlain);
}

// Until the first byte of the next request; holds next to nothing meanwhile.
Async<Status> Connection::wait_for_request(Held self) {
  if (!self->buffer_.empty()) co_return Status();
  if (self->gone_ || self->server_->draining) co_return fail(Error::unavailable("the end"));
  Buffer().swap(self->buffer_);
  co_return co_await fill(self, kFirstRoom, self->server_->limits.idle_time);
}

void Connection::enter_idle() {
  auto& idle = server_->idle;
  idle_place_ = idle.insert(idle.end(), this);
}

void Connection::leave_idle() {
  if (idle_place_.has_value()) server_->idle.erase(*idle_place_);
  idle_place_.reset();
}

Async<Connection::Head> Connection::read_head(Held self) {
  const Limits& limits = self->server_->limits;
  const Clock::time_point until = Clock::now() + limits.head_time;
  HeadScanner scanner;
  for (;;) {
    const auto size = scanner.scan(self->buffer_, limits.head_bytes);
    if (!size.has_value()) co_return Head{.refusal = size.error()};
    if (size->has_value()) {
      auto request =
          parse_request_head(std::string_view(self->buffer_).substr(0, **size), limits.headers);
      self->buffer_.erase(0, **size);
      if (!request.has_value()) co_return Head{.refusal = std::move(request).error()};
      co_return Head{.request = std::move(*request)};
    }
    const Clock::duration left = until - Clock::now();
    Status status = left > Clock::duration::zero()
                        ? Status()
                        : fail(Error(Code::kDeadlineExceeded, "the head takes too long"));
    if (status.has_value()) status = co_await fill(self, kHeadRoom, left);
    if (status.has_value()) continue;
    if (status.error().code() != Code::kDeadlineExceeded) co_return Head();
    co_return Head{.refusal = Refusal{408, "the request's head did not come in time"}};
  }
}

Async<Connection::Next> Connection::serve(Held self, ParsedRequest request) {
  ++self->server_->counts.requests_total;
  ServerExchange exchange(self, std::move(request));
  if (exchange.parse_target()) {
    co_await self->handler_(exchange);
  } else {
    ++self->server_->counts.refused_total;
    co_await exchange.refuse(400, "the target has a malformed escape or a zero byte");
  }
  const bool goes_on = co_await exchange.finish();
  ++self->number_;
  self->body_open_ = false;
  self->changed_.notify();
  if (goes_on) co_return Next::kRequest;
  co_return self->gone_ || exchange.upgraded() ? Next::kClose : Next::kLinger;
}

Async<void> Connection::refuse(Held self, Refusal refusal) {
  ++self->server_->counts.refused_total;
  const std::string answer = closing_answer(*self->server_, refusal.status, refusal.sentence);
  const Status status = co_await write(self, answer);
  if (status.has_value()) co_await linger(*self->stream_);
}

// ---- bytes
// ----------------------------------------------------------------------------------------

void Connection::lost() {
  gone_ = true;
  changed_.notify();
}

void Connection::close(io::Stream::Close how) {
  stream_->close(how);
  lost();
}

// A read into the buffer. Ends well too where the coroutine that waits for it is cancelled.
class Connection::Reading {
 public:
  Reading(Connection& connection, std::size_t room)
      : connection_(connection), size_(connection.buffer_.size()) {
    connection_.reading_ = connection_.filling_ = true;
    connection_.buffer_.resize(size_ + room);
  }
  ~Reading() {
    connection_.buffer_.resize(size_);
    connection_.reading_ = connection_.filling_ = false;
    connection_.changed_.notify();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  std::span<char> room() { return std::span(connection_.buffer_).subspan(size_); }
  void came(std::size_t count) { size_ += count; }

 private:
  Connection& connection_;
  std::size_t size_;
};

// Resets the connection unless all was written: who is cancelled midway has sent a part.
class Connection::Writing {
 public:
  explicit Writing(Connection& connection) : connection_(connection) {}
  ~Writing() {
    if (!whole_) connection_.close(io::Stream::Close::kReset);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  void done() { whole_ = true; }

 private:
  Connection& connection_;
  bool whole_ = false;
};

Async<Status> Connection::fill(Held self, std::size_t room, Clock::duration timeout) {
  if (self->reading_) {
    const std::size_t before = self->buffer_.size();
    const Clock::time_point until = Clock::now() + timeout;
    while (self->reading_) {
      const bool in_time = co_await self->changed_.wait_until(until);
      if (!in_time) co_return fail(Error(Code::kDeadlineExceeded, "nothing came"));
    }
    if (self->buffer_.size() > before) co_return Status();
  }
  if (self->gone_) co_return fail(Error::unavailable("the client has gone"));
  Reading reading(*self, room);
  self->stream_->set_timeout(timeout);
  const auto count = co_await self->stream_->read(reading.room());
  reading.came(count.value_or(0));
  if (count.has_value() && *count > 0) co_return Status();
  if (!count.has_value() && count.error().code() == Code::kDeadlineExceeded)
    co_return fail(count.error());
  self->lost();
  co_return fail(Error::unavailable("the client has gone"));
}

Async<Status> Connection::write(Held self, std::string_view bytes) {
  if (self->gone_) co_return fail(Error::unavailable("the client has gone"));
  self->stream_->set_timeout(self->server_->limits.write_time);
  Writing writing(*self);
  CO_TRY(co_await self->stream_->write(bytes));
  writing.done();
  co_return Status();
}

Async<void> Connection::read_ahead(Held self) {
  std::array<char, 2048> piece;
  self->stream_->set_timeout({});
  const auto count = co_await self->stream_->read(piece);
  self->buffer_.append(piece.data(), count.value_or(0));
  wipe(piece.data(), count.value_or(0));
  self->reading_ = false;
  if (count.value_or(0) == 0) self->gone_ = true;
  self->changed_.notify();
}

Async<void> Connection::watch(Held self, std::uint64_t number) {
  while (!self->gone_ && self->number_ == number) {
    if (self->buffer_.size() >= kMostAhead) {
      // Whoever sends so much behind a request that is not answered yet could hide its end behind
      // it. A body is the handler's to read.
      if (!self->body_open_) self->close(io::Stream::Close::kReset);
      co_return;
    }
    if (!self->reading_) {
      self->reading_ = true;
      self->server_->loop.spawn(read_ahead(self));
    }
    co_await self->changed_.wait();
  }
}

Async<void> linger(io::Stream& stream) {
  co_await stream.finish();
  const Clock::time_point until = Clock::now() + kLingerTime;
  std::array<char, 4096> piece;
  for (std::size_t dropped = 0; dropped < kMostLingering;) {
    const Clock::duration left = until - Clock::now();
    if (left <= Clock::duration::zero()) co_return;
    stream.set_timeout(left);
    const auto count = co_await stream.read(piece);
    if (count.value_or(0) == 0) co_return;
    dropped += *count;
  }
}

std::string closing_answer(Server::State& server, int status, std::string_view sentence) {
  const std::string body = error_body(status, sentence);
  ResponseHead head{.status = status};
  head.headers.add("Content-Type", "application/json")
      .add("Content-Length", std::to_string(body.size()))
      .add("Connection", "close")
      .add("Date", server.date())
      .add("X-Request-Id", server.next_id());
  auto bytes = encode(head);
  VERIFY(bytes.has_value());
  return *bytes + body;
}

}  // namespace caisson::http
