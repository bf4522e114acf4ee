// Reads a layer and gives its entries, checked, to an EntrySink: the part of the worker that parses
// hostile bytes. libarchive reads the formats; every name, id, size and count is judged here before
// anything is made. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/worker/entry_name.h"
#include "image/worker_report.h"

namespace caisson::image {

// What every kind of entry has.
struct EntryAttributes {
  std::uint32_t uid = 0, gid = 0;  // below kImageIds
  mode_t mode = 0;                 // permission bits with set-uid, set-gid and sticky
  timespec modified = {};
};

// Where entries go, in the archive's order. Errors about the archive are invalid; others are this
// host's.
class EntrySink {
 public:
  virtual ~EntrySink() = default;
  virtual Status make_directory(const EntryName& name, const EntryAttributes& attributes) = 0;
  virtual Status make_symlink(const EntryName& name, std::string_view target,
                              const EntryAttributes& attributes) = 0;
  virtual Status make_pipe(const EntryName& name, const EntryAttributes& attributes) = 0;
  virtual Status make_hard_link(const EntryName& name, const EntryName& target) = 0;
  // A file is begin with its full size, any number of writes at rising offsets below that, and end.
  virtual Status begin_file(const EntryName& name, std::uint64_t size,
                            const EntryAttributes& attributes) = 0;
  virtual Status write_file(std::string_view bytes, std::uint64_t offset) = 0;
  virtual Status end_file() = 0;
  // What earlier layers have of that name (never the root) is gone.
  virtual Status white_out(const EntryName& name) = 0;
  // What earlier layers have in that directory is gone.
  virtual Status make_opaque(const EntryName& directory) = 0;
};

// Where archive bytes come from. An empty view is the end; what it returns lives until the next
// call.
class ArchiveInput {
 public:
  virtual ~ArchiveInput() = default;
  virtual Result<std::string_view> read() = 0;
};

// The archive's bytes without their compression.
class TarBytes {
 public:
  virtual ~TarBytes() = default;
  // The next piece; empty at the end. It lives until the next call.
  virtual Result<std::string_view> read() = 0;
  // After the end, once: the SHA-256 of all pieces.
  virtual std::string digest() = 0;
};

// Reads all of the bytes. `before` is what the session's earlier layers had: the limits of entries
// and bytes hold for all together. Error: invalid for what the archive is to blame for.
Result<LayerCounts> read_layer(TarBytes& bytes, EntrySink& sink, const UnpackLimits& limits,
                               const UnpackReport& before);

// Takes everything and makes nothing: reading into it finds out whether a layer is acceptable.
class CountingSink final : public EntrySink {
 public:
  Status make_directory(const EntryName&, const EntryAttributes&) override { return {}; }
  Status make_symlink(const EntryName&, std::string_view, const EntryAttributes&) override {
    return {};
  }
  Status make_pipe(const EntryName&, const EntryAttributes&) override { return {}; }
  Status make_hard_link(const EntryName&, const EntryName&) override { return {}; }
  Status begin_file(const EntryName&, std::uint64_t, const EntryAttributes&) override { return {}; }
  Status write_file(std::string_view, std::uint64_t) override { return {}; }
  Status end_file() override { return {}; }
  Status white_out(const EntryName&) override { return {}; }
  Status make_opaque(const EntryName&) override { return {}; }
};

}  // namespace caisson::image
