// Reads an overlay's upper directory and writes it as the tar of a layer: the part of the worker
// that looks at what a sandbox has left behind (image/kept_layer.h), which is hostile.
//
// Every directory is opened from the top beneath the descriptor, without following links, and
// nothing but a regular file is ever opened for its contents. Entries come in the order of their
// names, a directory before what is in it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "image/layer_record.h"

namespace caisson::image {

struct PackInput {
  int directory_fd = -1;
  const LayerRecord& record;
  // Whether a directory has trusted.overlay.opaque; empty where the overlay's notes are user.*.
  std::function<Result<bool>(int directory_fd)> ask_opaque;
  std::uint64_t most_entries = 0, most_bytes = 0;
};

struct PackReport {
  std::uint64_t entries = 0;  // of the tar, whiteouts included
  std::uint64_t bytes = 0;    // of files
};

// Takes the tar's bytes as they come.
using TarSink = std::function<Status(std::string_view)>;

// Errors: resource_exhausted beyond a limit; invalid_argument for what cannot be in an image;
// aborted where a file changes meanwhile.
Result<PackReport> pack(const PackInput& input, const TarSink& sink);

}  // namespace caisson::image
