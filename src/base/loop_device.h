// A loop device over an open file, which detaches itself when its last user has gone (autoclear):
// whoever is killed, nothing of it has to be removed. Root alone; any thread; no state.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace caisson {

struct LoopOptions {
  std::uint32_t block_size = 4096;  // bytes; a power of two from 512 to the page size
  bool read_only = false;
  // Reads past the file's own page cache, so that nothing is kept twice. Where the file's file
  // system has no direct I/O (tmpfs), the kernel refuses with EINVAL or goes on without it.
  bool direct = false;
};

struct LoopDevice {
  Fd device;  // keeps it attached
  std::string path;
};

// Attaches the first free device; another one is tried where somebody else was quicker. Error: the
// system call's, naming the device.
Result<LoopDevice> attach_loop(int file_fd, const LoopOptions& options);

}  // namespace caisson
