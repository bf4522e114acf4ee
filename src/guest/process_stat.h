// The processes of the sandbox as /proc shows them.
//
// Names and counters are the processes' own, so hostile: what is not well-formed counts as absent.
// Used in a worker, since there can be as many as the sandbox's limit allows. No state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::guest {

// From the line that /proc/PID/stat has.
struct ProcessStat {
  std::uint32_t parent = 0;
  std::string name;
  std::uint64_t ticks = 0;  // of processor time, its own and of the children that it waited for
};

std::optional<ProcessStat> parse_process_stat(std::string_view line);

// The start of a file; empty where it cannot be read.
std::string read_start(const std::string& path, std::size_t limit);

// Calls `visit` for each process, with its directory below /proc. Those that end meanwhile are left
// out.
Status for_each_process(const std::function<Status(std::uint32_t pid, const std::string& directory,
                                                   const ProcessStat& stat)>& visit);

}  // namespace caisson::guest
