// The client side of caisson-image-worker: starts one, writes its id maps, feeds it the archive,
// enforces the time limit, and checks what it says, for it has read hostile bytes. The worker ends
// when this process does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "image/ids.h"

namespace caisson::image {

struct UnpackLimits {
  std::uint64_t entries = 2'000'000;
  std::uint64_t bytes = 32ull << 30;    // of all files together, holes included
  std::uint64_t ratio = 1000;           // unpacked over packed, looked at after the first 64 MiB
  std::uint64_t archive = 16ull << 30;  // bytes of the archive itself
  std::chrono::milliseconds time = std::chrono::minutes(15);
};

// What the worker did, in counts.
struct UnpackReport {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t dropped_devices = 0;     // device nodes: a sandbox has a /dev of its own
  std::uint64_t dropped_attributes = 0;  // entries whose extended attributes or ACLs were left out
  std::uint64_t absolute_names = 0;      // names that began with '/', taken relative to the root
};

// Bytes of the archive that went in so far, and all of them.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Unpacks `archive_fd` (a regular file, read from its start) into the empty directory
// `destination_fd`. `lock_fd` stays open in the worker. Fails with data_loss when the bytes that
// were fed had not the SHA-256 `digest`. On an error the destination holds rubbish.
Result<UnpackReport> unpack_by_worker(int archive_fd, const std::string& digest, int destination_fd,
                                      int lock_fd, const IdMapping& ids, const UnpackLimits& limits,
                                      const Progress& progress);

// Removes `name` and all below it, whatever ids of the mapping own it.
Status remove_by_worker(int directory_fd, const std::string& name, const IdMapping& ids);

// The worker's message of a success, and back: "key value" lines.
std::string encode_report(const UnpackReport& report);
Result<UnpackReport> decode_report(std::string_view text);

}  // namespace caisson::image
