// The control group that a server's sandboxes belong to, where that is not the server's own.
//
// A service manager delegates a group (systemd's Delegate=) in which a process only waits: the
// holder. It moves into the group `main` below, since the kernel wants no process where groups with
// limits are; makers enter that one too, and sandboxes' groups are made beside it. Version 2 alone.
#pragma once

#include <string>

#include "base/error.h"

namespace caisson::maker {

// Moves this process into the group `path`, as /proc/PID/cgroup names it.
Status enter_group(const std::string& path);

// The holder's whole life: moves into `main` below its own group, tells the service manager
// (base/readiness.h), and waits for SIGTERM. On a host without version 2 it only waits.
Status hold_group();

}  // namespace caisson::maker
