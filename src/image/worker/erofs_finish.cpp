// ErofsWriter::finish() and its steps.
#include <unistd.h>

#include <algorithm>

#include "image/worker/erofs_writer.h"

namespace caisson::image {
namespace {

using erofs::blocks_up;
using erofs::Inode;
using erofs::kBlock;
using erofs::kEntrySize;
using erofs::kInodeSize;
using erofs::Layout;

std::uint32_t file_type(NodeKind kind) {
  switch (kind) {
    case NodeKind::kDirectory:
      return S_IFDIR;
    case NodeKind::kFile:
      return S_IFREG;
    case NodeKind::kSymlink:
      return S_IFLNK;
    case NodeKind::kPipe:
      return S_IFIFO;
    case NodeKind::kWhiteout:
      return S_IFCHR;
  }
  return 0;
}

struct Entry {
  std::string_view name;
  std::uint32_t slot;
  std::uint8_t type;
};

// The entries of a directory in their order, "." and ".." among them; made when they are asked for,
// since one directory may have millions.
class Entries {
 public:
  // The directory's children are order[first] up to order[last].
  Entries(const LayerTree& tree, const std::vector<std::uint32_t>& places, NodeId directory,
          const std::vector<NodeId>& order, std::size_t first, std::size_t last)
      : tree_(tree), places_(places), directory_(directory), children_(order.data() + first) {
    const NodeId* end = order.data() + last;
    auto below = [&](NodeId node, std::string_view name) { return tree.name(node) < name; };
    dot_ = static_cast<std::size_t>(std::lower_bound(children_, end, ".", below) - children_);
    dots_ = 1 + static_cast<std::size_t>(std::lower_bound(children_, end, "..", below) - children_);
    size_ = last - first + 2;
  }

  std::size_t size() const { return size_; }
  std::string_view name(std::size_t i) const {
    if (i == dot_) return ".";
    return i == dots_ ? ".." : tree_.name(child(i));
  }
  // Directories are where their places are, everything else is where its slot is.
  Entry operator[](std::size_t i) const {
    const NodeId node = i == dot_ ? directory_ : i == dots_ ? tree_.parent(directory_) : child(i);
    const NodeKind kind = tree_.kind(node);
    return {name(i), kind == NodeKind::kDirectory ? places_[node] : tree_.slot(node),
            erofs::entry_type(file_type(kind))};
  }
  // Itself, its mention in the directory above, and the ".." of each directory in it.
  std::uint32_t links() const {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if ((*this)[i].type == erofs::entry_type(S_IFDIR)) ++count;
    }
    return count;
  }

  // Where the block that begins with entry `begin` ends, and its size.
  std::pair<std::size_t, std::uint32_t> fill_block(std::size_t begin) const {
    std::uint32_t used = 0;
    for (; begin < size_; ++begin) {
      const auto more = static_cast<std::uint32_t>(kEntrySize + name(begin).size());
      if (used + more > kBlock) break;
      used += more;
    }
    return {begin, used};
  }
  // The directory's size: whole blocks, the last one up to its end.
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t begin = 0; begin < size_;) {
      const auto [end, used] = fill_block(begin);
      bytes = blocks_up(bytes) + used;
      begin = end;
    }
    return bytes;
  }
  // One block: the entries, then their names.
  std::string encode(std::size_t begin, std::size_t end) const {
    std::string block((end - begin) * kEntrySize, '\0');
    for (std::size_t i = begin; i < end; ++i) {
      const Entry entry = (*this)[i];
      char* at = block.data() + (i - begin) * kEntrySize;
      erofs::put64(at, std::uint64_t{entry.slot} * erofs::kNumbersAnInode);
      erofs::put16(at + 8, static_cast<std::uint32_t>(block.size()));
      at[10] = static_cast<char>(entry.type);
      block += entry.name;
    }
    return block;
  }

 private:
  NodeId child(std::size_t i) const {
    return children_[i - (i > dot_ ? 1 : 0) - (i > dots_ ? 1 : 0)];
  }

  const LayerTree& tree_;
  const std::vector<std::uint32_t>& places_;
  NodeId directory_;
  const NodeId* children_;
  std::size_t dot_ = 0, dots_ = 0, size_ = 0;
};

