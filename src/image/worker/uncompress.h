// The bytes of a layer without its compression (none, gzip, zstd or xz), hashed on the way. One
// thread; worker/uncompress_ahead.h is another one that does this beside its reader.
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

class Uncompressed final : public TarBytes {
 public:
  // Borrows the input. Error of read(): the input's, or invalid for a damaged stream and for one
  // that unpacks to more than `max_ratio` times its size (looked at from 64 MiB on).
  Uncompressed(ArchiveInput& input, std::uint64_t max_ratio);
  ~Uncompressed() override;
  Uncompressed(const Uncompressed&) = delete;
  Uncompressed& operator=(const Uncompressed&) = delete;

  Result<std::string_view> read() override;
  std::string digest() override { return hash_.finish(); }

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
