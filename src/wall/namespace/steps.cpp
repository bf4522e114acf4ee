#include "wall/namespace/steps.h"

#include <signal.h>
#include <unistd.h>

namespace caisson::wall {

const char* const kStepNames[] = {
    "ids",     "cgroup", "journal", "image",  "grants",  "clone",  "maps",    "enter",
    "private", "layer",  "root",    "device", "process", "system", "etc",     "bind",
    "network", "userns", "limits",  "pivot",  "exec",    "ready",  "confine",
};
const std::size_t kStepCount = sizeof kStepNames / sizeof kStepNames[0];

Status Steps::enter(std::string_view name) {
  current_ = name;
#if defined(CAISSON_TEST_SWITCHES)
  if (fault_.starts_with(name) && fault_.size() > name.size() && fault_[name.size()] == ':') {
    if (fault_.substr(name.size() + 1) == "kill") ::kill(::getpid(), SIGKILL);
    if (fault_.substr(name.size() + 1) == "die") ::_exit(3);
    return fail(Error::internal(std::string(name) + ": fault injected"));
  }
#endif
  return {};
}

}  // namespace caisson::wall
