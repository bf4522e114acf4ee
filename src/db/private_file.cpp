#include "db/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace caisson::db {
namespace {

Status make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const bool last = slash == std::string::npos;
    if (::mkdir(part.c_str(), last ? 0700 : 0755) != 0 && errno != EEXIST) {
      return fail_errno("make the folder " + part);
    }
    if (last) return {};
  }
}

}  // namespace

Result<Fd> open_private_directory(const std::string& path) {
  TRY(make_directories(path));
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return fail_errno("open the folder " + path);
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) return fail_errno("stat " + path);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Error::precondition("others may write to the folder " + path +
                                    "; allowed is one that is its owner's alone (chmod 0700)"));
  }
  return folder;
}

Status ensure_private_file(int folder_fd, const std::string& name) {
  const Fd made(::openat(folder_fd, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (made.valid()) return give_to_owner(folder_fd, made.get());
  if (errno != EEXIST) return fail_errno("make " + name);
  const Fd place(::openat(folder_fd, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!place.valid()) return fail_errno("open " + name);
  struct stat status{};
  if (::fstat(place.get(), &status) != 0) return fail_errno("stat " + name);
  if (!S_ISREG(status.st_mode)) {
    return fail(Error::precondition(name + " is a link, a folder or a device; allowed is a file"));
  }
  if ((status.st_mode & 0777) == 0600) return {};
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(place.get());
  if (::chmod(by_descriptor.c_str(), 0600) != 0) return fail_errno("chmod 0600 " + name);
  return {};
}

Status give_to_owner(int folder_fd, int file_fd) {
  if (::geteuid() != 0) return {};
  struct stat status{};
  if (::fstat(folder_fd, &status) != 0) return fail_errno("stat a folder");
  if (::fchown(file_fd, status.st_uid, status.st_gid) != 0) return fail_errno("chown a file");
  return {};
}

}  // namespace caisson::db
