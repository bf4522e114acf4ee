// How a process of the egress path shuts itself in before it reads a byte of a sandbox: no
// capability and no way to gain rights, an id that is nobody's where it was root, no files but
// those that resolving names reads, and nothing of the system but what sockets need.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"

namespace caisson::egress {

// The host id that root's egress processes run as: nobody's, unlike 65534, which daemons of the
// host share (ARCHITECTURE.md, "Two user namespaces").
inline constexpr unsigned kEgressId = 0x7ffcf001;

struct Confinement {
  const char* name = "";        // of the process, at most 15 bytes
  int parent = 0;               // whose death is ours
  std::vector<int> keep;        // descriptors, beside stderr
  std::size_t descriptors = 0;  // the most
  // What it may allocate beyond what it has now, in bytes.
  std::size_t memory = 0;
  // kLoop: an event loop and threads, which are made afterwards, since each confines itself.
  enum class Threads : unsigned char { kNone, kLoop } threads = Threads::kNone;
};

Status confine(const Confinement& how);

// No memory image of this process is written when it crashes, and nobody but root looks into it.
// confine() sees to that too; this is for what a process is given before. What it has open can
// no longer be opened by /proc/self/fd.
Status forbid_dumps();

}  // namespace caisson::egress
