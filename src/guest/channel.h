// The guest's end of the framed channel: bytes and descriptors in, frames out, by priority.
//
// Two queues lead out. Control frames (HELLO, EVENT, CREDIT, CLOSE …) wait in one of them and are
// always taken first; DATA has none, it is read from a command's pipe only when the staging buffer
// has room, so what a slow peer can make this process hold is that buffer and the control queue.
// Descriptors travel only over unix sockets. They form a FIFO of their own beside the bytes: a
// frame says in a field how many it takes, and the sender sends them with the frame's first byte.
//
// Owns its descriptors. One thread; nothing here blocks.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"

namespace caisson::guest {

class Channel {
 public:
  // The most bytes of one DATA frame that this side sends.
  static constexpr std::size_t kDataChunk = 32 * 1024;

  // `out` is invalid where `in` goes both ways.
  static Result<Channel> create(Fd in, Fd out);

  int in_fd() const { return in_.get(); }
  int out_fd() const { return out_.valid() ? out_.get() : in_.get(); }
  bool passes_descriptors() const { return passes_descriptors_; }

  // Takes what has arrived. False: the peer has closed. An error: the connection cannot go on.
  Result<bool> receive();
  Result<std::optional<proto::Frame>> next() { return decoder_.next(); }
  // The oldest descriptor that no frame has taken yet.
  Result<Fd> take_descriptor();

  // Queues a control frame, with the descriptor that travels with it.
  void send(std::string frame, Fd descriptor = {});
  // Whether the peer reads too slowly for its own requests: take no more of them for now.
  bool congested() const { return control_bytes_ > kControlLimit; }
  bool wants_write() const { return size_ > offset_ || !control_.empty(); }
  // Writes what can be written now.
  Status flush();

  // Room for one frame of at most kDataChunk bytes: the payload's place, or nullptr while the
  // buffer is too full. commit() makes a frame of the bytes that were put there.
  char* data_room();
  void commit(std::uint32_t stream, proto::FrameType type, std::uint8_t detail, std::size_t bytes);
  // Appends a whole frame if there is room now, among the DATA.
  bool append(std::string_view frame);

 private:
  static constexpr std::size_t kStaging = 128 * 1024;
  static constexpr std::size_t kDataMark = 64 * 1024;  // DATA is added only below this
  static constexpr std::size_t kControlLimit = 1024 * 1024;
  static constexpr std::size_t kMaxWaitingDescriptors = 64;

  struct Waiting {
    std::string bytes;
    Fd descriptor;
  };

  Channel(Fd in, Fd out, bool passes_descriptors);
  void stage_control();
  Result<std::size_t> write_some(std::string_view bytes, int descriptor);

  Fd in_, out_;
  bool passes_descriptors_;
  proto::Decoder decoder_;
  std::deque<Fd> descriptors_;
  std::deque<Waiting> control_;
  std::size_t control_bytes_ = 0;
  std::unique_ptr<char[]> staging_;
  std::size_t offset_ = 0, size_ = 0;
  // Sent with the first byte of the staging buffer, which then holds that one frame alone.
  Fd staged_descriptor_;
};

}  // namespace caisson::guest
