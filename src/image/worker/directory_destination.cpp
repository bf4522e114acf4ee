#include "image/worker/directory_destination.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

std::string quoted(const EntryName& name) {
  return "entry '" + printable(name.path) + "'";
}

// The failed system call on an entry: what the archive can be blamed for, and what it cannot.
std::unexpected<Error> fail_entry(const EntryName& name, std::string_view what) {
  return fail(Error::syscall(quoted(name) + ": " + std::string(what), errno));
}

}  // namespace

Result<Fd> DirectoryDestination::open_beneath(const EntryName& name, const std::string& path) {
  open_how how = {};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  Fd fd(static_cast<int>(
      syscall(SYS_openat2, root_fd_, path.empty() ? "." : path.c_str(), &how, sizeof how)));
  if (fd.valid()) return fd;
  // With O_DIRECTORY the kernel may answer ENOTDIR for a link at the end of the path.
  if (errno == ELOOP || errno == ENOTDIR || errno == EXDEV) {
    return fail(Error::invalid(quoted(name) +
                               ": the way to it leads through a symbolic link or a file that is "
                               "no directory"));
  }
  return fail_entry(name, "open its directory");
}

Result<int> DirectoryDestination::open_parent(const EntryName& name) {
  const std::string path(name.parent());
  if (parent_.valid() && path == parent_path_) return parent_.get();
  auto opened = open_beneath(name, path);
  if (!opened.has_value() && opened.error().error_number() == ENOENT) {
    // Make what is missing, from the root down.
    for (std::size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
      const EntryName part{.path = path.substr(0, slash)};
      TRY_ASSIGN(Fd above, open_beneath(name, std::string(part.parent())));
      const std::string last(part.last());
      if (mkdirat(above.get(), last.c_str(), 0755) == 0) {
        TRY(set_owner(above.get(), last, {}));
      } else if (errno != EEXIST) {
        return fail_entry(name, "make its directory");
      }
      if (slash == std::string::npos) break;
    }
    opened = open_beneath(name, path);
  }
  TRY_ASSIGN(parent_, std::move(opened));
  parent_path_ = path;
  return parent_.get();
}

