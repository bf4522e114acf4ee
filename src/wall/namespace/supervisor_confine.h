// What the supervisor gives up before it reads the guest's first byte.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/switches.h"

namespace caisson::wall {

struct SupervisorConfinement {
  bool change_ids = false;  // root mode: become uid and gid for good
  std::uint32_t uid = 0, gid = 0;
  bool reads_proc = false;  // the watcher needs to open files of /proc
  SwitchMask switches = 0;
};

// Ids, capabilities, no_new_privs (no execve follows, so the bounding set bounds nothing),
// dumpable, Landlock (nothing on any file system; not where reads_proc, which may open for reading)
// and a seccomp allowlist of what an event loop needs: no execve, no socket, no open. Irrevocable;
// on an error the process must exit.
Status confine_supervisor(const SupervisorConfinement& confinement);

}  // namespace caisson::wall
