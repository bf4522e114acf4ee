#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "guest/file_details.h"
#include "guest/file_place.h"
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

// One directory of a listing. Its names come in lexical order, a batch at a time: however many
// there are, no more than a batch is held.
class Level {
 public:
  // `depth` levels are above this one.
  Level(Directory directory, std::string prefix, std::size_t depth)
      : directory_(std::move(directory)),
        prefix_(std::move(prefix)),
        batch_size_(std::max(kFirstBatch >> depth, kLeastBatch)) {}

  int fd() const { return ::dirfd(directory_.get()); }
  // Of the names below, "" or "a/b/".
  const std::string& prefix() const { return prefix_; }
  // The next name, "" at the end.
  Result<std::string> next();

 private:
  static constexpr std::size_t kFirstBatch = 16 * 1024;
  static constexpr std::size_t kLeastBatch = 256;

  // The names behind `last_`.
  Status read_batch();

  Directory directory_;
  std::string prefix_;
  std::size_t batch_size_;
  std::set<std::string> batch_;
  std::string last_;
  bool more_ = true;  // what is behind the batch was not yet looked at
};

Result<std::string> Level::next() {
  if (batch_.empty() && more_) TRY(read_batch());
  if (batch_.empty()) return std::string();
  last_ = std::move(batch_.extract(batch_.begin()).value());
  return last_;
}

Status Level::read_batch() {
  more_ = false;
  ::rewinddir(directory_.get());
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory_.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (is_dot(name) || name <= last_) continue;
    if (batch_.size() == batch_size_) {
      more_ = true;
      const auto greatest = std::prev(batch_.end());
      if (name > *greatest) continue;
      batch_.erase(greatest);
    }
    batch_.emplace(name);
  }
  if (errno != 0) return fail_errno("readdir");
  return {};
}

// One level of a tree that is being removed, on the way back up.
struct Ancestor {
  std::string child;  // the name under which we went down
  dev_t device;
  ino_t inode;
};

// By whoever planted the links that led to `top`, which `fd` is or lies below.
Status check_emptying(int fd, const Place& top) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat");
  return top.check_emptying(status);
}

Result<Fd> enter(int parent_fd, const std::string& name, const Place& top) {
  Fd directory(::openat(parent_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("open " + name);
  // What is mounted below is not part of the tree.
  struct statx status{};
  if (::statx(directory.get(), "", AT_EMPTY_PATH, 0, &status) != 0)
    return fail_errno("statx " + name);
  if ((status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
    return fail(Error::precondition(name + " is a mount"));
  TRY(check_emptying(directory.get(), top));
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

// Removes everything below `current`, which is what `top` leads to. The way back up is "..",
// checked against what was there on the way down, so that depth costs no descriptors.
Status empty_tree(Fd current, const Place& top) {
  TRY(check_emptying(current.get(), top));
  std::vector<Ancestor> ancestors;
  for (;;) {
    TRY_ASSIGN(const std::string child, remove_entries(current.get()));
    if (!child.empty()) {
      struct stat status{};
      if (::fstat(current.get(), &status) != 0) return fail_errno("fstat");
      TRY_ASSIGN(Fd below, enter(current.get(), child, top));
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
  TRY_ASSIGN(Details details, Details::wanted(fields));
  Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top.valid()) return fail(directory_error("list", path, errno));
  std::vector<Level> levels;
  TRY_ASSIGN(Directory first, open_stream(top.get()));
  top.reset();
  levels.emplace_back(std::move(first), "", 0);
  while (!levels.empty()) {
    const int directory_fd = levels.back().fd();
    Result<std::string> next = levels.back().next();
    if (!next) return fail(std::move(next).error().with("list " + path));
    const std::string name = std::move(*next);
    if (name.empty()) {
      levels.pop_back();
      continue;
    }
    struct stat status{};
    if (::fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      continue;  // gone since
    const std::string below = levels.back().prefix() + name;
    proto::Fields event;
    event.put(Tag::kName, below);
    put_status(event, status);
    details.put(event, {directory_fd, name, join(path, below)}, status);
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(directory_fd, name.c_str(), target, sizeof(target));
      if (size >= 0)
        event.put(Tag::kTarget, std::string_view(target, static_cast<std::size_t>(size)));
    }
    TRY(link.event(event));
    if (!S_ISDIR(status.st_mode) || levels.size() >= depth) continue;
    const Fd child(
        ::openat(directory_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!child.valid()) continue;  // one that the user may not read is listed, not entered
    TRY_ASSIGN(Directory stream, open_stream(child.get()));
    levels.emplace_back(std::move(stream), below + "/", levels.size());
  }
  return {};
}

Status remove_path(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t recursive, number_field(fields, Tag::kRecursive, 0));
  TRY_ASSIGN(const Owner owner, Owner::wanted(fields));
  TRY_ASSIGN(const Place place,
             Place::find(path, Place::Missing::kFail, owner, Place::Last::kKeep));
  struct stat status{};
  if (::fstatat(place.directory(), place.name(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("remove " + path);
  TRY(place.check_removal(status));
  const auto remove = [&](int flags) {
    return ::unlinkat(place.directory(), place.name(), flags) == 0 ? 0 : errno;
  };
  const int not_a_file = remove(0);
  if (not_a_file == 0) return {};
  if (not_a_file != EISDIR && not_a_file != EPERM)
    return fail(Error::syscall("remove " + path, not_a_file));
  const int not_empty = remove(AT_REMOVEDIR);
  if (not_empty == 0) return {};
  if (not_empty == ENOTDIR) return fail(Error::syscall("remove " + path, not_a_file));
  if ((not_empty != ENOTEMPTY && not_empty != EEXIST) || recursive == 0)
    return fail(Error::syscall("remove " + path, not_empty));
  Fd top(
      ::openat(place.directory(), place.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top.valid()) return fail_errno("open " + path);
  if (Status emptied = empty_tree(std::move(top), place); !emptied)
    return fail(std::move(emptied).error().with("remove " + path));
  if (const int left = remove(AT_REMOVEDIR); left != 0)
    return fail(Error::syscall("remove " + path, left));
  return {};
}

}  // namespace caisson::guest
