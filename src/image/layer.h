// What the pieces of the image store call a layer.
#pragma once

#include <cstdint>
#include <string>

namespace caisson::image {

// A blob as manifests name it.
struct Descriptor {
  std::string media_type;
  std::string digest;  // SHA-256 of the blob's bytes, 64 lower-case hexadecimal digits
  std::uint64_t size = 0;
};

struct LayerRef {
  Descriptor blob;
  std::string diff_id;  // SHA-256 of the uncompressed tar, written as digest is
};

}  // namespace caisson::image
