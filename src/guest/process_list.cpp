#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string>

#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::size_t kMaxCommandLine = 4096;

std::string read_start(const std::string& path, std::size_t limit) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(limit, '\0');
  const ssize_t count = file.valid() ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

// The parent and the name of a process, from the line that /proc has of it.
struct Stat {
  std::uint32_t parent = 0;
  std::string name;
};

std::optional<Stat> parse_stat(std::string_view line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
      line.size() < close + 4)
    return std::nullopt;
  Stat stat;
  stat.name = line.substr(open + 1, close - open - 1);
  const std::string_view rest = line.substr(close + 4);  // ") S "
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), stat.parent);
  if (error != std::errc()) return std::nullopt;
  return stat;
}

}  // namespace

Status process_list_worker(const proto::FieldReader& /*fields*/, WorkerLink& link) {
  DIR* const processes = ::opendir("/proc");
  if (processes == nullptr) return fail_errno("open /proc");
  Status status;
  while (const dirent* entry = ::readdir(processes)) {
    const std::string_view name = entry->d_name;
    std::uint32_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const std::string directory = "/proc/" + std::string(name);
    struct stat owner{};
    const std::optional<Stat> stat = parse_stat(read_start(directory + "/stat", 1024));
    if (!stat || ::stat(directory.c_str(), &owner) != 0) continue;  // ended meanwhile
    std::string command = read_start(directory + "/cmdline", kMaxCommandLine);
    if (command.empty()) command = "[" + stat->name + "]";  // a zombie
    proto::Fields event;
    event.put_u32(Tag::kPid, pid)
        .put_u32(Tag::kParentPid, stat->parent)
        .put_u32(Tag::kUid, owner.st_uid)
        .put(Tag::kName, stat->name)
        .put(Tag::kCommandLine, command);
    status = link.event(event);
    if (!status) break;
  }
  ::closedir(processes);
  return status;
}

}  // namespace caisson::guest
