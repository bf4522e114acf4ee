// The headers of a tar archive, in the interchange format of POSIX.1-2001: a ustar header, and a
// pax header before it for what has no room there (names beyond 100 bytes, sizes beyond 8 GiB,
// parts of a second). The same entry gives the same bytes. Pure.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace caisson::image {

inline constexpr std::size_t kPaxBlock = 512;

enum class PaxType : char {
  kFile = '0',
  kHardLink = '1',
  kSymlink = '2',
  kDirectory = '5',
  kFifo = '6',
};

struct PaxEntry {
  std::string path;  // relative, without a trailing slash
  PaxType type = PaxType::kFile;
  std::uint32_t mode = 0;          // permission bits with set-uid, set-gid and sticky
  std::uint32_t uid = 0, gid = 0;  // at most 2097151
  std::uint64_t size = 0;          // of a file
  timespec modified{};
  std::string link;  // where a link leads
};

// Everything that comes before the entry's contents, which are followed by zeros up to the next
// whole block.
std::string pax_header(const PaxEntry& entry);
// How many zeros those are.
std::size_t pax_padding(std::uint64_t size);
// What comes after the last entry.
std::string pax_end();

}  // namespace caisson::image
