#include "box/host_path.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::box {
namespace {

constexpr std::uint64_t kNoLinks = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

// f_type of file systems whose files are the kernel's own controls.
struct KernelFileSystem {
  std::uint32_t magic;
  const char* name;
};
constexpr std::array<KernelFileSystem, 9> kKernelFileSystems = {{{0x9fa0, "proc"},
                                                                 {0x62656572, "sysfs"},
                                                                 {0x64626720, "debugfs"},
                                                                 {0x74726163, "tracefs"},
                                                                 {0x73636673, "securityfs"},
                                                                 {0x27e0eb, "cgroup"},
                                                                 {0x63677270, "cgroup2"},
                                                                 {0xcafe4a11, "bpf"},
                                                                 {0x6165676c, "pstore"}}};

std::string link_target(int directory_fd, const std::string& path) {
  char target[4096];
  const ssize_t length = ::readlinkat(directory_fd, path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : std::string();
}

// The first symbolic link on the way to `path`, for the message alone.
Error link_error(const std::string& path) {
  std::size_t end = 0;
  do {
    end = path.find('/', end + 1);
    const std::string prefix = path.substr(0, end);
    const std::string target = link_target(AT_FDCWD, prefix);
    if (!target.empty())
      return Error::invalid("'" + prefix + "' is a symbolic link to '" + target +
                            "'; host paths are opened without following links: give the path that "
                            "it points to");
  } while (end != std::string::npos);
  return Error::invalid("'" + path + "' has a symbolic link in it; give the path it points to");
}

// "/tmp/x" with a link /tmp -> private/tmp becomes "/private/tmp/x".
std::string with_root_link_resolved(const std::string& path) {
  if (path.empty() || path[0] != '/') return path;
  const std::size_t start = path.find_first_not_of('/');
  if (start == std::string::npos) return path;
  const std::size_t end = std::min(path.find('/', start), path.size());
  const std::string target = link_target(AT_FDCWD, "/" + path.substr(start, end - start));
  if (target.empty()) return path;
  return (target[0] == '/' ? target : "/" + target) + path.substr(end);
}

Result<Fd> open_path(const std::string& path, std::uint64_t flags) {
  auto opened = sys::openat2(AT_FDCWD, with_root_link_resolved(path), flags, 0, kNoLinks);
  if (opened.has_value()) return opened;
  if (opened.error().error_number() == ELOOP) return fail(link_error(path));
  return fail(Error::syscall("'" + path + "'", opened.error().error_number()));
}

}  // namespace

Result<HostPath> open_host_path(const std::string& path) {
  if (path.empty()) return fail(Error::invalid("an empty host path"));
  HostPath opened;
  TRY_ASSIGN(opened.fd, open_path(path, O_PATH));
  struct stat info = {};
  if (::fstat(opened.fd.get(), &info) != 0) return fail_errno("fstat '" + path + "'");
  if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    const char* kind = S_ISSOCK(info.st_mode)   ? "a socket"
                       : S_ISFIFO(info.st_mode) ? "a pipe"
                       : S_ISLNK(info.st_mode)  ? "a symbolic link"
                                                : "a device";
    return fail(Error::invalid("'" + path + "' is " + kind +
                               "; only files and directories can be given to a sandbox"));
  }
  struct statfs file_system = {};
  if (::fstatfs(opened.fd.get(), &file_system) != 0) return fail_errno("fstatfs '" + path + "'");
  for (const KernelFileSystem& kernel : kKernelFileSystems)
    if (static_cast<std::uint32_t>(file_system.f_type) == kernel.magic)
      return fail(Error::invalid("'" + path + "' is on a file system of the kernel's own (" +
                                 kernel.name + "), which a sandbox cannot be given"));
  opened.directory = S_ISDIR(info.st_mode);
  opened.uid = info.st_uid;
  opened.gid = info.st_gid;
  return opened;
}

Result<HostTarget> open_host_target(const std::string& path) {
  if (path.empty()) return fail(Error::invalid("an empty host path"));
  HostTarget target;
  target.shown = path;
  target.name = last_component(path);
  auto existing = open_path(path, O_PATH | O_DIRECTORY);
  if (existing.has_value()) {
    target.inside = std::move(*existing);
    // Results may also go into "." or "/": then only `inside` is of use.
    if (target.name.empty()) {
      TRY_ASSIGN(target.folder, reopen(target.inside.get(), O_PATH | O_DIRECTORY));
      return target;
    }
  } else if (path.back() == '/' || target.name.empty()) {
    return fail(std::move(existing).error());
  }
  std::string parent = path.substr(0, path.find_last_not_of('/') + 1);
  const std::size_t slash = parent.rfind('/');
  parent = slash == std::string::npos ? "." : slash == 0 ? "/" : parent.substr(0, slash);
  TRY_ASSIGN(target.folder, open_path(parent, O_PATH | O_DIRECTORY));
  // Found out now rather than after the run.
  const int writable = target.inside.valid() ? target.inside.get() : target.folder.get();
  if (::faccessat(writable, ".", W_OK | X_OK, AT_EACCESS) != 0)
    return fail_errno("'" + path + "' cannot be written to");
  return target;
}

Result<Fd> reopen(int fd, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Fd opened(::open(path.c_str(), flags | O_CLOEXEC));
  if (!opened.valid()) return fail_errno("open a granted path");
  return opened;
}

std::string last_component(const std::string& path) {
  const std::size_t last = path.find_last_not_of('/');
  if (last == std::string::npos) return "";
  const std::size_t slash = path.rfind('/', last);
  std::string name =
      slash == std::string::npos ? path.substr(0, last + 1) : path.substr(slash + 1, last - slash);
  return name == "." || name == ".." ? "" : name;
}

}  // namespace caisson::box
