#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "launcher/supervisor.h"

namespace caisson::launcher {

using proto::Tag;

proto::Fields command_limits(const wall::Plan& plan, const wall::HeldLimits& held) {
  proto::Fields fields;
  const auto add = [&](auto resource, std::uint64_t value) {
    // Nobody can raise what was inherited; a lower limit is as hard.
    rlimit inherited{};
    if (::getrlimit(resource, &inherited) == 0 && inherited.rlim_max != RLIM_INFINITY)
      value = std::min<std::uint64_t>(value, inherited.rlim_max);
    std::string bytes;
    const auto put = [&](std::uint64_t number, int size) {
      for (int i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i));
    };
    put(static_cast<std::uint64_t>(resource), 4);
    put(value, 8);
    put(value, 8);
    fields.put(Tag::kRlimit, bytes);
  };
  if (is_off(plan.switches, Mechanism::kRlimits)) return fields;
  add(RLIMIT_CORE, 0);
  add(RLIMIT_MEMLOCK, 8u << 20);
  add(RLIMIT_MSGQUEUE, 819200);
  add(RLIMIT_SIGPENDING, 8192);
  add(RLIMIT_RTPRIO, 0);
  add(RLIMIT_NICE, 0);
  if (plan.open_files != 0) add(RLIMIT_NOFILE, plan.open_files);
  if (plan.pids != 0 && held[static_cast<std::size_t>(Limit::kPids)] != HeldBy::kCgroup)
    add(RLIMIT_NPROC, plan.pids);
  return fields;
}

}  // namespace caisson::launcher
