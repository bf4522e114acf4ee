// The newest output of one command: both channels, in order, at most so many bytes.
//
// A place in it is counted from the first byte that was ever added, so that readers who fall behind
// can tell how much they missed. What it costs in memory is bounded by twice what it keeps: a
// program that writes single bytes to both channels in turn keeps fewer. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/proto.h"

namespace caisson::launcher {

class OutputTail {
 public:
  static constexpr std::size_t kMaxBytes = 1u << 20;
  // `keeps` bytes at most, at least one piece.
  explicit OutputTail(std::size_t keeps = kMaxBytes) : keeps_(keeps) {}

  void add(proto::Channel channel, std::string_view bytes);
  // Forgets the oldest until at most so many are kept.
  void shrink_to(std::size_t bytes);

  // The places of the oldest byte that is kept, and behind the newest.
  std::uint64_t begin() const { return end_ - size_; }
  std::uint64_t end() const { return end_; }
  std::size_t size() const { return size_; }
  struct Run {
    proto::Channel channel;
    std::string_view bytes;
  };
  // Bytes of one channel from `place` on, as many as lie together; begin() <= place < end(). Good
  // until the next add().
  Run at(std::uint64_t place) const;
  std::size_t pieces() const { return pieces_.size(); }
  // Bytes of memory, about.
  std::size_t cost() const { return size_ + pieces_.size() * kPieceCost; }

 private:
  static constexpr std::size_t kPieceCost = 64;
  struct Piece {
    std::uint64_t begin;
    proto::Channel channel;
    std::string bytes;
  };
  std::size_t keeps_;
  std::deque<Piece> pieces_;
  std::size_t size_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace caisson::launcher
