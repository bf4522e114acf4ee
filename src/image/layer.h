// What the pieces of the image store call a layer.
#pragma once

#include <string>

#include "image/descriptor.h"

namespace caisson::image {

struct LayerRef {
  Descriptor blob;
  std::string diff_id;  // SHA-256 of the uncompressed tar, written as digest is
  bool operator==(const LayerRef&) const = default;
};

}  // namespace caisson::image
