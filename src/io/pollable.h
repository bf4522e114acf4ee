// A non-blocking descriptor on the loop: waits until it can be read or written, with a bound.
//
// What sockets and listeners are made of. The system calls are the caller's; this only waits, so
// nobody holds a buffer while nothing comes. One waits for each direction at a time. Held by
// shared_ptr: a coroutine that waits keeps it alive while its owner closes and forgets it. Only
// .cpp files of src/io include this.
#pragma once

#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <memory>

#include "base/fd.h"
#include "io/loop_state.h"

namespace caisson::io {

class Pollable : public std::enable_shared_from_this<Pollable> {
 public:
  // Error: the loop cannot take it (too many, or a descriptor that cannot be waited for).
  static Result<std::shared_ptr<Pollable>> create(Loop& loop, Fd fd);
  // As create() makes it; not for others.
  explicit Pollable(asio::io_context& context);

  int fd() { return descriptor_.native_handle(); }
  bool closed() const { return closed_; }
  // Closes the descriptor and wakes who waits.
  void close();

  enum class Direction : unsigned char { kIn, kOut };
  // Until a system call is worth trying. Zero: without a bound. Error: cancelled by close(),
  // deadline_exceeded.
  static Async<Status> wait(std::shared_ptr<Pollable> self, Direction direction,
                            Clock::duration timeout);
  // Sleeps, but not longer than until close().
  static Async<void> pause(std::shared_ptr<Pollable> self, Clock::duration time);
  // Lets others run now and then where this one never has to wait: called by each operation.
  static Async<void> take_turn(std::shared_ptr<Pollable> self);

 private:
  struct Side {
    explicit Side(asio::io_context& context) : timer(context) {}
    Timer timer;         // what the coroutine waits for; cancelled when the descriptor is ready
    bool armed = false;  // the loop watches the descriptor
    bool ready = false;
  };
  void arm(Side& side, asio::posix::descriptor_base::wait_type type);

  asio::posix::basic_stream_descriptor<asio::io_context::executor_type> descriptor_;
  Side in_, out_;
  bool closed_ = false;
  unsigned turns_ = 0;  // operations since the last wait
};

Error closed_error();

}  // namespace caisson::io
