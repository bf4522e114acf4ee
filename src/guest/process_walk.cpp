// The processes of /proc, one after the other.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "base/fd.h"
#include "guest/process_stat.h"

namespace caisson::guest {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

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
