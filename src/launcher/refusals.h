// Refused system calls of the reportable set, as the kernel notifies them: answered EPERM at once,
// counted, the first kinds kept for the verdict.
#pragma once

#include <caisson/result.h>

#include <vector>

#include "base/fd.h"

namespace caisson::launcher {

class Refusals {
 public:
  // The first counts; a command has one.
  void set_listener(Fd listener) {
    if (!listener_.valid()) listener_ = std::move(listener);
  }
  // -1 when there is none (any more).
  int fd() const { return listener_.get(); }
  // Answers one call that waits, as `ready`, what poll said of fd(), tells.
  void serve(short ready);
  const std::vector<Refusal>& list() const { return list_; }

 private:
  Fd listener_;
  std::vector<Refusal> list_;
};

}  // namespace caisson::launcher
