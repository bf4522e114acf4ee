// The outermost form of a saved image: a plain tar of a few files, whose places are looked up and
// whose bytes are copied, nothing else. Not for layers, which only caisson-image-worker reads. The
// archive is hostile: headers are checked, sizes and counts bounded, and members that are no files
// or links are passed over. Also the headers of such an archive, for export.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kTarBlock = 512;
inline constexpr std::size_t kMaxTarMembers = 20'000;

struct TarMember {
  std::uint64_t offset = 0;  // of its bytes
  std::uint64_t size = 0;
  std::string link;  // a symbolic or hard link: to which name, as the archive has it
};

// By name, without a leading "./"; of two of one name the later.
using TarMembers = std::map<std::string, TarMember>;

// Reads `size` bytes at `offset`; fewer only at the end of the archive.
using ReadAt = std::function<Result<std::string>(std::uint64_t offset, std::size_t size)>;

// Error: invalid where this is no plain tar (a compressed one is none), or one with more than
// kMaxTarMembers members.
Result<TarMembers> read_tar_members(const ReadAt& read);

// The file that `name` means, links followed within the archive. Error: not_found.
Result<TarMember> find_member(const TarMembers& members, const std::string& name);

// The header of a file of mode 0644 that belongs to root and is as old as 1970, and what fills its
// bytes up to whole blocks. `name` has at most 100 bytes.
std::string saved_tar_header(std::string_view name, std::uint64_t size);
std::string saved_tar_padding(std::uint64_t size);
// What ends an archive.
std::string saved_tar_end();

}  // namespace caisson::image
