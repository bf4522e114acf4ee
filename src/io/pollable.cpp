#include "io/pollable.h"

#include <boost/asio/post.hpp>

namespace caisson::io {
namespace {

// With reads of 64 KiB, a millisecond or so.
constexpr unsigned kMostTurns = 32;

}  // namespace

Error closed_error() {
  return Error(Code::kCancelled, "the connection was closed on this side");
}

Pollable::Pollable(asio::io_context& context) : descriptor_(context), in_(context), out_(context) {}

Result<std::shared_ptr<Pollable>> Pollable::create(Loop& loop, Fd fd) {
  auto made = std::make_shared<Pollable>(loop.state().context);
  boost::system::error_code error;
  made->descriptor_.assign(fd.get(), error);
  if (error) return fail(Error::syscall("epoll_ctl", error.value()));
  (void)fd.take();
  return made;
}

void Pollable::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  descriptor_.close(ignored);
  in_.timer.cancel();
  out_.timer.cancel();
}

void Pollable::arm(Side& side, asio::posix::descriptor_base::wait_type type) {
  side.armed = true;
  // Stays armed when the time is over first; the next wait then finds it so.
  descriptor_.async_wait(type, [self = shared_from_this(), &side](boost::system::error_code) {
    side.armed = false;
    side.ready = true;
    side.timer.cancel();
  });
}

Async<Status> Pollable::wait(std::shared_ptr<Pollable> self, Direction direction,
                             Clock::duration timeout) {
  if (self->closed_) co_return fail(closed_error());
  self->turns_ = 0;
  Side& side = direction == Direction::kIn ? self->in_ : self->out_;
  side.ready = false;
  side.timer.expires_at(timeout == Clock::duration::zero() ? Clock::time_point::max()
                                                           : Clock::now() + timeout);
  if (!side.armed) {
    self->arm(side, direction == Direction::kIn ? asio::posix::descriptor_base::wait_read
                                                : asio::posix::descriptor_base::wait_write);
  }
  co_await side.timer.async_wait(kAwait);
  if (self->closed_) co_return fail(closed_error());
  if (!side.ready)
    co_return fail(Error(Code::kDeadlineExceeded, "the peer made no progress in the time allowed"));
  co_return Status();
}

Async<void> Pollable::pause(std::shared_ptr<Pollable> self, Clock::duration time) {
  if (self->closed_) co_return;
  self->in_.timer.expires_after(time);
  co_await self->in_.timer.async_wait(kAwait);
}

Async<void> Pollable::take_turn(std::shared_ptr<Pollable> self) {
  if (++self->turns_ < kMostTurns) co_return;
  self->turns_ = 0;
  co_await asio::post(asio::use_awaitable);
}

}  // namespace caisson::io
