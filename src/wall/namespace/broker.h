// What the launcher, which keeps its rights, and the supervisor, which gives them up, say to each
// other over their SOCK_SEQPACKET pair.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/fd.h"
#include "wall/namespace/cgroup.h"

namespace caisson::wall {

// A request of the box to the launcher, which alone can still make control groups.
struct BrokerRequest {
  // 'S' make a slot, 'D' remove it, 'U' the box's own counters, 'E' all is counted, remove what is
  // empty. Of what waits for its turn at a disk, which no kill ends: 'F' let it go on, once; 'K'
  // kill all, and let it go on for good. 'Z' freeze what commands have started, 'T' thaw it; 'Y'
  // thaw it without an answer.
  char what = 0;
  std::uint32_t number = 0;
};

// The answer to 'S' and 'U': the files, or the sentence of an error.
Status send_files(int broker_fd, const SlotFiles& files);
Result<SlotFiles> receive_files(int broker_fd);

// The answer to 'Z' and 'T'.
Status send_status(int broker_fd, const Status& status);
Status receive_status(int broker_fd);

// What the launcher makes while the supervisor clones the guest.
struct Completion {
  SlotFiles first_slot;
  Fd etc;  // the host image's kept /etc; its lock travels with it
  HeldLimits held = {};
};

Status send_completion(int broker_fd, const Completion& completion);
Status send_failure(int broker_fd, const Error& error);
// Waits. Error: the launcher's, or that it is gone.
Result<Completion> receive_completion(int broker_fd);

}  // namespace caisson::wall
