// One command in a sandbox as the supervisor keeps it: limits, counters, and at the end its
// verdict.
//
// A command lives from the client's OPEN to the guest's CLOSE. Everything that the guest says about
// it is only believed where nothing outside can know better: exit codes are the guest's word,
// counters come from the wall, times and bytes from here.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/proto.h"
#include "launcher/refusals.h"
#include "wall/plan.h"
#include "wall/wall.h"

namespace caisson::launcher {

// Of one command; 0: unlimited.
struct CommandBounds {
  std::uint64_t timeout_ms = 0, cpu_time_ms = 0, output = 0;
};

// The plan's, lowered by what its client's OPEN frame asks for. In a kept sandbox the plan's
// timeout is the sandbox's own, and a command that is kept (kKeep) may write for as long as it
// likes.
CommandBounds bounds_of(const wall::Plan& plan, const proto::FieldReader& open);

class Command {
 public:
  Command(const wall::Plan& plan, CommandBounds bounds, std::unique_ptr<wall::ExecSlot> slot);

  // Its time and its counters start now: of a command that was asked for before the guest was born,
  // once it has been.
  void begin();

  wall::ExecSlot& slot() { return *slot_; }
  // To be polled for POLLIN while it is not -1: a refused call of the command waits.
  int refusals_fd() const { return refusals_.fd(); }
  void set_listener(Fd listener) { refusals_.set_listener(std::move(listener)); }
  // Answers a refused call that waits; `ready` is what poll said. True when the command must be
  // ended for it now (on_refusal: kill): the call is not answered then.
  bool take_refusal(short ready);

  // Counts output; returns how many of these bytes may be passed on. Ends the command's time when
  // the limit is met.
  std::size_t count_output(std::size_t bytes);
  // The earliest moment (CLOCK_MONOTONIC, microseconds) at which check() has something to do.
  std::uint64_t next_check_us() const { return next_check_us_; }
  // Samples counters and looks at times. True when the command must be ended now.
  bool check(std::uint64_t now_us);
  // Why it is being ended; the first reason stays.
  void end_for(Verdict verdict, std::string cause, std::string detail);
  bool ending() const { return ended_for_.has_value(); }
  std::uint64_t ending_since_us() const { return ending_since_us_; }
  // It could not end until now: the time that it has for that begins anew.
  void end_from_now();

  // The verdict, once the guest has closed the command or is gone. `close` is its CLOSE payload, or
  // nullopt when the guest died first.
  Outcome finish(std::optional<std::string_view> close, const wall::HeldLimits& held);

 private:
  void sample();
  void plan_next_check(std::uint64_t now_us);
  bool ends_on_refusal() const;

  const wall::Plan& plan_;
  CommandBounds bounds_;
  std::unique_ptr<wall::ExecSlot> slot_;
  Refusals refusals_;
  std::uint64_t started_us_ = 0;
  std::uint64_t next_check_us_ = 0;
  std::uint64_t bytes_out_ = 0;
  std::uint64_t disk_at_start_ = 0;
  std::uint64_t io_read_at_start_ = 0, io_write_at_start_ = 0;
  wall::Usage usage_;
  struct Ending {
    Verdict verdict;
    std::string cause, detail;
  };
  std::optional<Ending> ended_for_;
  std::uint64_t ending_since_us_ = 0;
};

}  // namespace caisson::launcher
