#include "guest/file_place.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>

namespace caisson::guest {
namespace {

constexpr std::size_t kMaxLinks = 40;  // as the kernel has it
constexpr int kDirectoryFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The parts of a path, the last one first; empty ones and "." mean nothing.
void push_parts(std::string_view path, std::vector<std::string>& into) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  into.insert(into.end(), parts.rbegin(), parts.rend());
}

Result<Fd> open_root() {
  Fd root(::open("/", kDirectoryFlags));
  if (!root.valid()) return fail_errno("open /");
  return root;
}

}  // namespace

Result<Place> Place::find(const std::string& path, Missing missing, const Owner& owner, Last last) {
  Place place(path);
  place.guarded_ = owner.given();
  if (place.guarded_) {
    TRY(place.walk(missing, owner, last));
  } else if (missing == Missing::kMake) {
    TRY(make_parents(path, owner));
  }
  return place;
}

Status Place::walk(Missing missing, const Owner& owner, Last last) {
  TRY_ASSIGN(directory_, open_root());
  push_parts(path_, left_);
  name_ = ".";
  const bool wants_directory = last == Last::kKeep && path_.ends_with('/');
  std::size_t links = 0;
  while (!left_.empty()) {
    const std::string part = std::move(left_.back());
    left_.pop_back();
    struct stat status{};
    const bool there = ::fstatat(directory_.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT) return fail_errno("open " + path_);
    const bool kept = last == Last::kKeep && left_.empty();
    if (there && S_ISLNK(status.st_mode) && !kept) {
      if (++links > kMaxLinks) return fail(Error::syscall("open " + path_, ELOOP));
      TRY(follow(part, status));
      continue;
    }
    if (left_.empty() && part != "..") {
      if (there && wants_directory && !S_ISDIR(status.st_mode))
        return fail(Error::syscall("open " + path_, ENOTDIR));
      name_ = part;
      return {};
    }
    TRY(enter(part, missing, owner));
  }
  return {};  // it is a directory, by whatever name
}

Status Place::follow(const std::string& name, const struct stat& link) {
  struct stat above{};
  if (::fstat(directory_.get(), &above) != 0) return fail_errno("open " + path_);
  const uid_t planter = link.st_uid != 0 ? link.st_uid : above.st_uid;
  if (planter != 0) planters_.push_back(planter);
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(directory_.get(), name.c_str(), target, sizeof target);
  if (size < 0) return fail_errno("open " + path_);
  const std::string_view text(target, static_cast<std::size_t>(size));
  if (text.starts_with('/')) {
    TRY_ASSIGN(directory_, open_root());
  }
  push_parts(text, left_);
  // Bounded, since each link may be as long as a path.
  if (left_.size() > PATH_MAX) return fail(Error::syscall("open " + path_, ENAMETOOLONG));
  return {};
}

Status Place::enter(const std::string& name, Missing missing, const Owner& owner) {
  Fd next(::openat(directory_.get(), name.c_str(), kDirectoryFlags));
  if (!next.valid() && errno == ENOENT && missing == Missing::kMake) {
    TRY(check_new());
    const bool made = ::mkdirat(directory_.get(), name.c_str(), 0755) == 0;
    // Another writer made it since: it is looked at as if it had been there all along.
    if (!made && errno != EEXIST) return fail_errno("mkdir " + path_);
    next = Fd(::openat(directory_.get(), name.c_str(), kDirectoryFlags));
    if (!next.valid()) return fail_errno("open " + path_);
    if (Status given = made ? owner.give(next.get(), path_) : Status(); !given) {
      ::unlinkat(directory_.get(), name.c_str(), AT_REMOVEDIR);
      return given;
    }
  }
  if (!next.valid()) return fail_errno("open " + path_);
  struct stat status{};
  if (::fstat(next.get(), &status) != 0) return fail_errno("open " + path_);
  TRY(check(status, S_IXOTH));
  directory_ = std::move(next);
  return {};
}

Status Place::check(const struct stat& status, mode_t for_all) const {
  for (const uid_t planter : planters_) {
    if (status.st_uid == planter || (status.st_mode & for_all) == for_all) continue;
    return refuse(planter);
  }
  return {};
}

std::unexpected<Error> Place::refuse(uid_t planter) const {
  return fail(
      Error(Code::kPermissionDenied, path_ + ": a link of user " + std::to_string(planter) +
                                         " is on the way, who may not do this where it leads"));
}

Status Place::check_new() const {
  if (planters_.empty()) return {};
  struct stat status{};
  if (::fstat(directory_.get(), &status) != 0) return fail_errno("open " + path_);
  return check(status, S_IWOTH | S_IXOTH);
}

Status Place::check_existing(const struct stat& status) const {
  return check(status, S_IWOTH);
}

Status Place::check_removal(const struct stat& status) const {
  if (planters_.empty()) return {};
  TRY(check_new());
  struct stat above{};
  if (::fstat(directory_.get(), &above) != 0) return fail_errno("open " + path_);
  if ((above.st_mode & S_ISVTX) == 0) return {};
  for (const uid_t planter : planters_)
    if (above.st_uid != planter && status.st_uid != planter) return refuse(planter);
  return {};
}

Status Place::take_name(int from_directory, const char* from, Existing existing,
                        const std::string& what) const {
  constexpr int kTries = 32;  // each time somebody has made or removed it in between
  for (int left = kTries;; --left) {
    bool must_be_new = existing == Existing::kKeep;
    if (!planters_.empty()) {
      struct stat old{};
      const bool there = ::fstatat(directory(), name(), &old, AT_SYMLINK_NOFOLLOW) == 0;
      if (!there && errno != ENOENT) return fail_errno("stat " + path_);
      if (there) TRY(check_removal(old));
      must_be_new = must_be_new || !there;
    }
    if (::renameat2(from_directory, from, directory(), name(),
                    must_be_new ? RENAME_NOREPLACE : 0) == 0)
      return {};
    if (errno != EEXIST || existing == Existing::kKeep || left == 1) return fail_errno(what);
  }
}

Status Place::check_emptying(const struct stat& directory) const {
  // Of a sticky one only its owner may remove all that there is.
  const bool sticky = (directory.st_mode & S_ISVTX) != 0;
  for (const uid_t planter : planters_)
    if (sticky && directory.st_uid != planter) return refuse(planter);
  return check(directory, S_IWOTH | S_IXOTH);
}

bool Place::may_give(const struct stat& status) const {
  return status.st_nlink == 1 &&
         std::ranges::all_of(planters_, [&](uid_t planter) { return planter == status.st_uid; });
}

Result<Fd> Place::open_regular(int flags, mode_t mode) const {
  Fd file(::openat(directory(), name(), flags | open_flags() | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                   mode));
  if (!file.valid()) return fail_errno("open " + path_);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + path_);
  if (!S_ISREG(status.st_mode)) return fail(Error::precondition(path_ + " is not a regular file"));
  return file;
}

}  // namespace caisson::guest
