// Ending everything that a command has in its session, also what left its process group.
#pragma once

#include <sys/types.h>

namespace caisson::guest {

// SIGKILL to the group `leader` and to every process of the session that it leads. A process that
// began a session of its own is the control group's business.
void kill_session(pid_t leader);

}  // namespace caisson::guest
