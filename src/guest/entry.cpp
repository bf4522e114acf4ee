#include "guest/entry.h"

#include <sys/prctl.h>

#include "guest/guest.h"

namespace caisson::guest {

int run_guest(int channel_fd, int userns_fd, int cgroup_ns_fd, SwitchMask disabled_mechanisms) {
  (void)::prctl(PR_SET_NAME, "caisson-guest");
  GuestOptions options;
  options.channel_in = Fd(channel_fd);
  options.inside.userns = Fd(userns_fd);
  options.inside.cgroup_ns = Fd(cgroup_ns_fd);
  options.inside.disabled_mechanisms = disabled_mechanisms;
  auto guest = Guest::create(std::move(options));
  return guest && (*guest)->run() ? 0 : 1;
}

}  // namespace caisson::guest