// Calls `take(directory, its entries)` for every directory that is there, by rising number.
template <typename Take>
Status each_directory(const LayerTree& tree, const std::vector<bool>& there,
                      const std::vector<NodeId>& order, const std::vector<std::uint32_t>& places,
                      Take take) {
  std::size_t first = 0;
  for (NodeId node = 0; node < tree.size(); ++node) {
    if (!there[node] || tree.kind(node) != NodeKind::kDirectory) continue;
    std::size_t last = first;
    while (last < order.size() && tree.parent(order[last]) == node) ++last;
    TRY(take(node, Entries(tree, places, node, order, first, last)));
    first = last;
  }
  return {};
}

}  // namespace

std::vector<NodeId> ErofsWriter::sorted(const std::vector<bool>& there) const {
  const NodeId count = tree_.size();
  // Where each directory's children begin: its parent's are counted one place further.
  std::vector<std::uint32_t> begin(std::size_t{count} + 1, 0);
  for (NodeId node = 1; node < count; ++node) {
    if (there[node]) ++begin[tree_.parent(node) + 1];
  }
  for (std::size_t i = 1; i <= count; ++i) begin[i] += begin[i - 1];
  std::vector<NodeId> order(begin[count]);
  for (NodeId node = 1; node < count; ++node) {
    if (there[node]) order[begin[tree_.parent(node)]++] = node;
  }
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last < order.size() && tree_.parent(order[last]) == tree_.parent(order[first])) ++last;
    std::sort(order.begin() + static_cast<std::ptrdiff_t>(first),
              order.begin() + static_cast<std::ptrdiff_t>(last),
              [&](NodeId a, NodeId b) { return tree_.name(a) < tree_.name(b); });
    first = last;
  }
  return order;
}

// The slots that have names, of those that may have several; each as often as it has names.
Result<std::vector<std::uint32_t>> ErofsWriter::count_links(const std::vector<bool>& there) {
  std::vector<std::uint32_t> linked;
  report_.entries = 0;
  for (NodeId node = 1; node < tree_.size(); ++node) {
    if (!there[node]) continue;
    ++report_.entries;
    if (tree_.linked(node)) linked.push_back(tree_.slot(node));
  }
  std::ranges::sort(linked);
  inodes_ = 1 + report_.entries;
  for (auto first = linked.begin(); first != linked.end();) {
    const auto last = std::upper_bound(first, linked.end(), *first);
    const auto links = static_cast<std::uint32_t>(last - first);
    inodes_ -= links - 1;
    TRY_ASSIGN(Inode inode, read_inode(*first));
    inode.links = links;
    TRY(change_inode(*first, inode));
    first = last;
  }
  return linked;
}

Status ErofsWriter::free_blocks(const std::vector<bool>& there,
                                const std::vector<std::uint32_t>& linked) {
  auto bury = [&](std::uint32_t slot) -> Status {
    TRY_ASSIGN(const Inode inode, read_inode(slot));
    if ((inode.mode & S_IFMT) == S_IFREG) report_.bytes -= inode.size;
    if (inode.layout != Layout::kBlocks || inode.size == 0) return {};
    const std::uint64_t begin = std::uint64_t{inode.block} * kBlock;
    return punch(begin, begin + blocks_up(inode.size));
  };
  std::vector<std::uint32_t> several;  // the last of their names is gone
  for (NodeId node = 1; node < tree_.size(); ++node) {
    if (there[node] || tree_.buried(node) || tree_.kind(node) == NodeKind::kDirectory) continue;
    const std::uint32_t slot = tree_.slot(node);
    if (tree_.linked(node)) {
      if (std::ranges::binary_search(linked, slot)) continue;
      several.push_back(slot);
    } else {
      TRY(bury(slot));
    }
    tree_.set_buried(node);
  }
  std::ranges::sort(several);
  const auto repeated = std::ranges::unique(several);
  several.erase(repeated.begin(), repeated.end());
  for (const std::uint32_t slot : several) TRY(bury(slot));
  return {};
}

