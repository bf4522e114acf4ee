// The output of a detached sandbox's first command, and who reads it.
//
// The newest bytes are kept; every reader has a place in them and is sent what it has credit for,
// so that one that reads slowly, or not at all, costs its credit and no more, and delays nobody.
// Where the kept bytes have moved on past a reader's place it is told how many it missed and goes
// on with the oldest that are left. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/proto.h"
#include "launcher/peer.h"

namespace caisson::launcher {

// The newest bytes of both channels, in order. A place in them is counted from the first byte that
// was ever added.
class OutputTail {
 public:
  static constexpr std::size_t kMaxBytes = 1u << 20;
  void add(proto::Channel channel, std::string_view bytes);

  // The places of the oldest byte that is kept, and behind the newest.
  std::uint64_t begin() const { return end_ - size_; }
  std::uint64_t end() const { return end_; }
  struct Run {
    proto::Channel channel;
    std::string_view bytes;
  };
  // Bytes of one channel from `place` on, as many as lie together; begin() <= place < end(). Good
  // until the next add().
  Run at(std::uint64_t place) const;
  std::size_t pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    std::uint64_t begin;
    proto::Channel channel;
    std::string bytes;
  };
  std::deque<Piece> pieces_;
  std::size_t size_ = 0;
  std::uint64_t end_ = 0;
};

class MainOutput {
 public:
  void add(proto::Channel channel, std::string_view bytes) { tail_.add(channel, bytes); }
  // No more comes: readers get what is left, then a CLOSE with this. The first call counts.
  void close_with(std::string payload);

  // kKept ends at the byte that is the newest now, kFollow with the command.
  enum class Until : std::uint8_t { kKept, kFollow };
  void attach(std::uint64_t client, std::uint32_t stream, Until until);
  bool has(std::uint64_t client, std::uint32_t stream) const;
  bool has_client(std::uint64_t client) const;
  // How many read.
  std::size_t readers() const { return readers_.size(); }
  // A frame on a reader's stream. Error: the client broke the protocol.
  Status take(std::uint64_t client, const proto::Frame& frame);
  void drop_client(std::uint64_t client);

  // Sends to every reader what it has credit for; those that have all of it are closed. `peer_of`
  // gives a client's connection.
  using PeerOf = std::function<Peer&(std::uint64_t client)>;
  void send(const PeerOf& peer_of);

 private:
  struct Reader {
    std::uint64_t client = 0;
    std::uint32_t stream = 0;
    std::uint64_t place = 0;
    std::optional<std::uint64_t> until;  // none: follows
    bool leaves = false;                 // wants no more
    std::int64_t credit[3] = {proto::kInitialCredit, proto::kInitialCredit, proto::kInitialCredit};
  };
  // True when the reader's stream is closed.
  bool send_to(Reader& reader, Peer& peer) const;

  OutputTail tail_;
  std::vector<Reader> readers_;
  std::optional<std::string> close_;
};

}  // namespace caisson::launcher
