// Limits and counters of I/O in one control group: blkio.throttle.* on version 1, io.max and
// io.stat on version 2. On version 1 a group's limit does not hold for groups below it.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "wall/namespace/disks.h"
#include "wall/plan.h"

namespace caisson::wall {

// Writes the plan's limits for one disk. Error: the kernel's, which has no throttle for that disk.
Status limit_disk(const std::string& group, bool v2, const Plan& plan, const Disk& disk);

// Takes every limit away. A process that waits for its turn cannot be killed meanwhile; what ends a
// sandbox does this after the kill, or the wait would outlast the sandbox's time.
void lift_io_limits(const std::string& group);

// Whether the kernel counts what it writes out later for a program as that program's.
enum class LaterWrites : std::uint8_t { kNobodys, kCounted };

// How a group with limits for `disks` holds one of the four, and what is missing: empty where that
// is nothing. kNone without any disk, kPartly where one is unknown or later writes are nobody's.
struct IoHold {
  HeldBy by = HeldBy::kNone;
  std::string fault;
};
IoHold io_hold(const SeenDisks& disks, LaterWrites later, Limit limit);

struct IoBytes {
  std::uint64_t read = 0, written = 0;
};
// What blkio.throttle.io_service_bytes or io.stat tells, over all disks.
IoBytes parse_io_counters(std::string_view text);

}  // namespace caisson::wall
