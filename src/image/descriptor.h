// What OCI calls a descriptor: a blob by its SHA-256, with its size and what it is. Plain values,
// shared by manifests (image/manifest.h) and the store.
#pragma once

#include <cstdint>
#include <string>

namespace caisson::image {

struct Descriptor {
  std::string media_type;
  std::string digest;      // 64 hexadecimal digits, without "sha256:"
  std::uint64_t size = 0;  // bytes, as somebody declared them
  bool operator==(const Descriptor&) const = default;
};

}  // namespace caisson::image
