// The supervisor's handle of a box behind the namespace wall: counters, freezer, kill, confinement.
#pragma once

#include <memory>

#include "base/fd.h"
#include "wall/namespace/broker.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/ids.h"
#include "wall/namespace/layer.h"
#include "wall/plan.h"
#include "wall/wall.h"

namespace caisson::wall {

struct BoxParts {
  Fd channel;
  Fd guest_pidfd;
  int guest_pid = -1;
  Fd report;  // what the setup child says once, with the writable layer
  Fd layer, boot_id;
  LayerUse layer_before;  // in use in an empty layer: not the sandbox's
  SlotFiles first_slot;
  IdMode ids_mode = IdMode::kSingle;
  std::uint32_t supervisor_uid = 0, supervisor_gid = 0;
  bool has_groups = false;
  HeldLimits held = {};
  // How the image's ids show on the host, for whoever is handed the layer.
  IdMap layer_uids, layer_gids;
};

// `broker_fd` is borrowed for the box's life.
std::unique_ptr<Box> make_namespace_box(const Plan& plan, BoxParts parts, int broker_fd);

}  // namespace caisson::wall
