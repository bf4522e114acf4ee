#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::uint64_t kMaxDepth = 64;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool is_dot(std::string_view name) {
  return name == "." || name == "..";
}

// A stream of the entries of `fd`, from the start; `fd` stays the caller's.
Result<Directory> open_stream(int fd) {
  Fd again(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again.valid()) return fail_errno("open directory");
  Directory directory(::fdopendir(again.get()));
  if (directory == nullptr) return fail_errno("fdopendir");
  [[maybe_unused]] const int taken = again.take();
  return directory;
}

struct Level {
  Directory directory;
  std::string prefix;  // of the names below, "" or "a/b/"
};

// One level of a tree that is being removed, on the way back up.
struct Ancestor {
  std::string child;  // the name under which we went down
  dev_t device;
  ino_t inode;
};

Result<Fd> enter(int parent_fd, const std::string& name) {
  Fd directory(::openat(parent_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("open " + name);
  // What is mounted below is not part of the tree.
  struct statx status{};
  if (::statx(directory.get(), "", AT_EMPTY_PATH, 0, &status) != 0)
    return fail_errno("statx " + name);
  if ((status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
    return fail(Error::precondition(name + " is a mount"));
  return directory;
}

// Unlinks entries of the open directory until one of them is a directory that must be emptied
// first; its name, or "" when nothing is left.
Result<std::string> remove_entries(int fd) {
  TRY_ASSIGN(const Directory directory, open_stream(fd));
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (is_dot(name)) continue;
    if (::unlinkat(fd, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    const int error_number = errno;
    if (error_number != EISDIR && error_number != EPERM)
      return fail(Error::syscall("unlink " + name, error_number));
    if (::unlinkat(fd, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
    if (errno == ENOTEMPTY || errno == EEXIST) return name;
    return fail(Error::syscall("remove " + name, errno == ENOTDIR ? error_number : errno));
  }
  if (errno != 0) return fail_errno("readdir");
  return std::string();
}

// Removes everything below `top`. The way back up is "..", checked against what was there on the
// way down, so that depth costs no descriptors.
Status empty_tree(Fd current) {
  std::vector<Ancestor> ancestors;
  for (;;) {
    TRY_ASSIGN(const std::string child, remove_entries(current.get()));
    if (!child.empty()) {
      struct stat status{};
      if (::fstat(current.get(), &status) != 0) return fail_errno("fstat");
      TRY_ASSIGN(Fd below, enter(current.get(), child));
      ancestors.push_back({child, status.st_dev, status.st_ino});
      current = std::move(below);
      continue;
    }
    if (ancestors.empty()) return {};
    const Ancestor above = std::move(ancestors.back());
    ancestors.pop_back();
    Fd parent(::openat(current.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent.valid()) return fail_errno("open ..");
    struct stat status{};
    if (::fstat(parent.get(), &status) != 0) return fail_errno("fstat");
    if (status.st_dev != above.device || status.st_ino != above.inode)
      return fail(Error(Code::kAborted, "the tree was moved while it was being removed"));
    if (::unlinkat(parent.get(), above.child.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT &&
        errno != ENOTEMPTY)
      return fail_errno("remove " + above.child);
    current = std::move(parent);
  }
}

}  // namespace

Status list_directory(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t depth, number_field(fields, Tag::kDepth, 1));
  if (depth < 1 || depth > kMaxDepth)
    return fail(Error::invalid("list " + path + ": depth " + std::to_string(depth) +
                               ", allowed are 1 to " + std::to_string(kMaxDepth)));
  Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top.valid()) return fail_errno("open " + path);
  std::vector<Level> levels;
  TRY_ASSIGN(Directory first, open_stream(top.get()));
  top.reset();
  levels.push_back({std::move(first), ""});
  while (!levels.empty()) {
    DIR* const directory = levels.back().directory.get();
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      if (errno != 0) return fail_errno("readdir below " + path);
      levels.pop_back();
      continue;
    }
    const std::string name = entry->d_name;
    struct stat status{};
    if (is_dot(name) ||
        ::fstatat(::dirfd(directory), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;  // gone since
    proto::Fields event;
    event.put(Tag::kName, levels.back().prefix + name);
    put_status(event, status);
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(::dirfd(directory), name.c_str(), target, sizeof(target));
      if (size >= 0)
        event.put(Tag::kTarget, std::string_view(target, static_cast<std::size_t>(size)));
    }
    TRY(link.event(event));
    if (!S_ISDIR(status.st_mode) || levels.size() >= depth) continue;
    const Fd below(::openat(::dirfd(directory), name.c_str(),
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below.valid()) continue;  // one that the user may not read is listed, not entered
    TRY_ASSIGN(Directory next, open_stream(below.get()));
    std::string prefix = levels.back().prefix + name + "/";
    levels.push_back({std::move(next), std::move(prefix)});
  }
  return {};
}

Status remove_path(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t recursive, number_field(fields, Tag::kRecursive, 0));
  if (::unlink(path.c_str()) == 0) return {};
  const int error_number = errno;
  if (error_number != EISDIR && error_number != EPERM)
    return fail(Error::syscall("remove " + path, error_number));
  if (::rmdir(path.c_str()) == 0) return {};
  if (errno == ENOTDIR) return fail(Error::syscall("remove " + path, error_number));
  if ((errno != ENOTEMPTY && errno != EEXIST) || recursive == 0)
    return fail_errno("remove " + path);
  Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.valid()) return fail_errno("open " + path);
  if (Status emptied = empty_tree(std::move(top)); !emptied)
    return fail(std::move(emptied).error().with("remove " + path));
  if (::rmdir(path.c_str()) != 0) return fail_errno("remove " + path);
  return {};
}

}  // namespace caisson::guest
