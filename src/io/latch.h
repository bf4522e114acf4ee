// Something that happens once and stays so, which coroutines of one loop wait for: an Event that
// nobody can come too late for. Belongs to the loop, which outlives it.
#pragma once

#include "io/loop.h"

namespace caisson::io {

class Latch {
 public:
  explicit Latch(Loop& loop) : event_(loop) {}

  void set() {
    is_set_ = true;
    event_.notify();
  }
  bool is_set() const { return is_set_; }
  Async<void> wait() {
    while (!is_set_) co_await event_.wait();
  }

 private:
  Event event_;
  bool is_set_ = false;
};

}  // namespace caisson::io
