// One framed connection of the supervisor: to the guest, or to a client.
//
// Reads what is there into whole frames and queues what goes out in two lanes, so that a signal or
// a grant of credit never waits behind an upload: a frame of the urgent lane goes out at the next
// frame boundary. A lane is one run of bytes, so that many small frames cost no more than few large
// ones. Memory is bounded by the credit that the two ends granted each other, which the supervisor
// checks; more bytes than kMaxQueued, or more frames with descriptors than kMaxHanded, mean that a
// peer cheats or reads nothing, and the connection is broken then. Non-blocking; one thread.
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
  static constexpr std::size_t kMaxHanded = proto::kMaxStreams;

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
  // Whole frames one behind the other; the first may be partly written.
  struct Queue {
    std::string bytes;
    std::size_t begin = 0;
    std::uint64_t written = 0;  // since ever

    std::string_view rest() const { return std::string_view(bytes).substr(begin); }
    void drop(std::size_t count);
  };
  // Descriptors that go with the urgent frame which begins there.
  struct Handed {
    std::uint64_t at = 0;
    std::vector<Fd> descriptors;
  };
  Queue& queue(Lane lane) { return lane == Lane::kUrgent ? urgent_ : data_; }
  bool put(Lane lane, std::string_view frame);
  bool write_some();

  Fd socket_;
  proto::Decoder decoder_;
  std::deque<Fd> received_;
  Queue urgent_, data_;
  std::deque<Handed> handed_;
  Lane lane_ = Lane::kUrgent;  // of the frame that is being written
  std::size_t left_ = 0;       // of that frame; 0: none is
  bool broken_ = false;
  bool ended_ = false;
};

}  // namespace caisson::launcher
