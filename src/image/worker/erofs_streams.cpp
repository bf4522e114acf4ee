#include "image/worker/erofs_streams.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "image/erofs_format.h"

namespace caisson::image {
namespace {

using erofs::kBlock;

constexpr std::size_t kBlockBuffer = 1 << 20;
constexpr std::size_t kMetadataBuffer = 1 << 16;

Status write_all(int fd, std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        TEMP_FAILURE_RETRY(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)));
    if (done < 0) return fail_errno("write the image");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

Status read_all(int fd, std::uint64_t offset, char* to, std::size_t size) {
  while (size > 0) {
    const ssize_t done = TEMP_FAILURE_RETRY(pread(fd, to, size, static_cast<off_t>(offset)));
    if (done < 0) return fail_errno("read the image");
    if (done == 0) return fail(Error::internal("the image's metadata is shorter than it was"));
    to += done;
    size -= static_cast<std::size_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

bool all_zero(std::string_view bytes) {
  return bytes.front() == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

BlockStream::BlockStream(int fd) : fd_(fd), buffer_(kBlockBuffer) {}

// The buffer begins at a block's beginning.
Status BlockStream::write_out(std::uint64_t offset, std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t end = at;
    while (end < bytes.size() && !all_zero(bytes.substr(end, kBlock))) {
      end = std::min<std::size_t>(end + kBlock, bytes.size());
    }
    if (end > at) TRY(write_all(fd_, offset + at, bytes.substr(at, end - at)));
    at = std::min<std::size_t>(end + kBlock, bytes.size());
  }
  return {};
}

Status BlockStream::flush() {
  if (used_ > 0) TRY(write_out(start_, {buffer_.data(), used_}));
  start_ = (start_ + used_ + kBlock - 1) / kBlock * kBlock;
  used_ = 0;
  return {};
}

// `data` is nullptr for zeros.
Status BlockStream::append(const char* data, std::size_t size) {
  while (size > 0) {
    const std::size_t piece = std::min(buffer_.size() - used_, size);
    if (data != nullptr) {
      std::memcpy(buffer_.data() + used_, data, piece);
      data += piece;
    } else {
      std::memset(buffer_.data() + used_, 0, piece);
    }
    used_ += piece;
    size -= piece;
    if (used_ == buffer_.size()) TRY(flush());
  }
  return {};
}

Status BlockStream::write(std::uint64_t offset, std::string_view bytes) {
  if (bytes.empty()) return {};
  VERIFY(offset >= start_ + used_);
  if (offset - start_ - used_ >= kBlock) {
    // Whole blocks stay unwritten; the one that `offset` lies in has nothing yet.
    TRY(flush());
    start_ = offset / kBlock * kBlock;
  }
  TRY(append(nullptr, offset - start_ - used_));
  return append(bytes.data(), bytes.size());
}

MetadataFile::MetadataFile(int fd) : fd_(fd), buffer_(kMetadataBuffer) {}

Status MetadataFile::flush() {
  TRY(write_all(fd_, flushed_, {buffer_.data(), used_}));
  flushed_ += used_;
  used_ = 0;
  return {};
}

Status MetadataFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t piece = std::min(buffer_.size() - used_, bytes.size());
    std::memcpy(buffer_.data() + used_, bytes.data(), piece);
    used_ += piece;
    bytes.remove_prefix(piece);
    if (used_ == buffer_.size()) TRY(flush());
  }
  return {};
}

Status MetadataFile::pad_to(std::uint64_t offset) {
  static constexpr char kZeros[kBlock] = {};
  while (size() < offset) {
    TRY(append({kZeros, std::min<std::size_t>(sizeof kZeros, offset - size())}));
  }
  return {};
}

Status MetadataFile::change(std::uint64_t offset, std::string_view bytes) {
  VERIFY(offset + bytes.size() <= size());
  if (offset < flushed_) {
    const std::size_t piece = std::min<std::uint64_t>(bytes.size(), flushed_ - offset);
    TRY(write_all(fd_, offset, bytes.substr(0, piece)));
    bytes.remove_prefix(piece);
    offset += piece;
  }
  if (!bytes.empty()) std::memcpy(buffer_.data() + (offset - flushed_), bytes.data(), bytes.size());
  return {};
}

Status MetadataFile::read(std::uint64_t offset, char* to, std::size_t wanted) {
  VERIFY(offset + wanted <= size());
  if (offset < flushed_) {
    const std::size_t piece = std::min<std::uint64_t>(wanted, flushed_ - offset);
    TRY(read_all(fd_, offset, to, piece));
    to += piece;
    wanted -= piece;
    offset += piece;
  }
  if (wanted > 0) std::memcpy(to, buffer_.data() + (offset - flushed_), wanted);
  return {};
}

Status MetadataFile::truncate(std::uint64_t wanted) {
  TRY(flush());
  VERIFY(wanted <= flushed_);
  if (ftruncate(fd_, static_cast<off_t>(wanted)) != 0) return fail_errno("shorten the metadata");
  flushed_ = wanted;
  return {};
}

Status copy_bytes(int from_fd, int to_fd, std::uint64_t to_offset, std::uint64_t size) {
  off_t from = 0;
  auto to = static_cast<off_t>(to_offset);
  const auto end = static_cast<off_t>(size);
  while (from < end) {
    const ssize_t done = TEMP_FAILURE_RETRY(
        copy_file_range(from_fd, &from, to_fd, &to, static_cast<std::size_t>(end - from), 0));
    if (done <= 0) break;  // not between these two file systems, or not on this one
  }
  std::vector<char> buffer(from < end ? kMetadataBuffer : 0);
  while (from < end) {
    const std::size_t piece =
        std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(end - from));
    TRY(read_all(from_fd, static_cast<std::uint64_t>(from), buffer.data(), piece));
    TRY(write_all(to_fd, static_cast<std::uint64_t>(to), {buffer.data(), piece}));
    from += static_cast<off_t>(piece);
    to += static_cast<off_t>(piece);
  }
  return {};
}

}  // namespace caisson::image
