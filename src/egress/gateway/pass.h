// What becomes of a connection whose bytes are not looked at: they go from one stream to the other,
// both ways, as they come.
//
// A sandbox may have thousands of connections that stand, so nothing is held for a direction in
// which nothing comes: room to read into is lent for as long as bytes are under way, and what is
// lent most of the time is the same room. Belongs to the loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "io/stream.h"

namespace caisson::egress {

inline constexpr std::size_t kPassPiece = 64 * 1024;

// Owned by the gateway; outlives whoever has borrowed of it.
class PassRoom {
 public:
  // kPassPiece bytes that are whatever was in them, given back with its end.
  class Lent {
   public:
    explicit Lent(PassRoom& from);
    ~Lent();
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    std::span<char> bytes() const { return {bytes_.get(), kPassPiece}; }

   private:
    PassRoom& from_;
    std::unique_ptr<char[]> bytes_;
  };

  std::size_t lent() const { return lent_; }

 private:
  std::vector<std::unique_ptr<char[]>> spare_;
  std::size_t lent_ = 0;
};

// Until one direction breaks, which resets both, or both have ended.
io::Async<void> pass_both(PassRoom& room, io::Stream& one, io::Stream& other);

}  // namespace caisson::egress
