#include "guest/process_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "base/fd.h"

namespace caisson::guest {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// The number at the start of `text`, and the blank behind it taken off.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return value;
}

void skip_field(std::string_view& text) {
  const std::size_t blank = text.find(' ');
  text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
      line.size() < close + 4)
    return std::nullopt;
  ProcessStat stat;
  stat.name = line.substr(open + 1, close - open - 1);
  std::string_view rest = line.substr(close + 4);  // behind ") S "
  const auto parent = take_number(rest);
  if (!parent || *parent > UINT32_MAX) return std::nullopt;
  stat.parent = static_cast<std::uint32_t>(*parent);
  constexpr int kBetween = 9;  // from the process group to the major faults of children
  for (int i = 0; i < kBetween; ++i) skip_field(rest);
  constexpr int kTimes = 4;  // user, system, and both of children
  for (int i = 0; i < kTimes; ++i) {
    const auto ticks = take_number(rest);
    if (!ticks) return std::nullopt;
    stat.ticks += *ticks;
  }
  return stat;
}

std::string read_start(const std::string& path, std::size_t limit) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(limit, '\0');
  const ssize_t count = file.valid() ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

Status for_each_process(const std::function<Status(std::uint32_t pid, const std::string& directory,
                                                   const ProcessStat& stat)>& visit) {
  const std::unique_ptr<DIR, CloseDirectory> processes(::opendir("/proc"));
  if (processes == nullptr) return fail_errno("open /proc");
  while (const dirent* entry = ::readdir(processes.get())) {
    const std::string_view name = entry->d_name;
    std::uint32_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const std::string directory = "/proc/" + std::string(name);
    if (const auto stat = parse_process_stat(read_start(directory + "/stat", 1024)))
      TRY(visit(pid, directory, *stat));
  }
  return {};
}

}  // namespace caisson::guest
