// One sample of what the sandbox sees of itself.
//
// Read from the kernel's own files by PID 1 itself, since nothing of it can be made to wait by the
// sandbox. What cannot be read is left out, never guessed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace caisson::guest {

// Names: cpu_count, memory_total, memory_used, processes, disk_total, disk_used,
// inodes_total, inodes_used, uptime_ms. Bytes where nothing else is said.
using Metrics = std::vector<std::pair<std::string, std::uint64_t>>;
Metrics sample_metrics();

}  // namespace caisson::guest
