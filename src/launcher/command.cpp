#include "launcher/command.h"

#include <caisson/spec.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <limits>

#include "base/sys.h"
#include "base/verdict.h"
#include "policy/limits.h"

namespace caisson::launcher {
namespace {

// How often counters are looked at while a command runs: often enough that a full disk or a burst
// of processes is seen, rarely enough that hundreds of sandboxes cost nothing.
constexpr std::uint64_t kSampleUs = 100'000;
// And of one that has run for so long, and whose processor time has no limit: a server that waits.
constexpr std::uint64_t kLongUs = 10'000'000;
constexpr std::uint64_t kLongSampleUs = 1'000'000;
// Without control groups looking is all there is.
constexpr std::uint64_t kWatchUs = 20'000;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

}  // namespace

CommandBounds bounds_of(const wall::Plan& plan, const proto::FieldReader& open) {
  const bool kept_box = plan.life == Life::kKept;
  const bool kept = open.number_or_none(proto::Tag::kKeep).value_or(0) != 0;
  const auto at_most = [&](std::uint64_t ours, proto::Tag tag, std::uint64_t most) {
    const std::uint64_t asked = std::min(open.number_or_none(tag).value_or(0), most);
    return ours == 0 || asked == 0 ? std::max(ours, asked) : std::min(ours, asked);
  };
  return {
      .timeout_ms = at_most(kept_box ? 0 : plan.timeout_ms, proto::Tag::kTimeLimitMs,
                            policy::kMaxMilliseconds),
      .cpu_time_ms = at_most(plan.cpu_time_ms, proto::Tag::kCpuLimitMs, policy::kMaxMilliseconds),
      .output = at_most(kept ? 0 : plan.output, proto::Tag::kOutputLimit, policy::kMaxBytes)};
}

Command::Command(const wall::Plan& plan, CommandBounds bounds, std::unique_ptr<wall::ExecSlot> slot)
    : plan_(plan), bounds_(bounds), slot_(std::move(slot)) {
  begin();
}

void Command::begin() {
  started_us_ = sys::monotonic_us();
  sample();
  disk_at_start_ = usage_.disk_bytes;
  io_read_at_start_ = usage_.io_read_bytes;
  io_write_at_start_ = usage_.io_write_bytes;
  usage_.disk_bytes_peak = usage_.disk_bytes;
  // Not at once: nothing has happened yet, and the guest waits for the command.
  plan_next_check(started_us_);
}

void Command::sample() {
  if (auto usage = slot_->sample()) usage_ = *usage;
}

std::size_t Command::count_output(std::size_t bytes) {
  const std::uint64_t before = bytes_out_;
  bytes_out_ += bytes;
  if (bounds_.output == 0 || bytes_out_ <= bounds_.output) return bytes;
  end_for(Verdict::kOutputLimit, "",
          "more than " + std::to_string(bounds_.output) + " bytes of output");
  return before >= bounds_.output ? 0 : static_cast<std::size_t>(bounds_.output - before);
}

void Command::end_for(Verdict verdict, std::string cause, std::string detail) {
  if (ended_for_) return;
  ended_for_ = Ending{verdict, std::move(cause), std::move(detail)};
  ending_since_us_ = sys::monotonic_us();
}

void Command::end_from_now() {
  if (ending()) ending_since_us_ = sys::monotonic_us();
}

bool Command::ends_on_refusal() const {
  return plan_.on_refusal == static_cast<std::uint8_t>(policy::OnRefusal::kKill);
}

bool Command::take_refusal(short ready) {
  if (!ends_on_refusal()) {
    (void)refusals_.take(ready, Refusals::Answer::kRefuse);
    return false;
  }
  const auto call = refusals_.take(ready, Refusals::Answer::kHold);
  if (!call || ending()) return false;
  end_for(Verdict::kPolicyViolation, "syscall",
          "called " + *call + ", which is refused (on_refusal: kill)");
  return true;
}

bool Command::check(std::uint64_t now_us) {
  sample();
  const std::uint64_t elapsed = now_us - started_us_;
  if (bounds_.timeout_ms != 0 && elapsed >= bounds_.timeout_ms * 1000)
    end_for(Verdict::kTimeLimit, "elapsed",
            "ran longer than " + std::to_string(bounds_.timeout_ms) + " ms");
  const std::uint64_t cpu = usage_.user_us + usage_.system_us;
  if (bounds_.cpu_time_ms != 0 && cpu >= bounds_.cpu_time_ms * 1000)
    end_for(Verdict::kTimeLimit, "cpu",
            "used more than " + std::to_string(bounds_.cpu_time_ms) + " ms of processor time");
  // A watched memory limit is held by ending what is over it.
  const bool watched = usage_.watched;
  if (watched && usage_.memory_kills > 0)
    end_for(Verdict::kMemoryLimit, "",
            "used more than " + std::to_string(plan_.memory) + " bytes of memory");
  plan_next_check(now_us);
  return ending();
}

void Command::plan_next_check(std::uint64_t now_us) {
  if (ending()) {
    next_check_us_ = kNever;
    return;
  }
  const bool waits = now_us - started_us_ >= kLongUs && bounds_.cpu_time_ms == 0;
  next_check_us_ = now_us + (usage_.watched ? kWatchUs : waits ? kLongSampleUs : kSampleUs);
  if (bounds_.timeout_ms != 0)
    next_check_us_ = std::min(next_check_us_, started_us_ + bounds_.timeout_ms * 1000);
  const std::uint64_t cpu = usage_.user_us + usage_.system_us;
  if (bounds_.cpu_time_ms != 0 && bounds_.cpu_time_ms * 1000 > cpu) {
    // At most all processors of a large machine work at once on what is left.
    const std::uint64_t left = bounds_.cpu_time_ms * 1000 - cpu;
    next_check_us_ = std::min(next_check_us_, now_us + std::max<std::uint64_t>(left / 64, 5000));
  }
}

Outcome Command::finish(std::optional<std::string_view> close, const wall::HeldLimits& held) {
  sample();
  // A refused call that waits now was made before the end that the guest tells of.
  if (pollfd waiting{refusals_.fd(), POLLIN, 0};
      ends_on_refusal() && waiting.fd >= 0 && ::poll(&waiting, 1, 0) == 1)
    (void)take_refusal(waiting.revents);
  Outcome outcome;
  outcome.held = held;
  outcome.usage.elapsed_us = sys::monotonic_us() - started_us_;
  outcome.usage.user_us = usage_.user_us;
  outcome.usage.system_us = usage_.system_us;
  outcome.usage.memory_peak = usage_.memory_peak;
  outcome.usage.pids_peak = usage_.pids_peak;
  outcome.usage.bytes_out = bytes_out_;
  outcome.usage.bytes_written = growth(disk_at_start_, usage_.disk_bytes_peak);
  // On v1 all commands of a sandbox count in one group.
  outcome.usage.io_read_bytes = growth(io_read_at_start_, usage_.io_read_bytes);
  outcome.usage.io_write_bytes = growth(io_write_at_start_, usage_.io_write_bytes);
  outcome.refusals = refusals_.list();

  const bool memory_hit = usage_.memory_kills > 0 && plan_.memory != 0;
  // Where an rlimit holds, only samples tell of it: the command's own process, which has ended
  // between two of them, was one of those that the last one sees.
  const bool filled = held[static_cast<std::size_t>(Limit::kPids)] == HeldBy::kRlimit &&
                      usage_.pids_now + 1 >= plan_.pids;
  const bool pids_hit = plan_.pids != 0 && (usage_.pids_refusals > 0 || filled);
  if (memory_hit) outcome.limits_hit.push_back(Limit::kMemory);
  if (pids_hit) outcome.limits_hit.push_back(Limit::kPids);
  if (usage_.disk_full) outcome.limits_hit.push_back(Limit::kDisk);
  if (usage_.inodes_full) outcome.limits_hit.push_back(Limit::kInodes);

  std::optional<std::uint64_t> sigsys;
  bool told = false, failed = true;
  if (close) {
    if (auto fields = proto::FieldReader::parse(*close)) {
      const auto code = fields->number_or_none(proto::Tag::kExitCode);
      const auto signal = fields->number_or_none(proto::Tag::kExitSignal);
      if (const auto error = fields->number_or_none(proto::Tag::kErrorErrno); error) {
        const auto text = fields->text(proto::Tag::kErrorMessage);
        Outcome started = outcome_not_started(static_cast<int>(*error & 0xfff),
                                              text ? *text : std::string_view());
        outcome.verdict = started.verdict;
        // The guest knows best which of 126 and 127 a shell would give.
        outcome.exit_code = code ? static_cast<std::uint32_t>(*code & 0xff) : started.exit_code;
        outcome.cause = started.cause;
        outcome.detail = started.detail;
        return outcome;
      }
      if (signal) {
        told = true;
        outcome.verdict = Verdict::kSignaled;
        outcome.signal = static_cast<std::uint32_t>(*signal & 0x7f);
        outcome.core_dumped = fields->number_or_none(proto::Tag::kCoreDumped).value_or(0) != 0;
        sigsys = fields->number_or_none(proto::Tag::kSigsysNumber);
      } else if (code) {
        told = true;
        outcome.verdict = Verdict::kExited;
        outcome.exit_code = static_cast<std::uint32_t>(*code & 0xff);
        failed = outcome.exit_code != 0;
      } else if (fields->has(proto::Tag::kErrorMessage)) {
        const auto text = fields->text(proto::Tag::kErrorMessage);
        outcome.cause = "guest";
        outcome.detail = text ? std::string(*text) : "";
      }
      // Only where no group counted: then the guest's word is all there is.
      if (outcome.usage.user_us + outcome.usage.system_us == 0) {
        outcome.usage.user_us = fields->number_or_none(proto::Tag::kUserMicros).value_or(0);
        outcome.usage.system_us = fields->number_or_none(proto::Tag::kSystemMicros).value_or(0);
      }
      if (outcome.usage.memory_peak == 0)
        outcome.usage.memory_peak = fields->number_or_none(proto::Tag::kPeakRss).value_or(0);
    }
  }
  const auto decide = [&](Verdict verdict, std::string cause, std::string detail) {
    outcome.verdict = verdict;
    outcome.cause = std::move(cause);
    outcome.detail = std::move(detail);
  };
  if (ended_for_) {
    decide(ended_for_->verdict, ended_for_->cause, ended_for_->detail);
    const Limit limit = ended_for_->verdict == Verdict::kOutputLimit ? Limit::kOutput
                        : ended_for_->cause == "cpu"                 ? Limit::kCpuTime
                                                                     : Limit::kTimeout;
    if (ended_for_->verdict == Verdict::kOutputLimit || ended_for_->verdict == Verdict::kTimeLimit)
      outcome.limits_hit.push_back(limit);
    return outcome;
  }
  if (!failed) return outcome;
  if (memory_hit) {
    decide(Verdict::kMemoryLimit, "",
           "met the memory limit of " + std::to_string(plan_.memory) + " bytes");
  } else if (sigsys) {
    decide(Verdict::kPolicyViolation, "syscall",
           "system call " + std::to_string(*sigsys) + " is not allowed");
  } else if (pids_hit) {
    decide(Verdict::kProcessLimit, "",
           "met the limit of " + std::to_string(plan_.pids) + " processes");
  } else if (usage_.disk_full) {
    decide(Verdict::kDiskLimit, "bytes",
           "filled the writable layer of " + std::to_string(plan_.disk) + " bytes");
  } else if (usage_.inodes_full) {
    decide(Verdict::kDiskLimit, "inodes",
           "used all " + std::to_string(plan_.inodes) + " inodes of the writable layer");
  } else if (!told && outcome.cause.empty()) {
    decide(Verdict::kSandboxError, "guest", "the sandbox ended before the command did");
  }
  return outcome;
}

}  // namespace caisson::launcher
