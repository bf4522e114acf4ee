#include "image/worker/directory_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "image/files.h"
#include "image/reference.h"

namespace caisson::image {
DirectoryWriter::DirectoryWriter(LayerTree& tree, int root_fd, IdLayout layout)
    : tree_(tree), root_fd_(root_fd), layout_(layout), times_(1, Time{}) {
  tree_.set_slot(kRootNode, 0);
}

// A failed system call, which the archive is not to blame for.
std::unexpected<Error> DirectoryWriter::fail_node(NodeId node, std::string_view what) const {
  const int number = errno;
  return fail(
      Error::syscall("entry '" + printable(tree_.path(node)) + "': " + std::string(what), number));
}

Result<Fd> DirectoryWriter::open_directory(NodeId directory) const {
  open_how how = {};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  const std::string path = directory == kRootNode ? "." : tree_.path(directory);
  Fd fd(static_cast<int>(syscall(SYS_openat2, root_fd_, path.c_str(), &how, sizeof how)));
  if (!fd.valid()) return fail_node(directory, "open the directory");
  return fd;
}

Result<int> DirectoryWriter::open_parent(NodeId node) {
  const NodeId parent = tree_.parent(node);
  if (parent_.valid() && parent == parent_node_) return parent_.get();
  TRY_ASSIGN(parent_, open_directory(parent));
  parent_node_ = parent;
  return parent_.get();
}

bool DirectoryWriter::owned(const struct stat& status, const EntryAttributes& attributes) const {
  return layout_ == IdLayout::kSingle ||
         (status.st_uid == attributes.uid && status.st_gid == attributes.gid);
}

Status DirectoryWriter::set_owner_and_mode(int parent_fd, NodeId node,
                                           const EntryAttributes& attributes) {
  const std::string name(tree_.name(node));
  struct stat status = {};
  if (fstatat(parent_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_node(node, "look at it");
  }
  const bool owner = !owned(status, attributes);
  if (owner &&
      fchownat(parent_fd, name.c_str(), attributes.uid, attributes.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_node(node, "set the owner");
  }
  if (S_ISLNK(status.st_mode)) return {};  // has no permissions
  // A change of the owner takes set-uid bits away.
  if ((owner || (status.st_mode & 07777) != attributes.mode) &&
      fchmodat(parent_fd, name.c_str(), attributes.mode, 0) != 0) {
    return fail_node(node, "set the mode");
  }
  return {};
}

Status DirectoryWriter::set_time(int parent_fd, NodeId node, const EntryAttributes& attributes) {
  const timespec times[2] = {attributes.modified, attributes.modified};
  if (utimensat(parent_fd, std::string(tree_.name(node)).c_str(), times, AT_SYMLINK_NOFOLLOW) !=
      0) {
    return fail_node(node, "set the time");
  }
  return {};
}

Status DirectoryWriter::make_directory(NodeId node, const EntryAttributes& attributes,
                                       bool existing) {
  const Time time = {attributes.modified.tv_sec,
                     static_cast<std::uint32_t>(attributes.modified.tv_nsec)};
  if (!existing) {
    tree_.set_slot(node, static_cast<std::uint32_t>(times_.size()));
    times_.push_back(time);
  }
  times_[tree_.slot(node)] = time;
  if (node == kRootNode) {
    if (layout_ != IdLayout::kSingle && fchown(root_fd_, attributes.uid, attributes.gid) != 0) {
      return fail_node(node, "set the owner of the root");
    }
    if (fchmod(root_fd_, attributes.mode) != 0) return fail_node(node, "set the mode of the root");
    return {};
  }
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  const std::string name(tree_.name(node));
  if (!existing && mkdirat(parent_fd, name.c_str(), attributes.mode & 0777) != 0) {
    return fail_node(node, "make the directory");
  }
  return set_owner_and_mode(parent_fd, node, attributes);
}

Status DirectoryWriter::make_symlink(NodeId node, std::string_view target,
                                     const EntryAttributes& attributes) {
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  if (symlinkat(std::string(target).c_str(), parent_fd, std::string(tree_.name(node)).c_str()) !=
      0) {
    return fail_node(node, "make the symbolic link");
  }
  TRY(set_owner_and_mode(parent_fd, node, attributes));
  return set_time(parent_fd, node, attributes);
}

Status DirectoryWriter::make_pipe(NodeId node, const EntryAttributes& attributes) {
  EntryAttributes all = attributes;
  all.mode &= 0777;
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  if (mknodat(parent_fd, std::string(tree_.name(node)).c_str(), S_IFIFO | all.mode, 0) != 0) {
    return fail_node(node, "make the pipe");
  }
  TRY(set_owner_and_mode(parent_fd, node, all));
  return set_time(parent_fd, node, all);
}

Status DirectoryWriter::link(NodeId node, NodeId target) {
  TRY_ASSIGN(const Fd from, open_directory(tree_.parent(target)));
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  if (linkat(from.get(), std::string(tree_.name(target)).c_str(), parent_fd,
             std::string(tree_.name(node)).c_str(), 0) != 0) {
    return fail_node(node, "make the hard link");
  }
  return {};
}

Status DirectoryWriter::begin_file(NodeId node, std::uint64_t size,
                                   const EntryAttributes& attributes) {
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  file_node_ = node;
  file_size_ = size;
  file_end_ = file_begun_ = 0;
  file_attributes_ = attributes;
  file_ = Fd(openat(parent_fd, std::string(tree_.name(node)).c_str(),
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, attributes.mode & 0777));
  if (!file_.valid()) return fail_node(node, "make the file");
  return {};
}

Status DirectoryWriter::write_file(std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t done = TEMP_FAILURE_RETRY(
        pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)));
    if (done < 0) return fail_node(file_node_, "write");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  file_end_ = offset;
  file_begun_ = begin_writing(file_.get(), file_begun_, file_end_);
  return {};
}

Status DirectoryWriter::end_file() {
  const Fd file = std::move(file_);
  if (file_end_ != file_size_ && ftruncate(file.get(), static_cast<off_t>(file_size_)) != 0) {
    return fail_node(file_node_, "set the size");
  }
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return fail_node(file_node_, "look at it");
  if (!owned(status, file_attributes_) &&
      fchown(file.get(), file_attributes_.uid, file_attributes_.gid) != 0) {
    return fail_node(file_node_, "set the owner");
  }
  // After the owner, whose change takes the set-uid bit away; it was made without it.
  if ((status.st_mode & 07777) != file_attributes_.mode &&
      fchmod(file.get(), file_attributes_.mode) != 0) {
    return fail_node(file_node_, "set the mode");
  }
  const timespec times[2] = {file_attributes_.modified, file_attributes_.modified};
  if (futimens(file.get(), times) != 0) return fail_node(file_node_, "set the time");
  return {};
}

Status DirectoryWriter::remove(NodeId node) {
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  const std::string name(tree_.name(node));
  if (tree_.kind(node) != NodeKind::kDirectory) {
    if (unlinkat(parent_fd, name.c_str(), 0) != 0) return fail_node(node, "remove");
    return {};
  }
  return remove_tree_at(parent_fd, name);
}

Status DirectoryWriter::make_opaque(NodeId directory) {
  // Those that are still there may hold what is not.
  for (std::vector<NodeId> left = {directory}; !left.empty();) {
    const NodeId node = left.back();
    left.pop_back();
    TRY_ASSIGN(const Fd place, open_directory(node));
    TRY_ASSIGN(const Fd opened, open_directory_at(place.get(), "."));
    TRY_ASSIGN(const std::vector<std::string> names, list_directory(opened.get()));
    for (const std::string& name : names) {
      const std::optional<NodeId> found = tree_.find(node, name);
      if (!found) {
        TRY(remove_tree_at(opened.get(), name));
      } else if (tree_.kind(*found) == NodeKind::kDirectory) {
        left.push_back(*found);
      }
    }
  }
  return {};
}

// The one device that a user namespace may make: it stands for nothing but this.
Status DirectoryWriter::make_whiteout(NodeId node) {
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  if (mknodat(parent_fd, std::string(tree_.name(node)).c_str(), S_IFCHR, makedev(0, 0)) != 0) {
    return fail_node(node, "make the whiteout");
  }
  return {};
}

Status DirectoryWriter::mark_opaque(NodeId directory) {
  TRY_ASSIGN(const Fd place, open_directory(directory));
  TRY_ASSIGN(const Fd opened, open_directory_at(place.get(), "."));
  if (fsetxattr(opened.get(), "user.overlay.opaque", "y", 1, 0) != 0) {
    return fail_node(directory,
                     "mark it as opaque (allowed are file systems with user attributes)");
  }
  return {};
}

Result<std::string> DirectoryWriter::read_link(NodeId node) {
  TRY_ASSIGN(const int parent_fd, open_parent(node));
  std::string target(PATH_MAX, '\0');
  const ssize_t size =
      readlinkat(parent_fd, std::string(tree_.name(node)).c_str(), target.data(), target.size());
  if (size < 0) return fail_node(node, "read the symbolic link");
  target.resize(static_cast<std::size_t>(size));
  return target;
}

Result<RootfsReport> DirectoryWriter::finish() {
  RootfsReport report;
  const std::vector<bool> there = tree_.reachable();
  for (NodeId node = 0; node < tree_.size(); ++node) {
    if (!there[node]) continue;
    if (node != kRootNode) ++report.entries;
    if (tree_.kind(node) != NodeKind::kDirectory) continue;
    const Time time = times_[tree_.slot(node)];
    const timespec both[2] = {{time.seconds, time.nanoseconds}, {time.seconds, time.nanoseconds}};
    if (node == kRootNode) {
      if (futimens(root_fd_, both) != 0) return fail_node(node, "set the time");
      continue;
    }
    TRY_ASSIGN(const int parent_fd, open_parent(node));
    TRY(set_time(parent_fd, node, {.modified = both[0]}));
  }
  return report;
}

}  // namespace caisson::image
