// The two files that an erofs image is written through: the blocks of files, which go straight into
// the image, and its metadata, which grows in a file of its own until it is copied behind them.
// Both gather small writes in memory. One thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::image {

// Writes at rising offsets; blocks of zeros are left out, so that they are holes and cost nothing.
class BlockStream {
 public:
  explicit BlockStream(int fd);  // borrowed
  // `offset` is not below the end of what was written, nor, after a flush, below the end of its
  // block.
  Status write(std::uint64_t offset, std::string_view bytes);
  Status flush();
  int fd() const { return fd_; }

 private:
  Status write_out(std::uint64_t offset, std::string_view bytes);
  Status append(const char* data, std::size_t size);

  int fd_;
  std::vector<char> buffer_;
  std::uint64_t start_ = 0;  // where the buffer's first byte goes
  std::size_t used_ = 0;
};

// Grows at its end; what is there can be read and changed.
class MetadataFile {
 public:
  explicit MetadataFile(int fd);  // borrowed
  std::uint64_t size() const { return flushed_ + used_; }
  // Appends zeros up to `offset`, which is not below size().
  Status pad_to(std::uint64_t offset);
  Status append(std::string_view bytes);
  // Within what is there.
  Status change(std::uint64_t offset, std::string_view bytes);
  Status read(std::uint64_t offset, char* to, std::size_t size);
  // Forgets what is behind `size`.
  Status truncate(std::uint64_t size);
  Status flush();
  int fd() const { return fd_; }

 private:
  int fd_;
  std::vector<char> buffer_;
  std::uint64_t flushed_ = 0;
  std::size_t used_ = 0;
};

// Copies the first `size` bytes of one file to an offset of another.
Status copy_bytes(int from_fd, int to_fd, std::uint64_t to_offset, std::uint64_t size);

}  // namespace caisson::image
