// How the image worker shuts itself in before it reads a byte of an archive: a user namespace with
// the image's ids and nothing else, no network, a root directory that is the destination (or empty,
// where the destination is a file), no way to gain rights, four capabilities over those ids alone
// (or none), resource limits, and a system-call filter that kills on everything that the task does
// not need.
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

// Becomes these ids of the namespace, with every right in it, and lets go of every file system: the
// root is an empty directory that nobody can write to.
Status take_empty_root(std::uint32_t uid, std::uint32_t gid);

// What may be done afterwards: making the files of layers in the root directory (of a delta: and
// marking them), writing an image of them to files that are open, reading those of a layer; or, for
// a thread beside one of these, nothing but reading what is open.
enum class WorkerTask : std::uint8_t { kUnpack, kUnpackDelta, kWriteImage, kPack, kUncompress };

struct WorkerLimits {
  std::uint64_t file_size = 0;
  std::uint64_t seconds = 0;  // of processor time
  WorkerTask task = WorkerTask::kUnpack;
};

// Rlimits, capabilities, and the filter, in this order; nothing but the task is possible
// afterwards.
Status lock_down(const WorkerLimits& limits);

// Capabilities and the filter, of the calling thread alone: for each thread that there is beside
// the one that locks the process down.
Status lock_down_thread(WorkerTask task);

// The parent's death is ours; to be said again after every change of ids and in every fork.
Status die_with_parent();

}  // namespace caisson::image
