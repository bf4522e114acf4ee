// One sample of what the sandbox sees of itself.
//
// Read from the kernel's own files, in a worker with the guest's rights: there can be as many
// processes as the limit allows. What cannot be read is left out, never guessed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace caisson::guest {

// Names: docs/formats/guest-protocol.md.
using Metrics = std::vector<std::pair<std::string, std::uint64_t>>;
// `before` is what processor_time_of_the_dead() told the guest itself, whose child calls this: PID
// 1 cannot be seen by others.
Metrics sample_metrics(std::chrono::microseconds before);

// Of all that the caller waited for, and its own.
std::chrono::microseconds processor_time_of_the_dead();

}  // namespace caisson::guest
