// A recipe as the values of a spec, and back. Pure.
#pragma once

#include <array>
#include <string_view>

#include "maker/host.h"

namespace caisson::maker {

// Where a member of a Recipe stands in a spec's limits.
struct SameLimit {
  std::string_view key;  // as a spec has it
  policy::LimitValue Recipe::* recipe;
  policy::LimitValue policy::Limits::* limits;
};
inline constexpr std::array kSameLimits = {
    SameLimit{"cpus", &Recipe::cpu_milli, &policy::Limits::cpu_milli},
    SameLimit{"memory", &Recipe::memory_bytes, &policy::Limits::memory},
    SameLimit{"disk", &Recipe::disk_bytes, &policy::Limits::disk},
    SameLimit{"pids", &Recipe::pids, &policy::Limits::pids},
    SameLimit{"inodes", &Recipe::inodes, &policy::Limits::inodes},
    SameLimit{"open_files", &Recipe::open_files, &policy::Limits::open_files},
    SameLimit{"output", &Recipe::output, &policy::Limits::output},
    SameLimit{"cpu_time", &Recipe::cpu_time_ms, &policy::Limits::cpu_time_ms},
    SameLimit{"io_read", &Recipe::io_read, &policy::Limits::io_read},
    SameLimit{"io_write", &Recipe::io_write, &policy::Limits::io_write},
    SameLimit{"io_read_ops", &Recipe::io_read_ops, &policy::Limits::io_read_ops},
    SameLimit{"io_write_ops", &Recipe::io_write_ops, &policy::Limits::io_write_ops},
};

// `usual`: the layer of a recipe that names none. Where that is tmpfs, a limit of the disk above
// that of the memory, in which the files then lie, becomes half of the memory: nobody asked for
// both. A recipe that names its layer is left as it is, for SandboxSpec::validate to judge.
// Error: invalid_argument, of its network.
Result<policy::SpecValues> values_of(const Recipe& recipe, policy::LayerKind usual);
// Its image is another matter.
Recipe recipe_of(const policy::SpecValues& values, const std::string& image);

}  // namespace caisson::maker
