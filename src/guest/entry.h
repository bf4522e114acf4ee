// The guest as a function, for a launcher that goes on as PID 1 instead of starting a program.
//
// The process must be single-threaded and hold nothing but the given descriptors and 0 to 2. Its
// memory is its parent's: whoever uses this has wiped what must not come along (the environment).
#pragma once

#include "base/switches.h"

namespace caisson::guest {

// The guest's whole life; takes the descriptors (-1: no such namespace). Returns the exit status.
int run_guest(int channel_fd, int userns_fd, int cgroup_ns_fd, SwitchMask disabled_mechanisms);

}  // namespace caisson::guest
