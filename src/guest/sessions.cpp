#include "guest/sessions.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::guest {
namespace {

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0) return std::nullopt;
  return pid;
}

// The sixth field of /proc/PID/stat; the second, the name in parentheses, can contain anything.
std::optional<pid_t> session_of(const char* pid) {
  const std::string path = std::string("/proc/") + pid + "/stat";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char bytes[512];
  const ssize_t count = file.valid() ? ::read(file.get(), bytes, sizeof(bytes)) : -1;
  if (count <= 0) return std::nullopt;
  std::string_view text(bytes, static_cast<std::size_t>(count));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  for (int field = 0; field < 4; ++field) {  // state, parent, group; then the session
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    text.remove_prefix(space + 1);
  }
  return parse_pid(text.substr(0, text.find(' ')));
}

}  // namespace

void kill_session(pid_t leader) {
  VERIFY(leader > 1);
  ::kill(-leader, SIGKILL);
  DIR* const processes = ::opendir("/proc");
  if (processes == nullptr) return;
  while (const dirent* entry = ::readdir(processes)) {
    const std::optional<pid_t> pid = parse_pid(entry->d_name);
    if (pid && session_of(entry->d_name) == leader) ::kill(*pid, SIGKILL);
  }
  ::closedir(processes);
}

}  // namespace caisson::guest
