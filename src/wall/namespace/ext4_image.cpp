#include "wall/namespace/ext4_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace caisson::wall {
namespace {

constexpr std::uint64_t kBitsPerBlock = kExt4Block * 8;  // of a bitmap: the most a group can have
constexpr std::uint64_t kInodeSize = 256, kDescriptorSize = 32;
constexpr std::uint64_t kInodesPerBlock = kExt4Block / kInodeSize;
constexpr std::uint64_t kReservedInodes = 10;  // numbers 1 to 10; 2 is the root directory
constexpr std::uint64_t kRootInode = 2;
// No program's bytes in so many blocks at either end.
constexpr std::uint64_t kGuardBlocks = 256;

// What the kernel keeps back for itself, so that it can always split an extent
// (ext4_calculate_resv_clusters).
constexpr std::uint64_t kReserveDivisor = 50, kMostReserve = 4096;

constexpr std::uint16_t kInodeUninit = 1, kBlockUninit = 2, kTableZeroed = 4;

// Flags of the root directory. The second is inherited by everything that is made in it, and as
// there is no journal it means one thing alone: the kernel keeps such files in pages of one block.
// With larger ones a write fails as a whole where less is left than its size, up to 2 MiB, and then
// a full layer would not look full.
constexpr std::uint32_t kHasExtents = 0x80000, kJournalData = 0x4000;

constexpr std::uint32_t kCompatible = 0x8             // extended attributes
                                      | 0x20          // indexed directories
                                      | 0x200;        // sparse_super2: no copies of the super block
constexpr std::uint32_t kIncompatible = 0x2           // directory entries tell the type
                                        | 0x40        // extents
                                        | 0x200;      // flex_bg: bitmaps and tables lie anywhere
constexpr std::uint32_t kReadOnlyCompatible = 0x2     // large files
                                              | 0x8   // huge files
                                              | 0x10  // checksums of descriptors, uninit_bg
                                              | 0x20  // many subdirectories
                                              | 0x40;  // inodes with more than 128 bytes

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return (value + by - 1) / by;
}
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return divide_up(value, to) * to;
}
constexpr std::uint64_t reserve_of(std::uint64_t blocks) {
  return std::min(blocks / kReserveDivisor, kMostReserve);
}

// A little-endian structure that is filled field by field.
class Record {
 public:
  explicit Record(std::size_t size) : bytes_(size, '\0') {}
  Record& put(std::size_t offset, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      bytes_[offset + i] = static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i)));
    return *this;
  }
  Record& put16(std::size_t offset, std::uint64_t value) { return put(offset, value, 2); }
  Record& put32(std::size_t offset, std::uint64_t value) { return put(offset, value, 4); }
  Record& copy(std::size_t offset, const void* from, std::size_t size) {
    std::memcpy(bytes_.data() + offset, from, size);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

constexpr std::array<std::uint16_t, 256> make_crc16_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < 256; ++i) {
    unsigned value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xa001u : 0u);
    table[i] = static_cast<std::uint16_t>(value);
  }
  return table;
}

std::uint16_t crc16(std::uint16_t crc, const void* data, std::size_t size) {
  static constexpr auto kTable = make_crc16_table();
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  for (std::size_t i = 0; i < size; ++i)
    crc = static_cast<std::uint16_t>((crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xff]);
  return crc;
}

Status write_at(int fd, const std::string& bytes, std::uint64_t block) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(block * kExt4Block + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return fail_errno("write block " + std::to_string(block) + " of the layer");
    done += static_cast<std::size_t>(wrote);
  }
  return {};
}

void set_bits(std::string& bitmap, std::uint64_t from, std::uint64_t to) {
  for (; from < to && from % 8 != 0; ++from)
    bitmap[from / 8] = static_cast<char>(bitmap[from / 8] | (1 << (from % 8)));
  for (; from + 8 <= to; from += 8) bitmap[from / 8] = '\xff';
  for (; from < to; ++from)
    bitmap[from / 8] = static_cast<char>(bitmap[from / 8] | (1 << (from % 8)));
}

struct Group {
  std::uint64_t first = 0, end = 0;            // its blocks
  std::uint64_t free_first = 0, free_end = 0;  // those of them that are free
  std::uint64_t free_inodes = 0;
  bool bitmap_is_written = false;  // else the kernel takes every block for free
};

