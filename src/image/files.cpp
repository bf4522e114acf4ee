#include "image/files.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/kernel_abi.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMaxSmallFile = 1 << 20;

Result<std::string> read_all(Fd fd, const std::string& what) {
  std::string contents;
  char buffer[4096];
  for (;;) {
    ssize_t got = TEMP_FAILURE_RETRY(read(fd.get(), buffer, sizeof buffer));
    if (got < 0) return fail_errno("read " + what);
    if (got == 0) return contents;
    contents.append(buffer, static_cast<std::size_t>(got));
    if (contents.size() > kMaxSmallFile) {
      return fail(Error::invalid(what + " is larger than " + std::to_string(kMaxSmallFile) +
                                 " bytes, too large for what it should be"));
    }
  }
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

Result<Directory> read_directory(int directory_fd) {
  Fd copy(openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy.valid()) return fail_errno("open a directory");
  Directory directory(fdopendir(copy.get()));
  if (!directory) return fail_errno("fdopendir");
  copy.take();
  return directory;
}

bool is_dots(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

// Calls `visit(name)` for every entry.
template <typename Visit>
Status each_entry(int directory_fd, Visit visit) {
  TRY_ASSIGN(Directory directory, read_directory(directory_fd));
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) {
      if (errno != 0) return fail_errno("read a directory");
      return {};
    }
    if (!is_dots(entry->d_name)) TRY(visit(entry->d_name));
  }
}

enum class Removal { kGone, kFullDirectory };

