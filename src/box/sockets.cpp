#include "box/sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <deque>
#include <memory>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::box {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

Result<std::vector<std::string>> find_sockets(int directory_fd) {
  std::vector<std::string> sockets;
  // Nearest first: a socket that matters is rarely deep.
  std::deque<std::string> waiting = {"."};
  std::size_t seen = 0;
  while (!waiting.empty() && seen < kMostLookedAt) {
    const std::string path = std::move(waiting.front());
    waiting.pop_front();
    auto opened = sys::openat2(directory_fd, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0,
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (!opened) continue;  // not ours to read; then nothing inside can look into it either
    // What is mounted below comes along into the sandbox, so it is looked through as well; the
    // kernel's own trees hold no sockets and would take the whole count.
    struct statfs place{};
    if (::fstatfs(opened->get(), &place) != 0) return fail_errno("fstatfs");
    if (place.f_type == PROC_SUPER_MAGIC || place.f_type == SYSFS_MAGIC) continue;
    const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(opened->get()));
    if (directory == nullptr) return fail_errno("fdopendir");
    opened->take();
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      ++seen;
      unsigned char type = entry->d_type;
      if (type == DT_UNKNOWN) {
        struct stat facts{};
        if (::fstatat(::dirfd(directory.get()), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0)
          continue;
        type = static_cast<unsigned char>(IFTODT(facts.st_mode));
      }
      const std::string inner = path == "." ? name : path + "/" + name;
      if (type == DT_DIR) waiting.push_back(inner);
      if (type != DT_SOCK) continue;
      if (sockets.size() == kMostSockets)
        return fail(Error::precondition("it holds more than " + std::to_string(kMostSockets) +
                                        " sockets of the host (" + inner +
                                        "); grant a directory without them"));
      sockets.push_back(inner);
    }
  }
  return sockets;
}

}  // namespace caisson::box
