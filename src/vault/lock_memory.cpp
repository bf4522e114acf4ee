#include "vault/lock_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/sys.h"

namespace caisson::vault {
namespace {

// Of all that it may map, many times over; a lower limit would end it in the midst of its work.
constexpr rlim_t kRoom = 64u << 20;
// Some of the longest requests, each with its copies. Half of what an ordinary user may lock.
constexpr std::size_t kHeap = 4u << 20;
constexpr std::size_t kMostMaps = 1u << 20;

// A line of /proc/PID/maps: "BEGIN-END PERMISSIONS …".
bool lock_line(std::string_view line) {
  std::uintptr_t begin = 0, end = 0;
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (first.ec != std::errc() || first.ptr == last) return false;
  if (std::from_chars(first.ptr + 1, last, end, 16).ec != std::errc()) return false;
  return ::mlock(reinterpret_cast<const void*>(begin), end - begin) == 0;  // NOLINT: an address
}

std::string lock_heap_and_stack() {
  auto maps = sys::read_file(AT_FDCWD, "/proc/self/maps", kMostMaps);
  if (!maps.has_value()) return maps.error().message();
  bool heap = false, stack = false;
  for (std::string_view rest = *maps; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.ends_with("[heap]") && !line.ends_with("[stack]")) continue;
    if (!lock_line(line)) return std::string("mlock: ") + std::strerror(errno);
    (line.ends_with("[heap]") ? heap : stack) = true;
  }
  return heap && stack ? "" : "/proc/self/maps has no heap or no stack";
}

}  // namespace

void settle_heap() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  // Or a compiler sees that nobody uses it.
  void* volatile room = std::malloc(kHeap);
  std::free(room);
}

std::string lock_memory() {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(::setrlimit(RLIMIT_MEMLOCK, &limit));
  }
  const bool has_room = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kRoom;
  if (has_room && ::mlockall(MCL_CURRENT | MCL_FUTURE) == 0) return {};
  std::string why = lock_heap_and_stack();
  if (why.empty()) return why;
  return why + "; it may lock " + std::to_string(limit.rlim_cur) +
         " bytes (RLIMIT_MEMLOCK), and needs " + std::to_string(2 * kHeap);
}

}  // namespace caisson::vault
