// What a sandbox changed over its image, as a layer of an image: the overlay's upper directory
// (image/kept_layer.h) packed into a tar, compressed with zstd.
//
// The same changes give the same bytes: entries are sorted, and only what an image can hold goes in
// (names, types, permission bits, owners, times to the nanosecond, links; no extended attributes,
// no sockets, no devices). What was removed is there as an empty file `.wh.NAME`, a directory that
// hides the image's own has `.wh..wh..opq` in it. Hard links within the layer stay links. What
// set-up itself put there is left out. The reading is done by caisson-image-worker, since the upper
// directory is hostile; it holds the sandbox's ids and nothing else. Bytes are hashed here, on
// their way to the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "image/kept_layer.h"
#include "image/store.h"
#include "image/worker_process.h"

namespace caisson::image {

inline constexpr const char* kLayerMediaType = "application/vnd.oci.image.layer.v1.tar+zstd";

struct PackLimits {
  std::uint64_t entries = 2'000'000;
  std::uint64_t bytes = 32ull << 30;  // of all files together, holes included
  std::chrono::milliseconds time = std::chrono::minutes(15);
};

struct PackedFile {
  std::string digest;   // of the file's bytes, 64 hexadecimal digits
  std::string diff_id;  // of the tar in it, likewise
  std::uint64_t size = 0;
  std::uint64_t entries = 0;  // whiteouts included; 0: nothing was changed
  std::uint64_t bytes = 0;    // of the files' contents
};

// Writes the layer to `file_fd`, an empty regular file; the sandbox should have ended. Without
// entries it is an empty tar. Errors: resource_exhausted beyond a limit, deadline_exceeded,
// failed_precondition (this host, or a disk that is full), invalid_argument where something in the
// layer cannot be in an image (a name of 4096 bytes and more, an id that the sandbox had not).
Result<PackedFile> pack_layer_to(int file_fd, const KeptLayer& layer, const PackLimits& limits,
                                 const Progress& progress);

struct PackedLayer {
  LayerRef layer;
  std::uint64_t entries = 0, bytes = 0;  // as in PackedFile
};

// The same into a blob of the store. Without entries there is none, and the layer is empty.
Result<PackedLayer> pack_layer(Store& store, const KeptLayer& layer, const PackLimits& limits = {},
                               const Progress& progress = {});

}  // namespace caisson::image
