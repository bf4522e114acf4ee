// The bytes of a layer without its compression (none, gzip, zstd or xz), hashed on the way. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"
#include "image/worker/unpack.h"

struct archive;

namespace caisson::image {

class Uncompressed {
 public:
  // Borrows the input.
  Uncompressed(ArchiveInput& input, std::uint64_t max_ratio);
  ~Uncompressed();
  Uncompressed(const Uncompressed&) = delete;
  Uncompressed& operator=(const Uncompressed&) = delete;

  // The next piece; empty at the end. It lives until the next call. Error: the input's, or invalid
  // for a damaged stream and for one that unpacks to more than `max_ratio` times its size (looked
  // at from 64 MiB on).
  Result<std::string_view> read();
  // After the end: the SHA-256 of all pieces.
  std::string digest() { return hash_.finish(); }

 private:
  struct Free {
    void operator()(archive* reader) const;
  };
  static long feed(archive* reader, void* data, const void** buffer);
  Status open();
  Error error() const;

  ArchiveInput& input_;
  std::uint64_t max_ratio_;
  std::unique_ptr<archive, Free> reader_;
  std::optional<Error> input_error_;
  std::uint64_t packed_ = 0, unpacked_ = 0;
  bool opened_ = false, ended_ = false;
  Sha256 hash_;
};

}  // namespace caisson::image
