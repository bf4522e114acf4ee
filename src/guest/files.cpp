#include "guest/files.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "base/fd.h"
#include "base/file_time.h"
#include "base/kernel_abi.h"
#include "guest/file_details.h"
#include "guest/users.h"

namespace caisson::guest {
namespace {

using proto::FileOperation;
using proto::Tag;

constexpr std::size_t kMaxXattr = 32 * 1024;
constexpr std::uint64_t kMaxMode = 07777;

Result<std::string> read_link(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = ::readlink(path.c_str(), target, sizeof(target));
  if (size < 0) return fail_errno("readlink " + path);
  return std::string(target, static_cast<std::size_t>(size));
}

// AT_SYMLINK_NOFOLLOW where kFollow says so; links are followed by default.
Result<int> follow_flag(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::uint64_t follow, number_field(fields, Tag::kFollow, 1));
  return follow == 0 ? AT_SYMLINK_NOFOLLOW : 0;
}

Status stat_path(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const int flags, follow_flag(fields));
  return tell_status(path, flags, fields, link);
}

Status exists(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const int flags, follow_flag(fields));
  struct stat status{};
  if (::fstatat(AT_FDCWD, path.c_str(), &status, flags) != 0) return fail_errno("stat " + path);
  return {};
}

Status make_directory_of(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t mode, number_field(fields, Tag::kMode, 0755));
  TRY_ASSIGN(const std::uint64_t parents, number_field(fields, Tag::kRecursive, 0));
  TRY_ASSIGN(const std::uint64_t exclusive, number_field(fields, Tag::kExclusive, 0));
  DirectoryOptions options{.mode = static_cast<mode_t>(mode & kMaxMode),
                           .parents = parents != 0,
                           .exclusive = exclusive != 0,
                           .owner = {}};
  TRY_ASSIGN(options.owner, Owner::wanted(fields));
  return make_directory(path, options);
}

Status make_symlink(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::string_view text, fields.text(Tag::kTarget));
  const std::string target(text);
  if (target.empty() || target.size() >= PATH_MAX || target.find('\0') != std::string::npos)
    return fail(Error::invalid("symlink " + path +
                               ": the target is empty, too long or contains a "
                               "zero byte"));
  if (::symlink(target.c_str(), path.c_str()) != 0) return fail_errno("symlink " + path);
  return {};
}

Status read_link_of(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::string target, read_link(path));
  return link.event(proto::Fields().put(Tag::kTarget, target));
}

Status change_mode(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t mode, fields.number(Tag::kMode));
  if (mode > kMaxMode) return fail(Error::invalid("chmod " + path + ": the mode is above 07777"));
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) return fail_errno("chmod " + path);
  return {};
}

Status change_owner(const proto::FieldReader& fields) {
  constexpr std::uint64_t kKeep = 0xffffffff;
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t uid, number_field(fields, Tag::kUid, kKeep));
  TRY_ASSIGN(const std::uint64_t gid, number_field(fields, Tag::kGid, kKeep));
  TRY_ASSIGN(const int flags, follow_flag(fields));
  if (::fchownat(AT_FDCWD, path.c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(gid), flags) !=
      0)
    return fail_errno("chown " + path);
  return {};
}

Status set_times(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t raw, fields.number(Tag::kMtimeNs));
  TRY_ASSIGN(const int flags, follow_flag(fields));
  if (::utimensat(AT_FDCWD, path.c_str(), ModificationTime(raw).times, flags) != 0)
    return fail_errno("setting the times of " + path);
  return {};
}

Status get_xattr(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::string name, attribute_name(fields, Tag::kXattrName));
  std::string value(kMaxXattr, '\0');
  const ssize_t size = ::getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  if (size < 0) return fail_errno("getxattr " + path);
  value.resize(static_cast<std::size_t>(size));
  return link.event(proto::Fields().put(Tag::kXattrName, name).put(Tag::kXattrValue, value));
}

Status set_xattr(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::string name, attribute_name(fields, Tag::kXattrName));
  TRY_ASSIGN(const std::string_view value, fields.text(Tag::kXattrValue));
  if (value.size() > kMaxXattr)
    return fail(Error::invalid("extended attribute: the value is longer than 32 KiB"));
  if (::setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) != 0)
    return fail_errno("setxattr " + path);
  return {};
}

}  // namespace

std::string join(const std::string& directory, std::string_view name) {
  std::string path = directory;
  if (!path.ends_with('/')) path += '/';
  return path.append(name);
}

Error directory_error(const std::string& what, const std::string& path, int error_number) {
  struct stat status{};
  if (error_number == ENOTDIR && ::stat(path.c_str(), &status) == 0)
    return Error::invalid(what + " " + path + ": it is not a directory");
  return Error::syscall(what + " " + path, error_number);
}

Status tell_status(const std::string& path, int flags, const proto::FieldReader& fields,
                   WorkerLink& link) {
  TRY_ASSIGN(Details details, Details::wanted(fields));
  struct stat status{};
  if (::fstatat(AT_FDCWD, path.c_str(), &status, flags) != 0) return fail_errno("stat " + path);
  proto::Fields event;
  put_status(event, status);
  if (details.any()) {
    details.put(event, {AT_FDCWD, path, path}, status);
  } else {
    const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    put_owner_names(event, status, AccountNames::read(root.get()));
  }
  if (S_ISLNK(status.st_mode)) {
    TRY_ASSIGN(const std::string target, read_link(path));
    event.put(Tag::kTarget, target);
  }
  return link.event(event);
}

Status lookup_user(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string_view user, fields.text(Tag::kUserName));
  const Fd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  TRY_ASSIGN(const Account account, resolve_user(user, root.get()));
  proto::Fields event;
  event.put_u32(Tag::kUid, account.uid)
      .put_u32(Tag::kGid, account.gid)
      .put(Tag::kHome, account.home)
      .put(Tag::kShell, account.shell);
  if (!account.name.empty()) event.put(Tag::kUserName, account.name);
  return link.event(event);
}

Status file_worker(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::uint64_t operation, fields.number(Tag::kOperation));
  switch (static_cast<FileOperation>(operation)) {
    case FileOperation::kStat:
      return stat_path(fields, link);
    case FileOperation::kRead:
      return read_file(fields, link);
    case FileOperation::kWrite:
      return write_file(fields, link);
    case FileOperation::kList:
      return list_directory(fields, link);
    case FileOperation::kMakeDir:
      return make_directory_of(fields);
    case FileOperation::kRemove:
      return remove_path(fields);
    case FileOperation::kRename:
      return rename_path(fields);
    case FileOperation::kSymlink:
      return make_symlink(fields);
    case FileOperation::kReadlink:
      return read_link_of(fields, link);
    case FileOperation::kChmod:
      return change_mode(fields);
    case FileOperation::kChown:
      return change_owner(fields);
    case FileOperation::kSetTimes:
      return set_times(fields);
    case FileOperation::kExists:
      return exists(fields);
    case FileOperation::kGetXattr:
      return get_xattr(fields, link);
    case FileOperation::kSetXattr:
      return set_xattr(fields);
    case FileOperation::kCompose:
      return compose_file(fields, link);
    case FileOperation::kLookupUser:
      return lookup_user(fields, link);
  }
  return fail(Error(Code::kUnimplemented,
                    "file: operation " + std::to_string(operation) + ", allowed are 1 to 17"));
}

}  // namespace caisson::guest
