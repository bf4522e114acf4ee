#include "wall/namespace/cgroup_io.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/split.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMaxFile = 64 * 1024;
constexpr const char* kMax = "io.max";

struct Throttle {
  const char* v1;
  const char* v2;
  std::uint64_t Plan::* value;
};
constexpr std::array<Throttle, 4> kThrottles = {
    {{"blkio.throttle.read_bps_device", "rbps", &Plan::io_read},
     {"blkio.throttle.write_bps_device", "wbps", &Plan::io_write},
     {"blkio.throttle.read_iops_device", "riops", &Plan::io_read_ops},
     {"blkio.throttle.write_iops_device", "wiops", &Plan::io_write_ops}}};

Status write_file(const std::string& group, const char* file, const std::string& value) {
  return sys::write_file(AT_FDCWD, group + "/" + file, value);
}

// Writes "MAJOR:MINOR `unlimited`" for every disk that the file has a limit for.
void lift_file(const std::string& group, const char* file, std::string_view unlimited) {
  const auto text = sys::read_file(AT_FDCWD, group + "/" + file, kMaxFile);
  if (!text) return;  // another version's, or a group that is gone
  for (const std::string_view line : split(*text, '\n'))
    (void)write_file(group, file, std::string(line.substr(0, line.find(' '))).append(unlimited));
}

std::uint64_t number_at(std::string_view text) {
  std::uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Status limit_disk(const std::string& group, bool v2, const Plan& plan, const Disk& disk) {
  std::string line = disk.name();
  for (const Throttle& throttle : kThrottles) {
    const std::uint64_t value = plan.*throttle.value;
    if (value == 0) continue;
    if (v2) {
      line.append(" ").append(throttle.v2).append("=").append(std::to_string(value));
    } else {
      TRY(write_file(group, throttle.v1, disk.name() + " " + std::to_string(value)));
    }
  }
  return v2 ? write_file(group, kMax, line) : Status();
}

void lift_io_limits(const std::string& group) {
  lift_file(group, kMax, " rbps=max wbps=max riops=max wiops=max");
  for (const Throttle& throttle : kThrottles) lift_file(group, throttle.v1, " 0");
}

IoHold io_hold(const SeenDisks& disks, LaterWrites later, Limit limit) {
  if (!disks.unknown.empty())
    return {disks.disks.empty() ? HeldBy::kNone : HeldBy::kPartly, disks.unknown};
  if (disks.disks.empty()) return {HeldBy::kNone, "all that the sandbox sees lies in memory"};
  const bool writes = limit == Limit::kIoWrite || limit == Limit::kIoWriteOps;
  const std::string& where = later == LaterWrites::kNobodys ? disks.writable : disks.unaccounted;
  if (!writes || where.empty()) return {HeldBy::kCgroup, ""};
  return {HeldBy::kPartly,
          "what the kernel writes later for the sandbox is not counted as its own (" + where + ")"};
}

IoBytes parse_io_counters(std::string_view text) {
  IoBytes bytes;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 3 && words[1] == "Read") bytes.read += number_at(words[2]);
    if (words.size() == 3 && words[1] == "Write") bytes.written += number_at(words[2]);
    for (const std::string_view word : words) {
      if (word.starts_with("rbytes=")) bytes.read += number_at(word.substr(7));
      if (word.starts_with("wbytes=")) bytes.written += number_at(word.substr(7));
    }
  }
  return bytes;
}

}  // namespace caisson::wall
