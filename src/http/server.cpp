#include "http/server.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "http/connection.h"
#include "http/server_state.h"

namespace caisson::http {
namespace {

using io::Async;
using io::Clock;

// Over the limit of connections so many at once are told so; others are just closed.
constexpr unsigned kMostTurnedAway = 64;

std::string hex(std::uint64_t number, int digits) {
  std::array<char, 20> text;
  const int size = std::snprintf(text.data(), text.size(), "%0*llx", digits,
                                 static_cast<unsigned long long>(number));
  return {text.data(), static_cast<std::size_t>(size)};
}

}  // namespace

Server::State::State(io::Loop& on, Limits bounds, Handler with)
    : loop(on), limits(bounds), handler(std::move(with)), one_ended(on) {
  std::uint32_t random = 0;
  // Only tells the numbers of one run from those of another.
  (void)!::getrandom(&random, sizeof(random), 0);
  id_prefix_ = hex(random, 8) + "-";
}

std::string Server::State::next_id() {
  return id_prefix_ + hex(++ids_, 1);
}

const std::string& Server::State::date() {
  const std::time_t now = std::time(nullptr);
  if (now == date_second_) return date_;
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[parts.tm_wday], parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900,
                parts.tm_hour, parts.tm_min, parts.tm_sec);
  date_second_ = now;
  date_ = text.data();
  return date_;
}

Async<void> Server::State::accept_all(std::shared_ptr<State> state,
                                      std::shared_ptr<io::Listener> listener, Transport transport) {
  for (;;) {
    auto stream = co_await listener->accept();
    if (!stream.has_value()) co_return;
    state->take(std::move(*stream), transport, state->handler);
  }
}

void Server::State::take(std::unique_ptr<io::Stream> stream, Transport transport, Handler with) {
  if (connections.size() >= limits.connections && !idle.empty()) {
    // It ends when its coroutine runs next; until then there is one more.
    Connection* const oldest = idle.front();
    oldest->leave_idle();
    oldest->close(io::Stream::Close::kPlain);
  } else if (connections.size() >= limits.connections) {
    ++counts.refused_total;
    if (turned_away_ < kMostTurnedAway)
      loop.spawn(turn_away(shared_from_this(), std::move(stream)));
    return;
  }
  loop.spawn(Connection::run(std::make_shared<Connection>(shared_from_this(), std::move(stream),
                                                          transport, std::move(with))));
}

Async<void> Server::State::turn_away(std::shared_ptr<State> state,
                                     std::unique_ptr<io::Stream> stream) {
  ++state->turned_away_;
  const std::string answer = closing_answer(*state, 503, "too many connections");
  stream->set_timeout(std::chrono::seconds(1));
  const Status written = co_await stream->write(answer);
  if (written.has_value()) co_await linger(*stream);
  --state->turned_away_;
}

void Server::State::stop_accepting() {
  draining = true;
  for (const auto& listener : listeners) listener->close();
  listeners.clear();
}

void Server::State::close_idle() {
  for (Connection* const connection : idle) connection->close(io::Stream::Close::kPlain);
}

void Server::State::cut_all() {
  for (Connection* const connection : connections) connection->close(io::Stream::Close::kReset);
}

Server::Server(io::Loop& loop, Limits limits, Handler handler)
    : state_(std::make_shared<State>(loop, limits, std::move(handler))) {}

Server::~Server() {
  state_->stop_accepting();
  state_->cut_all();
}

void Server::serve(std::unique_ptr<io::Listener> listener, Transport transport) {
  std::shared_ptr<io::Listener> shared = std::move(listener);
  if (state_->draining) return;
  state_->listeners.push_back(shared);
  state_->loop.spawn(State::accept_all(state_, std::move(shared), transport));
}

void Server::take(std::unique_ptr<io::Stream> stream, Transport transport, Handler handler) {
  if (!state_->draining) state_->take(std::move(stream), transport, std::move(handler));
}

Status Server::State::hold(std::size_t bytes) {
  if (bytes > limits.held_bytes - held)
    return fail(Error::unavailable(
        "the server holds as many bytes of requests as it may; try again in a moment"));
  held += bytes;
  return {};
}

Status Server::hold(std::size_t bytes) {
  return state_->hold(bytes);
}

void Server::let_go(std::size_t bytes) {
  state_->held -= bytes;
}

Async<void> Server::drain(Clock::time_point until) {
  state_->stop_accepting();
  state_->close_idle();
  while (!state_->connections.empty()) {
    const bool ended = co_await state_->one_ended.wait_until(until);
    if (ended) continue;
    state_->cut_all();
    co_return;
  }
}

Server::Counts Server::counts() const {
  return state_->counts;
}

}  // namespace caisson::http
