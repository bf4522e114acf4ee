// The part of the erofs on-disk format that we write: no compression, no other devices, and of
// extended attributes one alone, which makes a directory of a delta opaque (RootfsKind). A block
// has 4 KiB; everything is little-endian.
//
//   block 0        the superblock, at byte 1024; its checksum covers the rest of the block
//   anywhere       whole blocks of files, each file's in one run
//   metadata       from a block on: an inode of number NID lies at byte 32 * NID of it; an opaque
//                  directory's attribute follows its inode; contents that are small follow both and
//                  end in the same block
//
// A directory is a sequence of blocks, each an array of entries and then their names; the names,
// "." and ".." among them, rise from the first to the last as bytes. The first entry's name offset
// tells how many entries the block has; a name ends where the next one begins, the last one at a
// zero byte or the end.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

namespace caisson::image::erofs {

inline constexpr std::uint32_t kBlock = 4096;
inline constexpr std::uint32_t kSuperOffset = 1024;
inline constexpr std::uint32_t kMagic = 0xE0F5E1E2;
inline constexpr std::uint32_t kHasChecksum = 1, kHasTimes = 2;  // compatible features
// We place inodes at multiples of their size, so every other number; none crosses a block.
inline constexpr std::uint32_t kInodeSize = 64;
inline constexpr std::uint32_t kNumbersAnInode = 2;
inline constexpr std::uint32_t kEntrySize = 12;
// The first slot stays empty, so that no inode has number 0; then comes the root, whose number has
// 16 bits in the superblock.
inline constexpr std::uint32_t kRootSlot = 1;
// Contents up to this size follow the inode.
inline constexpr std::uint32_t kInline = 1024;

inline std::uint64_t blocks_up(std::uint64_t bytes) {
  return (bytes + kBlock - 1) / kBlock * kBlock;
}
// Where, from byte `from` of the metadata on, an inode with `contents` bytes behind it can lie.
inline std::uint64_t place_inode(std::uint64_t from, std::uint64_t contents) {
  const std::uint64_t place = (from + kInodeSize - 1) / kInodeSize * kInodeSize;
  return place % kBlock + kInodeSize + contents > kBlock ? blocks_up(place) : place;
}

enum class Layout : std::uint8_t { kBlocks = 0, kInline = 2 };

// What follows the inode of an opaque directory: the header of the inode's own attributes, which
// names no shared ones, and `user.overlay.opaque` = `y`. User attributes have index 1, whose prefix
// is not part of the name; an attribute ends at a multiple of 4.
inline constexpr std::string_view kOpaqueAttribute(
    "\0\0\0\0\0\0\0\0\0\0\0\0"
    "\x0e\x01\x01\0overlay.opaquey\0",
    32);
// How an inode says so: the header counts as one, then units of 4 bytes.
inline constexpr std::uint32_t kOpaqueAttributeCount = 1 + (kOpaqueAttribute.size() - 12) / 4;

inline void put16(char* at, std::uint32_t value) {
  at[0] = static_cast<char>(value);
  at[1] = static_cast<char>(value >> 8);
}
inline void put32(char* at, std::uint32_t value) {
  put16(at, value);
  put16(at + 2, value >> 16);
}
inline void put64(char* at, std::uint64_t value) {
  put32(at, static_cast<std::uint32_t>(value));
  put32(at + 4, static_cast<std::uint32_t>(value >> 32));
}
inline std::uint32_t get16(const char* at) {
  return static_cast<unsigned char>(at[0]) |
         static_cast<std::uint32_t>(static_cast<unsigned char>(at[1])) << 8;
}
inline std::uint32_t get32(const char* at) {
  return get16(at) | get16(at + 2) << 16;
}
inline std::uint64_t get64(const char* at) {
  return get32(at) | static_cast<std::uint64_t>(get32(at + 4)) << 32;
}

struct Inode {
  Layout layout = Layout::kBlocks;
  bool opaque = false;     // kOpaqueAttribute follows
  std::uint32_t mode = 0;  // with the file type
  std::uint64_t size = 0;
  std::uint32_t block = 0;  // the first, with Layout::kBlocks; of a device its number
  std::uint32_t number = 0;
  std::uint32_t uid = 0, gid = 0, links = 1;
  timespec modified = {};

  void encode(char (&to)[kInodeSize]) const {
    std::memset(to, 0, kInodeSize);
    put16(to, 1u | static_cast<std::uint32_t>(layout) << 1);  // 1: an inode of 64 bytes
    put16(to + 2, opaque ? kOpaqueAttributeCount : 0);
    put16(to + 4, mode);
    put64(to + 8, size);
    put32(to + 16, block);
    put32(to + 20, number);
    put32(to + 24, uid);
    put32(to + 28, gid);
    put64(to + 32, static_cast<std::uint64_t>(modified.tv_sec));
    put32(to + 40, static_cast<std::uint32_t>(modified.tv_nsec));
    put32(to + 44, links);
  }
  static Inode decode(const char (&from)[kInodeSize]) {
    Inode inode;
    inode.layout = static_cast<Layout>(get16(from) >> 1 & 7);
    inode.opaque = get16(from + 2) == kOpaqueAttributeCount;
    inode.mode = get16(from + 4);
    inode.size = get64(from + 8);
    inode.block = get32(from + 16);
    inode.number = get32(from + 20);
    inode.uid = get32(from + 24);
    inode.gid = get32(from + 28);
    inode.modified.tv_sec = static_cast<std::int64_t>(get64(from + 32));
    inode.modified.tv_nsec = get32(from + 40);
    inode.links = get32(from + 44);
    return inode;
  }
  // With what follows it but its contents.
  std::uint32_t head() const {
    return kInodeSize + (opaque ? static_cast<std::uint32_t>(kOpaqueAttribute.size()) : 0);
  }
};

struct Superblock {
  std::uint32_t root_number = 0;  // below 65536
  std::uint64_t inodes = 0;
  std::uint32_t blocks = 0;
  std::uint32_t metadata_block = 0;
};

// Block 0. Every other field is zero: no time, no identity, so that the same layers give the same
// bytes.
void encode(const Superblock& superblock, char (&to)[kBlock]);

// CRC-32C, as the format wants it: begun with all ones and not inverted at the end.
std::uint32_t crc32c(std::string_view bytes);

// The code of a kind in a directory entry.
std::uint8_t entry_type(std::uint32_t mode);

}  // namespace caisson::image::erofs
