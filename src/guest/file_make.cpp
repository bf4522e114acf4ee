// Making directories, and whom what is made belongs to.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "guest/file_place.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

// One level. False: a directory was there.
Result<bool> make_level(int directory, const char* name, const std::string& path, mode_t mode) {
  if (::mkdirat(directory, name, mode) == 0) return true;
  const int error_number = errno;
  struct stat status{};
  const bool exists = ::fstatat(directory, name, &status, 0) == 0;
  // A read-only level says EROFS or EACCES even where the directory is there.
  if (exists && S_ISDIR(status.st_mode)) return false;
  if (exists && error_number == EEXIST)
    return fail(Error::invalid("mkdir " + path + ": it exists and is not a directory"));
  return fail(Error::syscall("mkdir " + path, error_number));
}

}  // namespace

// Also of a descriptor that only says where something is.
Status Owner::give(int fd, const std::string& path) const {
  if (given() && ::fchownat(fd, "", uid_, gid_, AT_EMPTY_PATH) != 0)
    return fail_errno("chown " + path);
  return {};
}

Status make_parents(const std::string& path, const Owner& owner) {
  if (owner.given()) {
    TRY(Place::find(path, Place::Missing::kMake, owner));
    return {};
  }
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    TRY(make_level(AT_FDCWD, parent.c_str(), parent, 0755));
  }
  return {};
}

Status make_directory(const std::string& name, const DirectoryOptions& options) {
  std::string path = name;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const auto missing = options.parents ? Place::Missing::kMake : Place::Missing::kFail;
  TRY_ASSIGN(const Place place, Place::find(path, missing, options.owner));
  struct stat status{};
  if (::fstatat(place.directory(), place.name(), &status, place.stat_flags()) != 0)
    TRY(place.check_new());
  TRY_ASSIGN(const bool made, make_level(place.directory(), place.name(), path, options.mode));
  if (!made && (!options.parents || options.exclusive))
    return fail(Error::syscall("mkdir " + path, EEXIST));
  if (!made || !options.owner.given()) return {};
  const Fd directory(
      ::openat(place.directory(), place.name(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("open " + path);
  if (Status given = options.owner.give(directory.get(), path); !given) {
    ::unlinkat(place.directory(), place.name(), AT_REMOVEDIR);
    return given;
  }
  return {};
}

}  // namespace caisson::guest
