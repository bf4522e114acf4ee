// The rules of the limits: key, flag, unit and range of each, in the order of caisson::Limit.
// Constants alone; the launch plan's reader uses them too.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "policy/spec.h"

namespace caisson::policy {

enum class LimitUnit { kCpus, kBytes, kCount, kDuration, kByteRate, kCountRate };

struct LimitRule {
  std::string_view key;   // below `limits`
  std::string_view flag;  // of the command line
  LimitValue Limits::* value;
  LimitUnit unit;
  std::uint64_t min;
  std::uint64_t max;
};

inline constexpr std::uint64_t kMaxBytes = 1ull << 50;
inline constexpr std::uint64_t kMaxMilliseconds = 365ull * 24 * 3600 * 1000;

inline constexpr std::uint64_t kMaxOperations = 1'000'000'000;

inline constexpr std::array<LimitRule, 13> kLimitRules = {{
    {"cpus", "--cpus", &Limits::cpu_milli, LimitUnit::kCpus, 10, 1'024'000},
    {"memory", "--memory", &Limits::memory, LimitUnit::kBytes, 8ull << 20, kMaxBytes},
    {"pids", "--pids", &Limits::pids, LimitUnit::kCount, 2, 4'194'304},
    {"disk", "--disk", &Limits::disk, LimitUnit::kBytes, 64ull << 10, kMaxBytes},
    {"inodes", "--inodes", &Limits::inodes, LimitUnit::kCount, 16, 1'000'000'000},
    {"open_files", "--open-files", &Limits::open_files, LimitUnit::kCount, 16, 1'048'576},
    {"output", "--output", &Limits::output, LimitUnit::kBytes, 1, kMaxBytes},
    {"timeout", "--timeout", &Limits::timeout_ms, LimitUnit::kDuration, 1, kMaxMilliseconds},
    {"cpu_time", "--cpu-time", &Limits::cpu_time_ms, LimitUnit::kDuration, 1, kMaxMilliseconds},
    {"io_read", "--io-read", &Limits::io_read, LimitUnit::kByteRate, 4096, kMaxBytes},
    {"io_write", "--io-write", &Limits::io_write, LimitUnit::kByteRate, 4096, kMaxBytes},
    {"io_read_ops", "--io-read-ops", &Limits::io_read_ops, LimitUnit::kCountRate, 1,
     kMaxOperations},
    {"io_write_ops", "--io-write-ops", &Limits::io_write_ops, LimitUnit::kCountRate, 1,
     kMaxOperations},
}};

}  // namespace caisson::policy
