// One sample of what the sandbox sees of itself.
//
// Read from the kernel's own files, in a worker with the guest's rights: there can be as many
// processes as the limit allows. What cannot be read is left out, never guessed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace caisson::guest {

// Names: docs/formats/guest-protocol.md.
using Metrics = std::vector<std::pair<std::string, std::uint64_t>>;
Metrics sample_metrics();

}  // namespace caisson::guest
