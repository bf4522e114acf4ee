// What the set-up of a sandbox itself put into the overlay's upper directory: mount points, the
// generated files of /etc, and the directories that the overlay copied up for them.
//
// Written by the setup child as the last thing before anybody's code runs, read by whoever packs
// the layer afterwards: an entry that is still as it is recorded here is no change of the
// command's. Ids are the image's (0 to 65535), kNoImageId for one that is none of them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

// How an id shows that a user namespace does not map.
inline constexpr std::uint32_t kNoImageId = 65534;

struct RecordedEntry {
  std::uint64_t inode = 0;
  std::uint32_t mode = 0;  // type and permissions
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;      // of files alone
  std::int64_t mtime_s = 0;    // of files alone; that of a directory changes with its entries
  std::uint32_t mtime_ns = 0;  // of files alone
  bool opaque = false;         // of directories: nothing of the image shows through
  bool operator==(const RecordedEntry&) const = default;
};

// By path, relative to the upper directory and without "./"; "" is that directory itself.
using LayerRecord = std::map<std::string, RecordedEntry, std::less<>>;

// At most so many bytes; more than every mount point of a plan needs.
inline constexpr std::size_t kMostRecord = 4 << 20;

std::string encode_record(const LayerRecord& record);
// Error: data_loss where it is cut or malformed.
Result<LayerRecord> decode_record(std::string_view bytes);

}  // namespace caisson::image
