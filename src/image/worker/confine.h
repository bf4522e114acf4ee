// How the image worker shuts itself in before it reads a byte of an archive: a user namespace with
// the image's ids and nothing else, no network, a root directory that is the destination, no way to
// gain rights, four capabilities over those ids alone, resource limits, and a system-call filter
// that kills on everything that unpacking does not need.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace caisson::image {

// New user, mount, network, IPC, UTS, pid and cgroup namespaces; the pid namespace begins with the
// next fork. `directory_fd` becomes the working directory first, for the new mount namespace knows
// mounts by working directories, not by descriptors of the old one. The id maps are empty
// afterwards: the process that started us writes them. Error: precondition, with the remedy.
Status enter_namespaces(int directory_fd);

// Becomes root of the namespace and makes the working directory the whole file system.
Status take_root();

struct WorkerLimits {
  std::uint64_t file_size = 0;
  std::uint64_t seconds = 0;  // of processor time
};

// Rlimits, capabilities, and the filter, in this order; nothing but reading, writing and making
// files is possible afterwards.
Status lock_down(const WorkerLimits& limits);

// The parent's death is ours; to be said again after every change of ids and in every fork.
Status die_with_parent();

}  // namespace caisson::image
