#include "launcher/main_output.h"

#include <algorithm>
#include <utility>

namespace caisson::launcher {

using proto::FrameType;
using proto::Tag;

namespace {

// Small writes to one channel are kept as one piece up to this size.
constexpr std::size_t kMergeBelow = 16 * 1024;
constexpr std::size_t kMaxPieces = 16 * 1024;

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
  while (pieces_.size() > kMaxPieces) {
    size_ -= pieces_.front().bytes.size();
    pieces_.pop_front();
  }
  while (size_ > kMaxBytes) {
    const std::size_t excess = size_ - kMaxBytes;
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

void MainOutput::close_with(std::string payload) {
  if (!close_) close_ = std::move(payload);
}

void MainOutput::attach(std::uint64_t client, std::uint32_t stream, Until until) {
  Reader reader;
  reader.client = client;
  reader.stream = stream;
  reader.place = tail_.begin();
  if (until == Until::kKept) reader.until = tail_.end();
  readers_.push_back(reader);
}

bool MainOutput::has(std::uint64_t client, std::uint32_t stream) const {
  return std::ranges::any_of(readers_, [&](const Reader& reader) {
    return reader.client == client && reader.stream == stream;
  });
}

bool MainOutput::has_client(std::uint64_t client) const {
  return std::ranges::any_of(readers_,
                             [&](const Reader& reader) { return reader.client == client; });
}

Status MainOutput::take(std::uint64_t client, const proto::Frame& frame) {
  const auto reader = std::ranges::find_if(readers_, [&](const Reader& entry) {
    return entry.client == client && entry.stream == frame.header.stream;
  });
  VERIFY(reader != readers_.end());
  switch (frame.header.type) {
    case FrameType::kCredit: {
      if (frame.header.detail >= std::size(reader->credit))
        return fail(Error::invalid("an unknown channel"));
      TRY_ASSIGN(const std::uint32_t amount, proto::parse_credit(frame.payload));
      std::int64_t& credit = reader->credit[frame.header.detail];
      if (credit + amount > static_cast<std::int64_t>(4 * proto::kInitialCredit))
        return fail(Error::invalid("too much credit"));
      credit += amount;
      return {};
    }
    case FrameType::kControl: {
      TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
      if (fields.number_or_none(Tag::kControlOperation) ==
          static_cast<std::uint64_t>(proto::ControlOperation::kShutdown))
        reader->leaves = true;
      return {};
    }
    case FrameType::kClose:
      reader->leaves = true;
      return {};
    default:
      return fail(Error::invalid("a frame that a reader does not send"));
  }
}

void MainOutput::drop_client(std::uint64_t client) {
  std::erase_if(readers_, [&](const Reader& reader) { return reader.client == client; });
}

bool MainOutput::send_to(Reader& reader, Peer& peer) const {
  const auto close = [&](std::string_view payload) {
    peer.send(Peer::Lane::kData, reader.stream, FrameType::kClose, 0, payload);
    return true;
  };
  if (reader.leaves) return close("");
  const std::uint64_t end = reader.until.value_or(tail_.end());
  while (reader.place < end) {
    const std::uint64_t place = std::max(reader.place, std::min(tail_.begin(), end));
    OutputTail::Run run{proto::Channel::kOut, ""};
    if (place < end) run = tail_.at(place);
    const auto channel = static_cast<std::uint8_t>(run.channel);
    const std::size_t size = std::min({run.bytes.size(), static_cast<std::size_t>(end - place),
                                       static_cast<std::size_t>(reader.credit[channel]),
                                       static_cast<std::size_t>(proto::kMaxPayload)});
    // What is missing is told with the next byte, once: until then more may be.
    if (size == 0 && place < end) return false;
    if (place > reader.place) {
      proto::Fields missed;
      missed.put_u64(Tag::kMissed, place - reader.place);
      peer.send(Peer::Lane::kData, reader.stream, FrameType::kEvent, 0, missed.bytes());
    }
    if (size > 0)
      peer.send(Peer::Lane::kData, reader.stream, FrameType::kData, channel,
                run.bytes.substr(0, size));
    reader.credit[channel] -= static_cast<std::int64_t>(size);
    reader.place = place + size;
  }
  if (close_) return close(*close_);
  return reader.until ? close("") : false;
}

void MainOutput::send(const PeerOf& peer_of) {
  for (std::size_t i = 0; i < readers_.size();) {
    if (send_to(readers_[i], peer_of(readers_[i].client)))
      readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
}

}  // namespace caisson::launcher
