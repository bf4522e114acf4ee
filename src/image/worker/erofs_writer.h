// The root filesystem as one erofs file. Blocks of files go straight into the image; inodes go into
// a metadata file, where each keeps its place (and so its number) for good: a node's slot is that
// place in units of 64 bytes. finish() adds what depends on the whole, directories and link counts,
// copies the metadata behind the blocks, gives back the blocks of files that are gone, and writes
// the superblock. Until then nothing of what the last finish() left is touched.
#pragma once

#include <string>
#include <vector>

#include "image/erofs_format.h"
#include "image/worker/erofs_streams.h"
#include "image/worker/rootfs_writer.h"

namespace caisson::image {

class ErofsWriter final : public RootfsWriter {
 public:
  // Borrows all three; both files are empty and open for reading and writing. Of a delta every
  // directory has room for the attribute that makes it opaque.
  ErofsWriter(LayerTree& tree, int image_fd, int metadata_fd, RootfsKind kind);
  // Before anything else: makes the root.
  Status begin();

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
  // Appends inode and contents, which follow it (and its attribute). Its slot.
  Result<std::uint32_t> append_inode(erofs::Inode inode, std::string_view contents);
  Status change_inode(std::uint32_t slot, const erofs::Inode& inode);
  Result<erofs::Inode> read_inode(std::uint32_t slot);
  Result<bool> is_opaque(NodeId directory);
  // Room for `size` bytes in whole blocks. The first.
  Result<std::uint32_t> take_blocks(std::uint64_t size);

  // The steps of finish(). `there`: which nodes can be reached.
  std::vector<NodeId> sorted(const std::vector<bool>& there) const;  // by directory and name
  Result<std::vector<std::uint32_t>> count_links(const std::vector<bool>& there);
  // Of files that are gone; `linked` is what count_links() gave.
  Status free_blocks(const std::vector<bool>& there, const std::vector<std::uint32_t>& linked);
  Status write_directories(const std::vector<bool>& there, std::uint32_t metadata_block);
  Status punch(std::uint64_t begin, std::uint64_t end);

  // Appends a directory without entries, which come with finish(). Its slot.
  Result<std::uint32_t> append_directory(const erofs::Inode& inode);

  LayerTree& tree_;
  RootfsKind kind_;
  BlockStream blocks_;
  MetadataFile metadata_;
  std::uint64_t end_ = erofs::kBlock;  // of the image: the next free byte, a block's first
  // The copy of the metadata that the superblock names.
  std::uint64_t copy_begin_ = 0, copy_end_ = 0;
  RootfsReport report_;  // bytes: of all files that have not been given back
  std::uint64_t inodes_ = 0;
  // The file under way: where its blocks begin, or its contents where they are small.
  std::uint64_t file_begin_ = 0;
  bool file_inline_ = false;
  erofs::Inode file_inode_;
  NodeId file_node_ = kNoNode;
  std::string file_contents_;
};

}  // namespace caisson::image
