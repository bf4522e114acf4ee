// Reads an archive and gives its entries, checked, to a Destination: the part of the worker that
// parses hostile bytes. libarchive reads the formats; every name, id, size and count is judged here
// before anything is made. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string_view>

#include "base/error.h"
#include "image/worker/entry_name.h"
#include "image/worker_process.h"

namespace caisson::image {

// What every kind of entry has.
struct EntryAttributes {
  std::uint32_t uid = 0, gid = 0;  // below kImageIds
  mode_t mode = 0;                 // permission bits with set-uid, set-gid and sticky
  timespec modified = {};
};

// Where entries go. A second entry of a name replaces the first, as in tar; parents that have no
// entry yet are made. Errors about the archive are invalid; others are this host's.
class Destination {
 public:
  virtual ~Destination() = default;
  virtual Status make_directory(const EntryName& name, const EntryAttributes& attributes) = 0;
  virtual Status make_symlink(const EntryName& name, std::string_view target,
                              const EntryAttributes& attributes) = 0;
  virtual Status make_fifo(const EntryName& name, const EntryAttributes& attributes) = 0;
  // `target` must be there already, and be no directory.
  virtual Status make_hard_link(const EntryName& name, const EntryName& target) = 0;
  // A file is begin, any number of writes at rising offsets, and end with its full size.
  virtual Status begin_file(const EntryName& name) = 0;
  virtual Status write_file(std::string_view bytes, std::uint64_t offset) = 0;
  virtual Status end_file(std::uint64_t size, const EntryAttributes& attributes) = 0;
  // After the last entry.
  virtual Status finish() = 0;
};

// Where archive bytes come from. An empty view is the end; what it returns lives until the next
// call.
class ArchiveInput {
 public:
  virtual ~ArchiveInput() = default;
  virtual Result<std::string_view> read() = 0;
};

Result<UnpackReport> unpack(ArchiveInput& input, Destination& destination,
                            const UnpackLimits& limits);

}  // namespace caisson::image
