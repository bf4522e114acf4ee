// A filter of system calls that a process puts itself under: a list of what it may, everything else
// fails. For programs that have a list of their own; the sandboxes' filters are guest/seccomp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/error.h"
#include "base/kernel_abi.h"

namespace caisson {

class CallFilter {
 public:
  CallFilter();

  void allow(int number);
  // Fails with this error instead of EPERM.
  void refuse(int number, std::uint32_t error_number);
  // Allowed where the low half of the argument, of these bits alone, has one of these values.
  void allow_where(int number, unsigned argument, std::uint32_t bits,
                   std::initializer_list<std::uint32_t> values);
  // Threads of this process, and no process. What clone3 is asked for lies in memory, where no
  // filter sees it; the C library then takes clone.
  void allow_threads();
  // abort(3) needs a signal; others' processes get none.
  void allow_own_signals();

  // For all threads of this process, for good; everything that was not allowed fails with EPERM.
  // `whose` is for the error.
  Status install(const char* whose);

 private:
  void add(sock_filter step) { steps_.push_back(step); }
  void load(std::uint32_t at);
  void skip_unless(std::uint32_t value, std::uint8_t equal, std::uint8_t other);
  void answer(std::uint32_t what);

  std::vector<sock_filter> steps_;
};

}  // namespace caisson
