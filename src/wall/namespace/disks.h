// Which disks are behind what a sandbox sees of this host, since the kernel limits I/O by device.
//
// A tree of mounts is followed through /proc/self/mountinfo: a file system with a device number is
// on that device, one without (btrfs) on its source, and what lies in memory on none. A partition
// counts as its whole disk, which is what the kernel takes limits for; a loop or device-mapper
// device counts as itself. Behind an overlay, a network or a FUSE file system no disk can be found,
// and that is said, so that nobody takes a limit for held there. Only the launcher uses this,
// before the sandbox exists; one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "wall/plan.h"

namespace caisson::wall {

struct Disk {
  unsigned major = 0, minor = 0;
  auto operator<=>(const Disk&) const = default;
  // "8:0", as control groups name it.
  std::string name() const { return std::to_string(major) + ":" + std::to_string(minor); }
};

// One path of the host, with everything that is mounted below it.
struct SeenTree {
  std::string path;  // absolute
  std::uint64_t mount_id = 0;
  bool writable = false;
};

struct SeenDisks {
  std::vector<Disk> disks;  // sorted, each once
  // Why a disk behind what is seen is not among them ("no disk is known behind overlay at /");
  // empty: all are.
  std::string unknown;
  // A file system on a disk that may be written to ("ext4 at /data"); empty: none.
  std::string writable;
  // One of those whose writes the kernel does later on nobody's account, even on version 2.
  std::string unaccounted;
};

// Error: the path's mount cannot be told (statx).
Result<SeenTree> seen_tree(int path_fd, bool writable);

// `proc_root` is "/proc" and `sys_root` "/sys"; tests give folders of their own.
SeenDisks find_disks(std::span<const SeenTree> trees, const std::string& proc_root,
                     const std::string& sys_root);

// The disks behind the image and the grants of a plan, and behind the run directory, which has the
// /etc of the host image; on the running host.
Result<SeenDisks> disks_of(const Plan& plan, int run_directory_fd);

}  // namespace caisson::wall
