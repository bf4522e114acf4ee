#include "image/worker/uncompress_ahead.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "image/worker/uncompress.h"

namespace caisson::image {

UncompressAhead::UncompressAhead(std::function<Status()> confine) : confine_(std::move(confine)) {
  for (Piece& piece : pieces_) piece.bytes.resize(kPieceSize);
}

Result<std::unique_ptr<UncompressAhead>> UncompressAhead::start(std::function<Status()> confine) {
  std::unique_ptr<UncompressAhead> ahead(new UncompressAhead(std::move(confine)));
  const int error = pthread_create(&ahead->thread_, nullptr, run, ahead.get());
  if (error != 0) {
    ahead->stopping_ = true;
    ahead->thread_ = {};
    return fail(Error::syscall("start a thread", error));
  }
  return ahead;
}

UncompressAhead::~UncompressAhead() {
  if (thread_ == pthread_t{}) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  pthread_join(thread_, nullptr);
}

void UncompressAhead::begin(ArchiveInput& input, std::uint64_t max_ratio) {
  {
    const std::lock_guard lock(mutex_);
    VERIFY(input_ == nullptr && held_ == 0);
    input_ = &input;
    max_ratio_ = max_ratio;
    digest_.clear();
  }
  changed_.notify_all();
}

Result<std::string_view> UncompressAhead::read() {
  std::unique_lock lock(mutex_);
  if (std::exchange(reading_, false)) {
    first_ = (first_ + 1) % kPieces;
    --held_;
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return held_ > 0 || input_ == nullptr; });
  if (held_ > 0) {
    reading_ = true;
    const Piece& piece = pieces_[first_];
    return std::string_view(piece.bytes.data(), piece.size);
  }
  if (error_) return fail(*error_);
  return std::string_view();
}

void* UncompressAhead::run(void* self) {
  static_cast<UncompressAhead*>(self)->serve();
  return nullptr;
}

void UncompressAhead::serve() {
  const Status confined = confine_();
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return stopping_ || input_ != nullptr; });
    if (stopping_) return;
    ArchiveInput& input = *input_;
    const std::uint64_t max_ratio = max_ratio_;
    lock.unlock();
    Result<std::string> digest =
        confined.has_value() ? fill(input, max_ratio) : fail(confined.error());
    lock.lock();
    if (digest.has_value()) {
      digest_ = std::move(*digest);
    } else {
      error_ = std::move(digest).error();
    }
    input_ = nullptr;
    changed_.notify_all();
  }
}

UncompressAhead::Piece* UncompressAhead::free_piece() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || held_ < kPieces; });
  if (stopping_) return nullptr;
  Piece& piece = pieces_[(first_ + held_) % kPieces];
  piece.size = 0;
  return &piece;
}

void UncompressAhead::hand_over() {
  {
    const std::lock_guard lock(mutex_);
    ++held_;
  }
  changed_.notify_all();
}

Result<std::string> UncompressAhead::fill(ArchiveInput& input, std::uint64_t max_ratio) {
  Uncompressed layer(input, max_ratio);
  Piece* piece = free_piece();
  while (piece != nullptr) {
    auto bytes = layer.read();
    if (!bytes.has_value() || bytes->empty()) {
      // What came before an error is read before it, as without a thread.
      if (piece->size > 0) hand_over();
      if (!bytes.has_value()) return fail(std::move(bytes).error());
      return layer.digest();
    }
    for (std::string_view rest = *bytes; !rest.empty() && piece != nullptr;) {
      const std::size_t size = std::min(rest.size(), kPieceSize - piece->size);
      std::memcpy(piece->bytes.data() + piece->size, rest.data(), size);
      piece->size += size;
      rest.remove_prefix(size);
      if (piece->size < kPieceSize) continue;
      hand_over();
      piece = free_piece();
    }
  }
  return std::string();  // nobody wants it any more
}

}  // namespace caisson::image
