// The named steps of building a box, for error messages and for the tests' fault points.
//
// Every step fails closed and names itself: an error begins with the step's name. In the test build
// CAISSON_TIMINGS=1 writes what each step took to stderr ("timing STEP MICROSECONDS");
// CAISSON_FAULT=STEP:kill ends the process at the beginning of that step with SIGKILL, and
// CAISSON_FAULT=STEP:fail makes the step fail, so that the leak test can show that nothing stays
// behind whichever step it is; CAISSON_FAULT=STEP:hang says so on stderr and stays there, so that
// it can kill somebody else meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::wall {

class Steps {
 public:
  // `fault` is "STEP:kill", "STEP:fail", "STEP:hang", "timings" or empty; the release build ignores
  // it.
  explicit Steps(std::string fault) : fault_(std::move(fault)) {}

  // The last step is over: its time is told, and nothing more.
  void finish();

  // Enters a step. `name` must be a literal.
  Status enter(std::string_view name);
  std::string_view current() const { return current_; }
  // The error with the current step's name in front.
  Error name(Error error) const { return std::move(error).with(current_); }

 private:
  std::string fault_;
  std::string_view current_ = "start";
  std::uint64_t since_us_ = 0;
};

// Every step for the leak test: the launcher's, of which those from "cgroup" on come beside the
// supervisor's; then the supervisor's and the setup child's, which overlap.
extern const char* const kStepNames[];
extern const std::size_t kStepCount;
// Steps of the launcher that a sandbox with `layer: quota` alone enters, after "admit".
extern const char* const kQuotaStepNames[];
extern const std::size_t kQuotaStepCount;
// Steps after the sandbox is up. They can be killed at; nobody asks whether they succeed.
extern const char* const kLateStepNames[];
extern const std::size_t kLateStepCount;

}  // namespace caisson::wall
