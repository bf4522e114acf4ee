// An empty ext4 file system of exact capacity, computed and written by us.
//
// A quota layer is one of these on a loop device. Written here rather than by mkfs: a sandbox then
// starts no program of the host and needs no cache of templates, and what a spec asks for comes out
// to the byte and the file, with the file system's own needs on top. It is sparse whatever its
// size: inode tables are holes (marked as zeroed), and the bitmaps of groups that are wholly free
// are left to the kernel (uninit_bg). No journal: nobody ever mounts one twice.
//
// The first and the last MiB of the device never hold a program's bytes: whoever looks for
// signatures on block devices (udev's blkid) sees only what we and the kernel wrote there.
//
// plan_ext4() is pure; write_ext4() only writes. Blocks are 4096 bytes.
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"

namespace caisson::wall {

inline constexpr std::uint64_t kExt4Block = 4096;
// At most so much can be planned for: block numbers have 32 bits, and the tables need room as well.
inline constexpr std::uint64_t kMostExt4Bytes = (15ull << 40) + (1 << 20);
inline constexpr std::uint64_t kMostExt4Inodes = 1'000'000'000;

struct Ext4Layout {
  std::uint32_t groups = 0, blocks_per_group = 0, inodes_per_group = 0;
  std::uint32_t descriptor_blocks = 0, table_blocks = 0;  // the latter per group
  std::uint64_t first_free = 0;                           // blocks below are the file system's own
  std::uint64_t end_free = 0;                             // and so are those from here on
  std::uint64_t blocks = 0;                               // of the file system
  std::uint64_t inodes = 0;                               // free ones

  // Group descriptors follow the super block, then all block bitmaps, inode bitmaps and inode
  // tables, then the root directory's only block.
  std::uint64_t block_bitmap(std::uint64_t group) const { return 1 + descriptor_blocks + group; }
  std::uint64_t inode_bitmap(std::uint64_t group) const { return block_bitmap(groups) + group; }
  std::uint64_t inode_table(std::uint64_t group) const {
    return inode_bitmap(groups) + group * table_blocks;
  }
  std::uint64_t root_block() const { return inode_table(groups); }
  // What the file of the device must be long.
  std::uint64_t image_bytes() const;
};

// A file system in which exactly `inodes` files can be made and ordinary users can fill at least
// `bytes`, less than a block more. Neither is 0 or beyond the maxima above.
Ext4Layout plan_ext4(std::uint64_t bytes, std::uint64_t inodes);

struct Ext4Identity {
  std::uint32_t root_uid = 0, root_gid = 0;  // owner of the root directory (mode 0755)
  std::array<std::uint8_t, 16> uuid = {}, hash_seed = {};
};

// Writes it to a file or device of at least image_bytes() that reads as zeros.
Status write_ext4(int fd, const Ext4Layout& layout, const Ext4Identity& identity);

}  // namespace caisson::wall
