// The end of a system call filter: the number that was loaded is looked up among those allowed.
//
// As a tree of comparisons, not a list: the kernel runs a new filter once for every number that
// there is (its cache of calls that are always allowed), and a list of seventy comparisons took a
// sandbox's supervisor 70 microseconds of its start. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kernel_abi.h"

namespace caisson::wall {

// Instructions that answer SECCOMP_RET_ALLOW for these numbers and `otherwise` (a SECCOMP_RET_*
// with its data) for every other one. At most 120 numbers; repeated ones count once.
std::vector<sock_filter> search_calls(std::vector<std::uint32_t> allowed, std::uint32_t otherwise);

}  // namespace caisson::wall
