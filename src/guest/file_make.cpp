// Making directories, and whom what is made belongs to.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

// One level. False: a directory was there.
Result<bool> make_level(const std::string& path, mode_t mode, const Owner& owner) {
  if (::mkdir(path.c_str(), mode) != 0) {
    const int error_number = errno;
    struct stat status{};
    const bool exists = ::stat(path.c_str(), &status) == 0;
    // A read-only level says EROFS or EACCES even where the directory is there.
    if (exists && S_ISDIR(status.st_mode)) return false;
    if (exists && error_number == EEXIST)
      return fail(Error::invalid("mkdir " + path + ": it exists and is not a directory"));
    return fail(Error::syscall("mkdir " + path, error_number));
  }
  if (Status given = owner.give(path); !given) {
    ::rmdir(path.c_str());
    return fail(std::move(given).error());
  }
  return true;
}

Result<std::uint32_t> id_field(const proto::FieldReader& fields, Tag tag, std::uint32_t fallback) {
  TRY_ASSIGN(const std::uint64_t id, number_field(fields, tag, fallback));
  if (id > fallback) return fail(Error::invalid("file: an owner's id has more than 32 bits"));
  return static_cast<std::uint32_t>(id);
}

}  // namespace

Result<Owner> Owner::wanted(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::uint32_t uid, id_field(fields, Tag::kUid, kUnchanged));
  TRY_ASSIGN(const std::uint32_t gid, id_field(fields, Tag::kGid, kUnchanged));
  return Owner(uid, gid);
}

Status Owner::give(const std::string& path) const {
  if (given() && ::lchown(path.c_str(), uid_, gid_) != 0) return fail_errno("chown " + path);
  return {};
}

Status Owner::give(int fd, const std::string& path) const {
  if (given() && ::fchown(fd, uid_, gid_) != 0) return fail_errno("chown " + path);
  return {};
}

Status make_parents(const std::string& path, const Owner& owner) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1))
    TRY(make_level(path.substr(0, slash), 0755, owner));
  return {};
}

Status make_directory(const std::string& name, const DirectoryOptions& options) {
  std::string path = name;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (options.parents) TRY(make_parents(path, options.owner));
  TRY_ASSIGN(const bool made, make_level(path, options.mode, options.owner));
  if (!made && (!options.parents || options.exclusive))
    return fail(Error::syscall("mkdir " + path, EEXIST));
  return {};
}

}  // namespace caisson::guest