// Every directory first gets its place: behind its inode where it is small, and the inode moves
// there; else the inode stays where it is and the entries get blocks of their own. Then they are
// written, first the small ones and then the blocks.
Status ErofsWriter::write_directories(const std::vector<bool>& there,
                                      std::uint32_t metadata_block) {
  const std::vector<NodeId> order = sorted(there);
  std::vector<std::uint32_t> places(tree_.size(), 0);
  std::uint64_t end = metadata_.size(), blocks = 0;
  TRY(each_directory(tree_, there, order, places,
                     [&](NodeId node, const Entries& entries) -> Status {
                       const std::uint64_t bytes = entries.bytes();
                       if (bytes > erofs::kInline || node == kRootNode) {
                         places[node] = tree_.slot(node);
                         blocks += blocks_up(bytes) / kBlock;
                         return {};
                       }
                       Inode inode;
                       TRY_ASSIGN(inode.opaque, is_opaque(node));
                       const std::uint64_t behind = inode.head() - kInodeSize + bytes;
                       const std::uint64_t offset = erofs::place_inode(end, behind);
                       places[node] = static_cast<std::uint32_t>(offset / kInodeSize);
                       end = offset + kInodeSize + behind;
                       return {};
                     }));
  const std::uint64_t first_block = blocks_up(end) / kBlock;
  if (metadata_block + first_block + blocks > ~std::uint32_t{0} ||
      end / kInodeSize > ~std::uint32_t{0}) {
    return fail(Error::invalid("the image is larger than its format can hold (16 TiB)"));
  }
  auto write = [&](bool small, NodeId node, const Entries& entries) -> Status {
    if (small != (places[node] != tree_.slot(node))) return {};
    TRY_ASSIGN(Inode inode, read_inode(tree_.slot(node)));
    inode.size = entries.bytes();
    inode.links = entries.links();
    if (small) {
      inode.layout = Layout::kInline;
      inode.block = 0;
      TRY_ASSIGN(const std::uint32_t slot, append_inode(inode, entries.encode(0, entries.size())));
      VERIFY(slot == places[node]);
      return {};
    }
    inode.layout = Layout::kBlocks;
    inode.block = metadata_block + static_cast<std::uint32_t>(metadata_.size() / kBlock);
    for (std::size_t begin = 0; begin < entries.size();) {
      const std::size_t next = entries.fill_block(begin).first;
      TRY(metadata_.append(entries.encode(begin, next)));
      TRY(metadata_.pad_to(blocks_up(metadata_.size())));
      begin = next;
    }
    return change_inode(tree_.slot(node), inode);
  };
  for (const bool small : {true, false}) {
    TRY(each_directory(tree_, there, order, places, [&](NodeId node, const Entries& entries) {
      return write(small, node, entries);
    }));
    if (small) TRY(metadata_.pad_to(first_block * kBlock));
  }
  return {};
}

Result<RootfsReport> ErofsWriter::finish() {
  const std::uint64_t own_end = metadata_.size();
  const std::vector<bool> there = tree_.reachable();
  TRY_ASSIGN(const std::vector<std::uint32_t> linked, count_links(there));
  TRY(write_directories(there, static_cast<std::uint32_t>(end_ / kBlock)));
  TRY(blocks_.flush());
  TRY(metadata_.flush());
  const std::uint64_t begin = end_;
  TRY(copy_bytes(metadata_.fd(), blocks_.fd(), begin, metadata_.size()));
  TRY(take_blocks(metadata_.size()));
  if (ftruncate(blocks_.fd(), static_cast<off_t>(end_)) != 0) {
    return fail_errno("set the image's size");
  }
  char block[kBlock];
  erofs::encode({.root_number = tree_.slot(kRootNode) * erofs::kNumbersAnInode,
                 .inodes = inodes_,
                 .blocks = static_cast<std::uint32_t>(end_ / kBlock),
                 .metadata_block = static_cast<std::uint32_t>(begin / kBlock)},
                block);
  if (pwrite(blocks_.fd(), block, sizeof block, 0) != sizeof block) {
    return fail_errno("write the superblock");
  }
  // Nothing leads to these any more.
  TRY(punch(copy_begin_, copy_end_));
  TRY(free_blocks(there, linked));
  copy_begin_ = begin;
  copy_end_ = end_;
  // The directories are made anew each time, in the same place.
  TRY(metadata_.truncate(own_end));
  report_.size = end_;
  return report_;
}

}  // namespace caisson::image