Group group_of(const Ext4Layout& layout, std::uint64_t number) {
  Group group;
  group.first = number * layout.blocks_per_group;
  group.end = std::min(group.first + layout.blocks_per_group, layout.blocks);
  group.free_first = std::clamp(layout.first_free, group.first, group.end);
  group.free_end = std::clamp(layout.end_free, group.free_first, group.end);
  const bool whole = group.free_first == group.first && group.free_end == group.end;
  group.bitmap_is_written = !whole || number + 1 == layout.groups;
  // Inodes of a group beyond its count are free in the bitmap, but nothing takes one: the kernel
  // looks at the count first.
  const std::uint64_t before = number * layout.inodes_per_group;
  const std::uint64_t usable = kReservedInodes + layout.inodes;
  const std::uint64_t from = std::max(before, kReservedInodes);
  const std::uint64_t to = std::min(before + layout.inodes_per_group, usable);
  group.free_inodes = to > from ? to - from : 0;
  return group;
}

std::string descriptor(const Ext4Layout& layout, const Ext4Identity& identity,
                       std::uint32_t number) {
  const Group group = group_of(layout, number);
  const std::uint64_t taken = number == 0 ? kReservedInodes : 0;
  std::uint16_t flags = kTableZeroed;
  if (taken == 0) flags |= kInodeUninit;
  if (!group.bitmap_is_written) flags |= kBlockUninit;
  Record record(kDescriptorSize);
  record.put32(0x0, layout.block_bitmap(number))
      .put32(0x4, layout.inode_bitmap(number))
      .put32(0x8, layout.inode_table(number))
      .put16(0xc, group.free_end - group.free_first)
      .put16(0xe, group.free_inodes)
      .put16(0x10, number == 0 ? 1 : 0)  // directories
      .put16(0x12, flags)
      .put16(0x1c, layout.inodes_per_group - taken);  // never used inodes at its end
  std::uint16_t crc = crc16(0xffff, identity.uuid.data(), identity.uuid.size());
  crc = crc16(crc, &number, sizeof number);
  crc = crc16(crc, record.bytes().data(), 0x1e);
  return record.put16(0x1e, crc).bytes();
}

std::string super_block(const Ext4Layout& layout, const Ext4Identity& identity) {
  constexpr std::size_t kOffset = 1024;
  Record block(kExt4Block);
  const auto at = [](std::size_t field) { return kOffset + field; };
  block.put32(at(0x0), std::uint64_t{layout.groups} * layout.inodes_per_group)
      .put32(at(0x4), layout.blocks)
      .put32(at(0xc), layout.end_free - layout.first_free)
      .put32(at(0x10), layout.inodes)
      .put32(at(0x18), 2)  // blocks of 1024 << 2 bytes
      .put32(at(0x1c), 2)  // clusters as well
      .put32(at(0x20), layout.blocks_per_group)
      .put32(at(0x24), layout.blocks_per_group)
      .put32(at(0x28), layout.inodes_per_group)
      .put16(at(0x36), 0xffff)  // no check after so many mounts
      .put16(at(0x38), 0xef53)
      .put16(at(0x3a), 1)  // clean
      .put16(at(0x3c), 2)  // on an error: read-only
      .put32(at(0x4c), 1)  // revision with features
      .put32(at(0x54), kReservedInodes + 1)
      .put16(at(0x58), kInodeSize)
      .put32(at(0x5c), kCompatible)
      .put32(at(0x60), kIncompatible)
      .put32(at(0x64), kReadOnlyCompatible)
      .copy(at(0x68), identity.uuid.data(), identity.uuid.size())
      .copy(at(0xec), identity.hash_seed.data(), identity.hash_seed.size())
      .put(at(0xfc), 1, 1)    // directory hash: half MD4
      .put32(at(0x100), 0xc)  // default options: user attributes, ACLs
      .put16(at(0x15c), 32)   // inodes have and want these extra bytes
      .put16(at(0x15e), 32)
      .put32(at(0x160), 2)    // unsigned directory hash
      .put(at(0x174), 4, 1);  // 16 groups share their allocation statistics
  return block.bytes();
}

std::string first_table_block(const Ext4Layout& layout, const Ext4Identity& identity) {
  constexpr std::size_t kAt = (kRootInode - 1) * kInodeSize, kExtents = kAt + 0x28;
  Record block(kExt4Block);
  block.put16(kAt + 0x0, S_IFDIR | 0755)
      .put16(kAt + 0x2, identity.root_uid & 0xffff)
      .put32(kAt + 0x4, kExt4Block)  // size
      .put16(kAt + 0x18, identity.root_gid & 0xffff)
      .put16(kAt + 0x1a, 2)                 // links
      .put32(kAt + 0x1c, kExt4Block / 512)  // sectors
      .put32(kAt + 0x20, kHasExtents | kJournalData)
      .put16(kExtents + 0x0, 0xf30a)
      .put16(kExtents + 0x2, 1)   // one extent
      .put16(kExtents + 0x4, 4)   // of at most four
      .put16(kExtents + 0x10, 1)  // of one block
      .put32(kExtents + 0x14, layout.root_block())
      .put16(kAt + 0x78, identity.root_uid >> 16)
      .put16(kAt + 0x7a, identity.root_gid >> 16)
      .put16(kAt + 0x80, 32);  // extra bytes in use
  return block.bytes();
}

