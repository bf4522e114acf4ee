// The named steps of building a box, for error messages and for the tests' fault points.
//
// Every step fails closed and names itself: an error begins with the step's name. In the test build
// CAISSON_FAULT=STEP:kill ends the process at the beginning of that step with SIGKILL, and
// CAISSON_FAULT=STEP:fail makes the step fail, so that the leak test can show that nothing stays
// behind whichever step it is.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::wall {

class Steps {
 public:
  // `fault` is "STEP:kill", "STEP:fail" or empty; the release build ignores it.
  explicit Steps(std::string fault) : fault_(std::move(fault)) {}

  // Enters a step. `name` must be a literal.
  Status enter(std::string_view name);
  std::string_view current() const { return current_; }
  // The error with the current step's name in front.
  Error name(Error error) const { return std::move(error).with(current_); }

 private:
  std::string fault_;
  std::string_view current_ = "start";
};

// Every step, in order, for the leak test.
extern const char* const kStepNames[];
extern const std::size_t kStepCount;

}  // namespace caisson::wall
