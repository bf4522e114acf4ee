#include "guest/metrics.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "guest/process_stat.h"

namespace caisson::guest {
namespace {

std::string read_small(const char* path) {
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  char bytes[4096];
  const ssize_t count = ::read(file.get(), bytes, sizeof(bytes));
  return count > 0 ? std::string(bytes, static_cast<std::size_t>(count)) : std::string();
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  const std::size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// "Name:   123 kB" of /proc/meminfo, in bytes.
std::optional<std::uint64_t> meminfo(std::string_view text, std::string_view name) {
  const std::size_t found = text.find(name);
  if (found == std::string_view::npos) return std::nullopt;
  const std::optional<std::uint64_t> kib = leading_number(text.substr(found + name.size()));
  if (!kib) return std::nullopt;
  return *kib * 1024;
}

void add_processors(Metrics& metrics) {
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return;
  auto count = static_cast<std::uint64_t>(CPU_COUNT(&cpus));
  // "QUOTA PERIOD": as many as the quota keeps busy.
  const std::string limit = read_small("/sys/fs/cgroup/cpu.max");
  const auto quota = leading_number(limit);
  const auto period =
      leading_number(std::string_view(limit).substr(std::min(limit.find(' '), limit.size())));
  if (quota && period && *quota > 0 && *period > 0)
    count = std::min(count, (*quota - 1) / *period + 1);
  metrics.emplace_back("cpu_count", count);
}

void add_memory(Metrics& metrics) {
  // The sandbox's own limit where it is shown, else what the kernel has.
  const auto total = leading_number(read_small("/sys/fs/cgroup/memory.max"));
  const auto used = leading_number(read_small("/sys/fs/cgroup/memory.current"));
  const std::string text = read_small("/proc/meminfo");
  const auto kernel_total = meminfo(text, "MemTotal:");
  const auto available = meminfo(text, "MemAvailable:");
  const auto cached = meminfo(text, "\nCached:");
  if (total || kernel_total) metrics.emplace_back("memory_total", total ? *total : *kernel_total);
  if (used)
    metrics.emplace_back("memory_used", *used);
  else if (!total && kernel_total && available)
    metrics.emplace_back("memory_used", *kernel_total - *available);
  // Where a limit is shown the kernel is the host's, and so is its cache.
  if (!total && cached) metrics.emplace_back("memory_cache", *cached);
}

void add_processes(Metrics& metrics, std::chrono::microseconds before) {
  std::uint64_t count = 0, ticks = 0;
  const auto guest = static_cast<std::uint32_t>(::getppid());
  const auto self = static_cast<std::uint32_t>(::getpid());
  const auto add = [&](std::uint32_t pid, const std::string&, const ProcessStat& stat) -> Status {
    if (pid == guest || pid == self) return {};
    ++count;
    ticks += stat.ticks;
    return {};
  };
  if (!for_each_process(add)) return;
  metrics.emplace_back("processes", count);
  // Whoever has ended was waited for by a parent that is among them, or by the guest.
  const long per_second = ::sysconf(_SC_CLK_TCK);
  if (per_second > 0)
    metrics.emplace_back("cpu_used_us",
                         static_cast<std::uint64_t>(before.count()) +
                             ticks * (1'000'000 / static_cast<std::uint64_t>(per_second)));
}

}  // namespace

std::chrono::microseconds processor_time_of_the_dead() {
  std::chrono::microseconds total{0};
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (::getrusage(who, &usage) != 0) continue;
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      total += std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  }
  return total;
}

Metrics sample_metrics(std::chrono::microseconds before) {
  Metrics metrics;
  add_processors(metrics);
  add_memory(metrics);
  add_processes(metrics, before);
  struct statvfs disk{};
  if (::statvfs("/", &disk) == 0) {
    metrics.emplace_back("disk_total", disk.f_blocks * disk.f_frsize);
    metrics.emplace_back("disk_used", (disk.f_blocks - disk.f_bfree) * disk.f_frsize);
    metrics.emplace_back("inodes_total", disk.f_files);
    metrics.emplace_back("inodes_used", disk.f_files - disk.f_ffree);
  }
  timespec time{};
  if (::clock_gettime(CLOCK_BOOTTIME, &time) == 0)
    metrics.emplace_back("uptime_ms", static_cast<std::uint64_t>(time.tv_sec) * 1000 +
                                          static_cast<std::uint64_t>(time.tv_nsec) / 1'000'000);
  return metrics;
}

}  // namespace caisson::guest
