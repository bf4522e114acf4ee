#include "launcher/output_tail.h"

#include <algorithm>

namespace caisson::launcher {
namespace {

// Small writes to one channel are kept as one piece up to this size.
constexpr std::size_t kMergeBelow = 16 * 1024;

}  // namespace

void OutputTail::add(proto::Channel channel, std::string_view bytes) {
  if (bytes.empty()) return;
  if (!pieces_.empty() && pieces_.back().channel == channel &&
      pieces_.back().bytes.size() < kMergeBelow) {
    pieces_.back().bytes += bytes;
  } else {
    pieces_.push_back({end_, channel, std::string(bytes)});
  }
  size_ += bytes.size();
  end_ += bytes.size();
  // A program that writes single bytes to both channels in turn would make a piece of each.
  while (pieces_.size() > std::max<std::size_t>(keeps_ / kPieceCost, 1)) {
    size_ -= pieces_.front().bytes.size();
    pieces_.pop_front();
  }
  shrink_to(keeps_);
}

void OutputTail::shrink_to(std::size_t bytes) {
  while (size_ > bytes) {
    const std::size_t excess = size_ - bytes;
    Piece& oldest = pieces_.front();
    if (oldest.bytes.size() <= excess) {
      size_ -= oldest.bytes.size();
      pieces_.pop_front();
    } else {
      oldest.bytes.erase(0, excess);
      oldest.begin += excess;
      size_ -= excess;
    }
  }
}

OutputTail::Run OutputTail::at(std::uint64_t place) const {
  const auto after = std::upper_bound(
      pieces_.begin(), pieces_.end(), place,
      [](std::uint64_t wanted, const Piece& piece) { return wanted < piece.begin; });
  const Piece& piece = *(after - 1);
  return {piece.channel, std::string_view(piece.bytes).substr(place - piece.begin)};
}

}  // namespace caisson::launcher