std::string root_directory() {
  constexpr std::uint64_t kDirectory = 2, kShort = 12;
  Record block(kExt4Block);
  block.put32(0, kRootInode).put16(4, kShort).put(6, 1, 1).put(7, kDirectory, 1).put(8, '.', 1);
  block.put32(kShort, kRootInode)
      .put16(kShort + 4, kExt4Block - kShort)
      .put(kShort + 6, 2, 1)
      .put(kShort + 7, kDirectory, 1)
      .put16(kShort + 8, 0x2e2e);  // ".."
  return block.bytes();
}

}  // namespace

std::uint64_t Ext4Layout::image_bytes() const {
  return (blocks + kGuardBlocks) * kExt4Block;
}

Ext4Layout plan_ext4(std::uint64_t bytes, std::uint64_t inodes) {
  VERIFY(bytes > 0 && bytes <= kMostExt4Bytes && inodes > 0 && inodes <= kMostExt4Inodes);
  const std::uint64_t data = divide_up(bytes, kExt4Block);
  const std::uint64_t numbers = kReservedInodes + inodes;
  Ext4Layout layout;
  layout.inodes = inodes;
  // As many groups as the inodes need; more where the blocks need them, which then grow a little
  // with the groups' own tables.
  std::uint64_t groups = divide_up(numbers, kBitsPerBlock), by_size = 0, wanted = 0;
  for (;; groups = by_size) {
    layout.groups = static_cast<std::uint32_t>(groups);
    layout.inodes_per_group =
        static_cast<std::uint32_t>(round_up(divide_up(numbers, groups), kInodesPerBlock));
    layout.table_blocks = static_cast<std::uint32_t>(layout.inodes_per_group / kInodesPerBlock);
    layout.descriptor_blocks =
        static_cast<std::uint32_t>(divide_up(groups * kDescriptorSize, kExt4Block));
    layout.first_free = std::max(layout.root_block() + 1, kGuardBlocks);
    wanted = layout.first_free + data;
    layout.blocks = wanted;
    while (layout.blocks < wanted + reserve_of(layout.blocks))
      layout.blocks = wanted + reserve_of(layout.blocks);
    by_size = divide_up(layout.blocks, kBitsPerBlock);
    if (by_size <= groups) break;
  }
  layout.blocks_per_group = static_cast<std::uint32_t>(kBitsPerBlock);
  if (by_size < groups) {
    // Many inodes in little space: smaller groups, whose number is then exact.
    std::uint64_t size = round_up(divide_up(layout.blocks, groups), 8);
    while (groups * size < wanted + reserve_of(groups * size)) size += 8;
    layout.blocks_per_group = static_cast<std::uint32_t>(size);
    layout.blocks = groups * size;
  }
  layout.end_free = wanted + reserve_of(layout.blocks);
  VERIFY(layout.blocks <= UINT32_MAX && layout.end_free <= layout.blocks);
  return layout;
}

Status write_ext4(int fd, const Ext4Layout& layout, const Ext4Identity& identity) {
  std::string head = super_block(layout, identity);
  head.reserve((1 + layout.descriptor_blocks) * kExt4Block);
  for (std::uint32_t number = 0; number < layout.groups; ++number)
    head += descriptor(layout, identity, number);
  head.resize((1 + layout.descriptor_blocks) * kExt4Block, '\0');
  TRY(write_at(fd, head, 0));
  for (std::uint32_t number = 0; number < layout.groups; ++number) {
    const Group group = group_of(layout, number);
    if (!group.bitmap_is_written) continue;
    std::string bitmap(kExt4Block, '\0');
    set_bits(bitmap, 0, group.free_first - group.first);
    set_bits(bitmap, group.free_end - group.first, kBitsPerBlock);
    TRY(write_at(fd, bitmap, layout.block_bitmap(number)));
  }
  std::string inode_bitmap(kExt4Block, '\0');
  set_bits(inode_bitmap, 0, kReservedInodes);
  set_bits(inode_bitmap, layout.inodes_per_group, kBitsPerBlock);
  TRY(write_at(fd, inode_bitmap, layout.inode_bitmap(0)));
  TRY(write_at(fd, first_table_block(layout, identity), layout.inode_table(0)));
  return write_at(fd, root_directory(), layout.root_block());
}

}  // namespace caisson::wall
