// What one piece of work of caisson-image-worker may cost and what it counts; and the removal of
// trees whose owners are not this process's (rootfs_worker.h makes them).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "image/ids.h"

namespace caisson::image {

struct UnpackLimits {
  std::uint64_t entries = 2'000'000;
  std::uint64_t bytes = 32ull << 30;    // of all files together, holes included
  std::uint64_t ratio = 1000;           // unpacked over packed, looked at after the first 64 MiB
  std::uint64_t archive = 16ull << 30;  // bytes of the archive itself
  std::chrono::milliseconds time = std::chrono::minutes(15);
};

// What the worker did, in counts.
struct UnpackReport {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t dropped_devices = 0;     // device nodes: a sandbox has a /dev of its own
  std::uint64_t dropped_attributes = 0;  // entries whose extended attributes or ACLs were left out
  std::uint64_t absolute_names = 0;      // names that began with '/', taken relative to the root
};

// Bytes of the archive that went in so far, and all of them.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Removes `name` and all below it, whatever ids of the mapping own it.
Status remove_by_worker(int directory_fd, const std::string& name, const IdMapping& ids);

}  // namespace caisson::image
