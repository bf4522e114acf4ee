#include "maker/group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/readiness.h"
#include "base/sys.h"

namespace caisson::maker {
namespace {

constexpr std::size_t kMostFile = 1 << 20;
constexpr const char* kBelow = "/main";

// Calls `take` with each line of the file until one gives something.
template <typename Take>
Result<std::string> first_of(const char* path, Take take) {
  TRY_ASSIGN(const std::string text, sys::read_file(AT_FDCWD, path, kMostFile));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (std::string found = take(text.substr(at, end - at)); !found.empty()) return found;
    at = end + 1;
  }
  return fail(Error::precondition("this host has no control groups of version 2"));
}

// Where the hierarchy of version 2 is mounted.
Result<std::string> mount_point() {
  // "ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS… - cgroup2 …"
  return first_of("/proc/self/mountinfo", [](const std::string& line) -> std::string {
    if (!line.contains(" - cgroup2 ")) return "";
    std::size_t start = 0;
    for (int field = 0; field < 4; ++field) start = line.find(' ', start) + 1;
    return line.substr(start, line.find(' ', start) - start);
  });
}

Result<std::string> own_group() {
  return first_of("/proc/self/cgroup", [](const std::string& line) {
    return line.starts_with("0::") ? line.substr(3) : "";
  });
}

}  // namespace

Status enter_group(const std::string& path) {
  TRY_ASSIGN(const std::string mount, mount_point());
  auto entered = sys::write_file(AT_FDCWD, mount + path + "/cgroup.procs", "0");
  if (entered.has_value()) return {};
  return fail(std::move(entered).error().with("sandbox_group"));
}

Status hold_group() {
  sigset_t end;
  ::sigemptyset(&end);
  ::sigaddset(&end, SIGTERM);
  ::sigaddset(&end, SIGINT);
  ::sigprocmask(SIG_BLOCK, &end, nullptr);
  TRY_ASSIGN(const Readiness readiness, Readiness::open());
  if (const auto mount = mount_point(); mount.has_value()) {
    TRY_ASSIGN(const std::string own, own_group());
    const std::string path = own + kBelow;
    if (::mkdir((*mount + path).c_str(), 0755) != 0 && errno != EEXIST)
      return fail_errno("make the control group " + path);
    TRY(enter_group(path));
  }
  readiness.tell("READY=1");
  int which = 0;
  ::sigwait(&end, &which);
  return {};
}

}  // namespace caisson::maker
