#include "image/worker/erofs_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"

namespace caisson::image {
namespace {

using erofs::blocks_up;
using erofs::Inode;
using erofs::kBlock;
using erofs::kInodeSize;
using erofs::kRootSlot;
using erofs::Layout;

Inode inode_of(std::uint32_t type, const EntryAttributes& attributes) {
  Inode inode;
  inode.mode = type | attributes.mode;
  inode.uid = attributes.uid;
  inode.gid = attributes.gid;
  inode.modified = attributes.modified;
  return inode;
}

}  // namespace

ErofsWriter::ErofsWriter(LayerTree& tree, int image_fd, int metadata_fd, RootfsKind kind)
    : tree_(tree), kind_(kind), blocks_(image_fd), metadata_(metadata_fd) {}

Status ErofsWriter::begin() {
  TRY(metadata_.pad_to(kRootSlot * kInodeSize));
  TRY_ASSIGN(const std::uint32_t slot, append_directory(inode_of(S_IFDIR, {.mode = 0755})));
  VERIFY(slot == kRootSlot);
  tree_.set_slot(kRootNode, slot);
  return {};
}

Result<std::uint32_t> ErofsWriter::append_inode(Inode inode, std::string_view contents) {
  const std::string_view attribute = inode.opaque ? erofs::kOpaqueAttribute : std::string_view();
  const std::uint64_t place =
      erofs::place_inode(metadata_.size(), attribute.size() + contents.size());
  if (place / kInodeSize > ~std::uint32_t{0}) {
    return fail(Error::invalid("the image's metadata is larger than its format can hold"));
  }
  const auto slot = static_cast<std::uint32_t>(place / kInodeSize);
  inode.number = slot;
  if (!contents.empty()) inode.layout = Layout::kInline;
  char bytes[kInodeSize];
  inode.encode(bytes);
  TRY(metadata_.pad_to(place));
  TRY(metadata_.append({bytes, sizeof bytes}));
  TRY(metadata_.append(attribute));
  TRY(metadata_.append(contents));
  return slot;
}

Result<std::uint32_t> ErofsWriter::append_directory(const Inode& inode) {
  if (kind_ == RootfsKind::kWhole) return append_inode(inode, {});
  Inode with_room = inode;
  with_room.opaque = true;
  TRY_ASSIGN(const std::uint32_t slot, append_inode(with_room, {}));
  with_room.number = slot;
  with_room.opaque = false;
  TRY(change_inode(slot, with_room));
  return slot;
}

Status ErofsWriter::change_inode(std::uint32_t slot, const Inode& inode) {
  char bytes[kInodeSize];
  inode.encode(bytes);
  return metadata_.change(std::uint64_t{slot} * kInodeSize, {bytes, sizeof bytes});
}

Result<Inode> ErofsWriter::read_inode(std::uint32_t slot) {
  char bytes[kInodeSize];
  TRY(metadata_.read(std::uint64_t{slot} * kInodeSize, bytes, sizeof bytes));
  return Inode::decode(bytes);
}

Result<bool> ErofsWriter::is_opaque(NodeId directory) {
  if (kind_ == RootfsKind::kWhole) return false;
  TRY_ASSIGN(const Inode inode, read_inode(tree_.slot(directory)));
  return inode.opaque;
}

Result<std::uint32_t> ErofsWriter::take_blocks(std::uint64_t size) {
  const std::uint64_t first = end_ / kBlock, count = blocks_up(size) / kBlock;
  if (count > ~std::uint32_t{0} - 1 - first) {
    return fail(Error::invalid("the image is larger than its format can hold (16 TiB)"));
  }
  end_ += count * kBlock;
  return static_cast<std::uint32_t>(first);
}

Status ErofsWriter::make_directory(NodeId node, const EntryAttributes& attributes, bool existing) {
  Inode inode = inode_of(S_IFDIR, attributes);
  if (existing) {
    inode.number = tree_.slot(node);
    TRY_ASSIGN(inode.opaque, is_opaque(node));
    return change_inode(tree_.slot(node), inode);
  }
  TRY_ASSIGN(const std::uint32_t slot, append_directory(inode));
  tree_.set_slot(node, slot);
  return {};
}

Status ErofsWriter::make_symlink(NodeId node, std::string_view target,
                                 const EntryAttributes& attributes) {
  EntryAttributes all = attributes;
  all.mode = 0777;
  Inode inode = inode_of(S_IFLNK, all);
  inode.size = target.size();
  std::string_view contents = target;
  if (kInodeSize + target.size() > kBlock) {
    TRY_ASSIGN(inode.block, take_blocks(target.size()));
    TRY(blocks_.write(std::uint64_t{inode.block} * kBlock, target));
    contents = {};
  }
  TRY_ASSIGN(const std::uint32_t slot, append_inode(inode, contents));
  tree_.set_slot(node, slot);
  return {};
}

Status ErofsWriter::make_pipe(NodeId node, const EntryAttributes& attributes) {
  EntryAttributes all = attributes;
  all.mode &= 0777;
  TRY_ASSIGN(const std::uint32_t slot, append_inode(inode_of(S_IFIFO, all), {}));
  tree_.set_slot(node, slot);
  return {};
}

// Both nodes have the one slot; finish() counts.
Status ErofsWriter::link(NodeId, NodeId) {
  return {};
}

Status ErofsWriter::begin_file(NodeId node, std::uint64_t size, const EntryAttributes& attributes) {
  file_node_ = node;
  file_inode_ = inode_of(S_IFREG, attributes);
  file_inode_.size = size;
  report_.bytes += size;
  file_inline_ = size <= erofs::kInline;
  file_contents_.assign(file_inline_ ? size : 0, '\0');
  if (file_inline_) return {};
  TRY_ASSIGN(file_inode_.block, take_blocks(size));
  file_begin_ = std::uint64_t{file_inode_.block} * kBlock;
  return {};
}

Status ErofsWriter::write_file(std::string_view bytes, std::uint64_t offset) {
  VERIFY(offset + bytes.size() <= file_inode_.size);
  if (!file_inline_) return blocks_.write(file_begin_ + offset, bytes);
  std::copy(bytes.begin(), bytes.end(),
            file_contents_.begin() + static_cast<std::ptrdiff_t>(offset));
  return {};
}

Status ErofsWriter::end_file() {
  TRY_ASSIGN(const std::uint32_t slot, append_inode(file_inode_, file_contents_));
  tree_.set_slot(file_node_, slot);
  return {};
}

Status ErofsWriter::remove(NodeId) {
  return {};
}

Status ErofsWriter::make_opaque(NodeId) {
  return {};
}

Status ErofsWriter::make_whiteout(NodeId node) {
  TRY_ASSIGN(const std::uint32_t slot, append_inode(inode_of(S_IFCHR, {}), {}));
  tree_.set_slot(node, slot);
  return {};
}

// The attribute is behind the inode already (append_directory()).
Status ErofsWriter::mark_opaque(NodeId directory) {
  VERIFY(kind_ == RootfsKind::kDelta);
  TRY_ASSIGN(Inode inode, read_inode(tree_.slot(directory)));
  inode.opaque = true;
  return change_inode(tree_.slot(directory), inode);
}

Result<std::string> ErofsWriter::read_link(NodeId node) {
  const std::uint32_t slot = tree_.slot(node);
  TRY_ASSIGN(const Inode inode, read_inode(slot));
  std::string target(inode.size, '\0');
  if (inode.layout == Layout::kInline) {
    TRY(metadata_.read((std::uint64_t{slot} + 1) * kInodeSize, target.data(), target.size()));
    return target;
  }
  TRY(blocks_.flush());
  const ssize_t got = TEMP_FAILURE_RETRY(
      pread(blocks_.fd(), target.data(), target.size(), static_cast<off_t>(inode.block) * kBlock));
  if (got != static_cast<ssize_t>(target.size())) return fail_errno("read a symbolic link");
  return target;
}

Status ErofsWriter::punch(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return {};
  if (fallocate(blocks_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin)) == 0) {
    return {};
  }
  // A file system that cannot: the image is only larger than it need be.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return fail_errno("free blocks of the image");
}

}  // namespace caisson::image
