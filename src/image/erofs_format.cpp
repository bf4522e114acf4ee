#include "image/erofs_format.h"

#include <array>

namespace caisson::image::erofs {

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table = {};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0x82f63b78 : 0);
      table[byte] = value;
    }
    return table;
  }();
  std::uint32_t sum = ~0u;
  for (char byte : bytes) sum = sum >> 8 ^ kTable[(sum ^ static_cast<unsigned char>(byte)) & 255];
  return sum;
}

void encode(const Superblock& superblock, char (&to)[kBlock]) {
  std::memset(to, 0, kBlock);
  char* at = to + kSuperOffset;
  put32(at, kMagic);
  put32(at + 8, kHasChecksum | kHasTimes);
  at[12] = 12;  // blocks of 2^12 bytes
  put16(at + 14, superblock.root_number);
  put64(at + 16, superblock.inodes);
  put32(at + 36, superblock.blocks);
  put32(at + 40, superblock.metadata_block);
  put32(at + 4, crc32c({at, kBlock - kSuperOffset}));
}

std::uint8_t entry_type(std::uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return 1;
    case S_IFDIR:
      return 2;
    case S_IFCHR:
      return 3;
    case S_IFIFO:
      return 5;
    case S_IFLNK:
      return 7;
    default:
      return 0;
  }
}

}  // namespace caisson::image::erofs