Result<Removal> remove_entry(int directory_fd, const char* name) {
  if (unlinkat(directory_fd, name, 0) == 0 || errno == ENOENT) return Removal::kGone;
  if (errno != EISDIR && errno != EPERM) return fail_errno("remove " + std::string(name));
  if (unlinkat(directory_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return Removal::kGone;
  if (errno == ENOTEMPTY || errno == EEXIST) return Removal::kFullDirectory;
  return fail_errno("remove " + std::string(name));
}

// A directory of an image may be closed even to its owner.
Result<Fd> open_to_empty(int directory_fd, const char* name) {
  if (geteuid() != 0) fchmodat(directory_fd, name, 0700, 0);
  return open_directory_at(directory_fd, name);
}

}  // namespace

Result<std::string> read_small_file(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open " + path);
  return read_all(std::move(fd), path);
}

Result<std::string> read_small_file_at(int directory_fd, const std::string& name) {
  Fd fd(openat(directory_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open " + name);
  return read_all(std::move(fd), name);
}

Status replace_file_at(int directory_fd, const std::string& name, std::string_view contents) {
  // One name a process: the store's lock is held by whoever writes.
  const std::string temporary = ".new." + std::to_string(getpid()) + "." + std::to_string(gettid());
  Fd fd(openat(directory_fd, temporary.c_str(),
               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return fail_errno("create " + temporary);
  auto give_up = [&](std::string_view what) {
    auto error = fail_errno(std::string(what) + " " + name);
    unlinkat(directory_fd, temporary.c_str(), 0);
    return error;
  };
  while (!contents.empty()) {
    ssize_t done = TEMP_FAILURE_RETRY(write(fd.get(), contents.data(), contents.size()));
    if (done < 0) return give_up("write");
    contents.remove_prefix(static_cast<std::size_t>(done));
  }
  if (fsync(fd.get()) != 0) return give_up("fsync");
  if (renameat(directory_fd, temporary.c_str(), directory_fd, name.c_str()) != 0) {
    return give_up("rename");
  }
  if (fsync(directory_fd) != 0) return fail_errno("fsync the directory of " + name);
  return {};
}

Result<Fd> open_directory_at(int directory_fd, const std::string& name) {
  Fd fd(openat(directory_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open directory " + name);
  return fd;
}

Result<Fd> open_or_make_directory_at(int directory_fd, const std::string& name) {
  if (mkdirat(directory_fd, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_errno("make directory " + name);
  }
  return open_directory_at(directory_fd, name);
}

Result<Fd> open_or_make_directory(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), slash == std::string::npos ? 0700 : 0755) != 0 && errno != EEXIST) {
      return fail_errno("make directory " + part);
    }
    if (slash == std::string::npos) break;
  }
  Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open directory " + path);
  return fd;
}

std::string random_name() {
  unsigned char bytes[16];
  VERIFY(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  std::string name;
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

Result<std::vector<std::string>> list_directory(int directory_fd) {
  std::vector<std::string> names;
  TRY(each_entry(directory_fd, [&](const char* name) -> Status {
    names.emplace_back(name);
    return {};
  }));
  std::ranges::sort(names);
  return names;
}

Result<std::optional<Fd>> lock_file_at(int directory_fd, const std::string& name, LockKind kind,
                                       LockWait wait) {
  const int operation =
      (kind == LockKind::kShared ? LOCK_SH : LOCK_EX) | (wait == LockWait::kTry ? LOCK_NB : 0);
  for (;;) {
    Fd fd(openat(directory_fd, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid()) return fail_errno("open lock " + name);
    if (TEMP_FAILURE_RETRY(flock(fd.get(), operation)) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      return fail_errno("lock " + name);
    }
    struct stat locked = {}, named = {};
    if (fstat(fd.get(), &locked) != 0) return fail_errno("stat lock " + name);
    if (fstatat(directory_fd, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      return fd;
    }
  }
}

bool is_locked_at(int directory_fd, const std::string& name) {
  const Fd fd(openat(directory_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::uint64_t begin_writing(int file_fd, std::uint64_t begun, std::uint64_t end) {
  constexpr std::uint64_t kWorthwhile = 1 << 20, kPage = 4096;
  end -= end % kPage;  // the rest of the last page is still to come
  if (end < begun + kWorthwhile) return begun;
  sync_file_range(file_fd, static_cast<off64_t>(begun), static_cast<off64_t>(end - begun),
                  SYNC_FILE_RANGE_WRITE);
  return end;
}

Status remove_tree_at(int directory_fd, const std::string& name) {
  TRY_ASSIGN(Removal first, remove_entry(directory_fd, name.c_str()));
  if (first == Removal::kGone) return {};
  // Another sweep may be at it too: what is not there any more is done.
  auto opened = open_to_empty(directory_fd, name.c_str());
  if (!opened.has_value() && opened.error().code() == Code::kNotFound) return {};
  TRY_ASSIGN(const Fd top, std::move(opened));
  std::uint64_t counter = 0;
  // Every directory found below is emptied of files, and its own directories are moved up to the
  // top, so that the tree gets one level flatter with each pass and nothing recurses.
  auto empty_below = [&](const char* child) -> Status {
    auto below = open_to_empty(top.get(), child);
    if (!below.has_value() && below.error().code() == Code::kNotFound) return {};
    TRY_ASSIGN(const Fd inner, std::move(below));
    return each_entry(inner.get(), [&](const char* entry) -> Status {
      TRY_ASSIGN(Removal removal, remove_entry(inner.get(), entry));
      if (removal == Removal::kGone) return {};
      // Moving a directory writes its "..".
      if (geteuid() != 0) fchmodat(inner.get(), entry, 0700, 0);
      for (;;) {
        const std::string moved = ".removed." + std::to_string(counter++);
        if (renameat2(inner.get(), entry, top.get(), moved.c_str(), RENAME_NOREPLACE) == 0) break;
        if (errno == ENOENT) break;
        if (errno != EEXIST) return fail_errno("move " + std::string(entry));
      }
      return {};
    });
  };
  for (;;) {
    bool left = false;
    TRY(each_entry(top.get(), [&](const char* entry) -> Status {
      TRY_ASSIGN(Removal removal, remove_entry(top.get(), entry));
      if (removal == Removal::kGone) return {};
      left = true;
      return empty_below(entry);
    }));
    if (left) continue;
    if (unlinkat(directory_fd, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno("remove " + name);
  }
}

}  // namespace caisson::image
