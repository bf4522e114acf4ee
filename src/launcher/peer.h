// One framed connection of the supervisor: to the guest, or to a client.
//
// Reads what is there into whole frames and queues what goes out in two lanes, so that a signal or
// a grant of credit never waits behind an upload: a frame of the urgent lane goes out at the next
// frame boundary. Memory is bounded by the credit that the two ends granted each other, which the
// supervisor checks; a queue beyond kMaxQueued means that a peer cheats, and the connection is
// broken then. Non-blocking; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"

namespace caisson::launcher {

class Peer {
 public:
  enum class Lane : std::uint8_t { kUrgent, kData };

  static constexpr std::size_t kMaxQueued = 64u << 20;

  explicit Peer(Fd socket);

  int fd() const { return socket_.get(); }
  // POLLIN, and POLLOUT while something is queued.
  short events() const;
  bool broken() const { return broken_; }
  bool ended() const { return ended_; }

  // Reads once; frames come from next(). Descriptors that came along are kept until
  // take_descriptor().
  void receive();
  // The next whole frame; an error is final.
  Result<std::optional<proto::Frame>> next();
  Fd take_descriptor();

  void send(Lane lane, std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
            std::string_view payload);
  // In the urgent lane, with descriptors.
  void send_with(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                 std::string_view payload, std::vector<Fd> descriptors);
  // Writes as much as the socket takes.
  void flush();

 private:
  struct Item {
    std::string bytes;
    std::vector<Fd> descriptors;
  };
  bool write_item(Item& item);

  Fd socket_;
  proto::Decoder decoder_;
  std::deque<Fd> received_;
  std::deque<Item> urgent_, data_;
  Item current_;  // partly written
  std::size_t written_ = 0;
  std::size_t queued_ = 0;
  bool broken_ = false;
  bool ended_ = false;
};

}  // namespace caisson::launcher
