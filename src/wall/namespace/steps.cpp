#include "wall/namespace/steps.h"

#include <signal.h>
#include <unistd.h>

#include "base/sys.h"

namespace caisson::wall {

const char* const kStepNames[] = {
    "sweep",    "register", "ids",     "journal", "birth-group", "admit",  "cgroup",
    "host-etc", "publish",  "fork",    "clone",   "maps",        "image",  "grants",
    "complete", "enter",    "private", "network", "userns",      "layer",  "root",
    "device",   "process",  "system",  "etc",     "bind",        "spaces", "pivot",
    "limits",   "exec",     "confine", "ready",   "up",
};
const std::size_t kStepCount = sizeof kStepNames / sizeof kStepNames[0];

const char* const kQuotaStepNames[] = {"quota"};
const std::size_t kQuotaStepCount = sizeof kQuotaStepNames / sizeof kQuotaStepNames[0];

const char* const kLateStepNames[] = {"supervise", "clean", "remove", "removed"};
const std::size_t kLateStepCount = sizeof kLateStepNames / sizeof kLateStepNames[0];

void Steps::finish() {
#if defined(CAISSON_TEST_SWITCHES)
  if (fault_ != "timings") return;
  const std::uint64_t now = sys::monotonic_us();
  if (since_us_ != 0) {
    const std::string line =
        "timing " + std::string(current_) + " " + std::to_string(now - since_us_) + "\n";
    (void)!::write(2, line.data(), line.size());
  }
  since_us_ = sys::monotonic_us();
#endif
}

Status Steps::enter(std::string_view name) {
  finish();
  current_ = name;
#if defined(CAISSON_TEST_SWITCHES)
  if (fault_.starts_with(name) && fault_.size() > name.size() && fault_[name.size()] == ':') {
    const std::string_view how = std::string_view(fault_).substr(name.size() + 1);
    if (how == "kill") {
      ::kill(::getpid(), SIGKILL);
      // PID 1 of a namespace cannot kill itself; ending without a word is the same to the others.
      ::_exit(3);
    }
    if (how == "hang") {
      const std::string line = "hanging " + std::string(name) + "\n";
      (void)!::write(2, line.data(), line.size());
      for (;;) ::pause();
    }
    return fail(Error::internal("fault injected"));
  }
#endif
  return {};
}

}  // namespace caisson::wall
