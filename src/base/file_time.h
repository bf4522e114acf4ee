// A file's time as the guest protocol carries it: nanoseconds since 1970 in two's complement, as a
// u64. What comes from a sandbox is any number, so every one of them gives a valid timespec.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

namespace caisson {

inline constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// Times before 1677 and after 2262 do not fit and become the nearest that does.
inline std::uint64_t to_nanoseconds(const timespec& time) {
  const __int128 exact = static_cast<__int128>(time.tv_sec) * kNanosecondsPerSecond + time.tv_nsec;
  const __int128 total = std::clamp<__int128>(exact, INT64_MIN, INT64_MAX);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(total));
}

inline timespec to_timespec(std::uint64_t nanoseconds) {
  const auto total = static_cast<std::int64_t>(nanoseconds);
  timespec time{.tv_sec = total / kNanosecondsPerSecond, .tv_nsec = total % kNanosecondsPerSecond};
  if (time.tv_nsec < 0) {
    time.tv_nsec += kNanosecondsPerSecond;
    --time.tv_sec;
  }
  return time;
}

// What utimensat(2) and futimens(2) take to change the time of modification alone.
struct ModificationTime {
  explicit ModificationTime(std::uint64_t nanoseconds)
      : times{{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, to_timespec(nanoseconds)} {}
  timespec times[2];
};

}  // namespace caisson