Status DirectoryDestination::set_owner(int parent_fd, const std::string& last,
                                       const EntryAttributes& attributes) {
  if (layout_ == IdLayout::kSingle) return {};
  if (fchownat(parent_fd, last.c_str(), attributes.uid, attributes.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("set the owner of '" + printable(last) + "'");
  }
  return {};
}

Status DirectoryDestination::clear(int parent_fd, const EntryName& name) {
  const std::string last(name.last());
  if (unlinkat(parent_fd, last.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return fail_entry(name, "replace");
  if (unlinkat(parent_fd, last.c_str(), AT_REMOVEDIR) == 0) return {};
  if (errno == ENOTEMPTY || errno == EEXIST) {
    return fail(Error::invalid(quoted(name) + " would replace a directory that is not empty"));
  }
  return fail_entry(name, "replace");
}

Status DirectoryDestination::make_directory(const EntryName& name,
                                            const EntryAttributes& attributes) {
  if (name.is_root()) {
    if (layout_ != IdLayout::kSingle && fchown(root_fd_, attributes.uid, attributes.gid) != 0) {
      return fail_entry(name, "set the owner of the root");
    }
    if (fchmod(root_fd_, attributes.mode) != 0) return fail_entry(name, "set the mode of the root");
    directory_times_.emplace_back(name, attributes.modified);
    return {};
  }
  TRY_ASSIGN(const int parent_fd, open_parent(name));
  const std::string last(name.last());
  struct stat there = {};
  if (fstatat(parent_fd, last.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      !S_ISDIR(there.st_mode)) {
    TRY(clear(parent_fd, name));
  }
  if (mkdirat(parent_fd, last.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail_entry(name, "make the directory");
  }
  TRY(set_owner(parent_fd, last, attributes));
  if (fchmodat(parent_fd, last.c_str(), attributes.mode, 0) != 0) {
    return fail_entry(name, "set the mode");
  }
  directory_times_.emplace_back(name, attributes.modified);
  return {};
}

Status DirectoryDestination::make_symlink(const EntryName& name, std::string_view target,
                                          const EntryAttributes& attributes) {
  TRY_ASSIGN(const int parent_fd, open_parent(name));
  TRY(clear(parent_fd, name));
  const std::string last(name.last());
  if (symlinkat(std::string(target).c_str(), parent_fd, last.c_str()) != 0) {
    return fail_entry(name, "make the symbolic link");
  }
  TRY(set_owner(parent_fd, last, attributes));
  const timespec times[2] = {attributes.modified, attributes.modified};
  if (utimensat(parent_fd, last.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_entry(name, "set the time");
  }
  return {};
}

Status DirectoryDestination::make_fifo(const EntryName& name, const EntryAttributes& attributes) {
  TRY_ASSIGN(const int parent_fd, open_parent(name));
  TRY(clear(parent_fd, name));
  const std::string last(name.last());
  if (mknodat(parent_fd, last.c_str(), S_IFIFO | (attributes.mode & 0777), 0) != 0) {
    return fail_entry(name, "make the pipe");
  }
  return set_owner(parent_fd, last, attributes);
}

Status DirectoryDestination::make_hard_link(const EntryName& name, const EntryName& target) {
  auto absent = [&] {
    return fail(Error::invalid("hard link '" + printable(name.path) + "' to '" +
                               printable(target.path) + "', which no earlier entry has made"));
  };
  auto target_parent = open_beneath(name, std::string(target.parent()));
  if (!target_parent.has_value()) {
    if (target_parent.error().error_number() == ENOENT) return absent();
    return fail(std::move(target_parent).error());
  }
  const std::string target_last(target.last());
  struct stat there = {};
  if (fstatat(target_parent->get(), target_last.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return absent();
    return fail_entry(name, "look at what it links to");
  }
  if (S_ISDIR(there.st_mode)) {
    return fail(Error::invalid("hard link '" + printable(name.path) + "' to the directory '" +
                               printable(target.path) + "'"));
  }
  TRY_ASSIGN(const int parent_fd, open_parent(name));
  TRY(clear(parent_fd, name));
  const std::string last(name.last());
  if (linkat(target_parent->get(), target_last.c_str(), parent_fd, last.c_str(), 0) != 0) {
    return fail_entry(name, "make the hard link");
  }
  return {};
}

Status DirectoryDestination::begin_file(const EntryName& name) {
  TRY_ASSIGN(const int parent_fd, open_parent(name));
  TRY(clear(parent_fd, name));
  file_name_ = name.path;
  file_ = Fd(openat(parent_fd, std::string(name.last()).c_str(),
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_.valid()) return fail_entry(name, "make the file");
  return {};
}

Status DirectoryDestination::write_file(std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t done = TEMP_FAILURE_RETRY(
        pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)));
    if (done < 0) return fail_entry({.path = file_name_}, "write");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

Status DirectoryDestination::end_file(std::uint64_t size, const EntryAttributes& attributes) {
  const Fd file = std::move(file_);
  const EntryName name{.path = file_name_};
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) return fail_entry(name, "set the size");
  if (layout_ != IdLayout::kSingle && fchown(file.get(), attributes.uid, attributes.gid) != 0) {
    return fail_entry(name, "set the owner");
  }
  // After the owner, whose change takes the set-uid bit away.
  if (fchmod(file.get(), attributes.mode) != 0) return fail_entry(name, "set the mode");
  const timespec times[2] = {attributes.modified, attributes.modified};
  if (futimens(file.get(), times) != 0) return fail_entry(name, "set the time");
  return {};
}

Status DirectoryDestination::finish() {
  for (auto entry = directory_times_.rbegin(); entry != directory_times_.rend(); ++entry) {
    const timespec times[2] = {entry->second, entry->second};
    if (entry->first.is_root()) {
      if (futimens(root_fd_, times) != 0) return fail_entry(entry->first, "set the time");
      continue;
    }
    // A later entry may have put something else there.
    auto parent = open_parent(entry->first);
    if (!parent.has_value()) continue;
    struct stat there = {};
    const std::string last(entry->first.last());
    if (fstatat(*parent, last.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(there.st_mode)) {
      continue;
    }
    if (utimensat(*parent, last.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_entry(entry->first, "set the time");
    }
  }
  return {};
}

}  // namespace caisson::image
