// A layer uncompressed and hashed by a thread of its own, some pieces ahead of whoever reads them:
// that costs about as much as making the files, and on two processors goes on beside it. The worker
// starts the one thread before it locks itself down, since threads cannot be made afterwards. The
// owner and the thread share a ring of pieces; all else of an object belongs to the owner's thread.
#pragma once

#include <pthread.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/worker/unpack.h"

namespace caisson::image {

class UncompressAhead final : public TarBytes {
 public:
  // `confine` is the first thing that the thread does; where it fails, every read() does.
  static Result<std::unique_ptr<UncompressAhead>> start(std::function<Status()> confine);
  // Waits for the thread, which ends once the input has given what it was asked for.
  ~UncompressAhead() override;
  UncompressAhead(const UncompressAhead&) = delete;
  UncompressAhead& operator=(const UncompressAhead&) = delete;

  // The next layer's bytes; those of the one before must have been read to their end. Borrows the
  // input until then.
  void begin(ArchiveInput& input, std::uint64_t max_ratio);
  // As in Uncompressed.
  Result<std::string_view> read() override;
  std::string digest() override { return digest_; }

 private:
  static constexpr std::size_t kPieceSize = 128 * 1024, kPieces = 8;
  struct Piece {
    std::vector<char> bytes;
    std::size_t size = 0;
  };

  explicit UncompressAhead(std::function<Status()> confine);
  static void* run(void* self);
  void serve();
  // One layer into the ring; its digest.
  Result<std::string> fill(ArchiveInput& input, std::uint64_t max_ratio);
  // A piece that nobody reads; nullptr when the owner wants no more.
  Piece* free_piece();
  void hand_over();

  std::function<Status()> confine_;
  pthread_t thread_ = {};

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex. The pieces from first_ on, held_ of them, are the reader's, the others the
  // thread's.
  ArchiveInput* input_ = nullptr;  // of the layer under way
  std::uint64_t max_ratio_ = 0;
  bool stopping_ = false;
  std::size_t first_ = 0, held_ = 0;
  std::optional<Error> error_;
  std::string digest_;

  std::array<Piece, kPieces> pieces_;
  bool reading_ = false;  // the first piece is the one that read() has given
};

}  // namespace caisson::image
