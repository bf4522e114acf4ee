// Refused system calls of the reportable set, as the kernel notifies them: counted, the first kinds
// kept for the verdict, and answered EPERM or never.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace caisson::launcher {

// A call's name for people ("mount", "socket AF_VSOCK"); "system call N" where it is none of the
// reportable set. `family` is the first argument, which tells sockets apart.
std::string refused_call_name(int number, std::uint64_t family);

class Refusals {
 public:
  // kHold: the call is never answered. Its thread stays in the kernel, where a kill still reaches
  // it, until the listener is closed.
  enum class Answer : std::uint8_t { kRefuse, kHold };

  // The first counts; a command has one.
  void set_listener(Fd listener) {
    if (!listener_.valid()) listener_ = std::move(listener);
  }
  // To be polled for POLLIN; -1 when there is none (any more), or a call is held.
  int fd() const { return held_ ? -1 : listener_.get(); }
  // Takes one call that waits, as `ready`, what poll said of fd(), tells; returns its name.
  std::optional<std::string> take(short ready, Answer answer);
  const std::vector<Refusal>& list() const { return list_; }

 private:
  Fd listener_;
  bool held_ = false;
  std::vector<Refusal> list_;
};

}  // namespace caisson::launcher
