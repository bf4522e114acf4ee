// The setup child: from the first instruction after clone3 to the guest's execve.
//
// It runs in the fresh namespaces as uid 0 of user namespace U, with every capability over them and
// none outside. It enters its control groups, builds the root, makes user namespace N for the
// command, forbids further namespaces, gives up every capability and goes on as the guest. It talks
// to the supervisor by one message (parts.h): the writable layer's descriptor and what is handed
// out, or the failed step's sentence.
#pragma once

#include <vector>

#include "base/fd.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/ids.h"
#include "wall/namespace/rootfs.h"
#include "wall/plan.h"

namespace caisson::wall {

struct SetupInput {
  const Plan& plan;
  const Ids& ids;
  CgroupMode cgroups = CgroupMode::kNone;
  Fd channel;       // the guest's end
  Fd report;        // SOCK_SEQPACKET to the supervisor, by which the parts of the root come
  Fd maps_written;  // two bytes once the supervisor has written U's maps
};

// Never returns: it becomes the guest, or reports and exits.
[[noreturn]] void run_setup(SetupInput input);

}  // namespace caisson::wall
