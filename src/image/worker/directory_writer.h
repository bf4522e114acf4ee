// The root filesystem as a directory of this host. The kernel resolves every path beneath the
// root's descriptor and through no symbolic link: the tree has resolved those already, and where
// the two disagree the kernel's word ends the work. The worker's own root is that directory too.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "image/ids.h"
#include "image/worker/rootfs_writer.h"

namespace caisson::image {

class DirectoryWriter final : public RootfsWriter {
 public:
  // Borrows both; `root_fd` is an empty directory. With IdLayout::kSingle no owner is set.
  DirectoryWriter(LayerTree& tree, int root_fd, IdLayout layout);

  Status make_directory(NodeId node, const EntryAttributes& attributes, bool existing) override;
  Status make_symlink(NodeId node, std::string_view target,
                      const EntryAttributes& attributes) override;
  Status make_pipe(NodeId node, const EntryAttributes& attributes) override;
  Status link(NodeId node, NodeId target) override;
  Status begin_file(NodeId node, std::uint64_t size, const EntryAttributes& attributes) override;
  Status write_file(std::string_view bytes, std::uint64_t offset) override;
  Status end_file() override;
  Status remove(NodeId node) override;
  Status make_opaque(NodeId directory) override;
  Status make_whiteout(NodeId node) override;
  Status mark_opaque(NodeId directory) override;
  Result<std::string> read_link(NodeId node) override;
  Result<RootfsReport> finish() override;

 private:
  struct Time {
    std::int64_t seconds;
    std::uint32_t nanoseconds;
  };
  // O_PATH.
  Result<Fd> open_directory(NodeId directory) const;
  // The descriptor of the node's directory, valid until the next call.
  Result<int> open_parent(NodeId node);
  // Owner and permissions, as far as they are not what they should be: most are when they are made,
  // and every change costs the file system a note in its journal.
  Status set_owner_and_mode(int parent_fd, NodeId node, const EntryAttributes& attributes);
  bool owned(const struct stat& status, const EntryAttributes& attributes) const;
  Status set_time(int parent_fd, NodeId node, const EntryAttributes& attributes);
  std::unexpected<Error> fail_node(NodeId node, std::string_view what) const;

  LayerTree& tree_;
  int root_fd_;
  IdLayout layout_;
  NodeId parent_node_ = kNoNode;
  Fd parent_;
  // The file under way.
  NodeId file_node_ = kNoNode;
  Fd file_;
  // Its size, the end of what has been written of it, and up to where the disk has begun.
  std::uint64_t file_size_ = 0, file_end_ = 0, file_begun_ = 0;
  EntryAttributes file_attributes_;
  // Directories' times, by their slot: set at the end, since every entry made in one changes them.
  std::vector<Time> times_;
};

}  // namespace caisson::image
