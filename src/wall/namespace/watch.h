// Looking at a box's processes one by one, where no control group counts for us (an ordinary user
// without delegation). What it finds is a moment's picture: limits held this way are reported as
// "watched".
#pragma once

#include <cstdint>

#include "base/error.h"
#include "wall/wall.h"

namespace caisson::wall {

// Adds to `usage` the memory, threads and processor time of all descendants of `guest_pid` as /proc
// shows them now, and counts a memory or process hit where a limit (0: none) is reached.
Status watch_processes(int guest_pid, std::uint64_t memory_limit, std::uint64_t pids_limit,
                       Usage& usage);

}  // namespace caisson::wall
