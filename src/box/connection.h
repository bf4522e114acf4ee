// The client's end of the framed protocol (base/proto.h): one socket to a sandbox's supervisor.
//
// Owns the socket. Sends are queued and written when the socket takes them, so that a full socket
// never stops the reading side; nothing blocks but wait(). HELLO goes out with the first bytes and
// the peer's is checked when it comes. What the peer sends is checked frame by frame: the first
// violation is final. One thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"

namespace caisson::box {

class Connection {
 public:
  // `socket` is a connected stream socket; queues our HELLO.
  explicit Connection(Fd socket);

  int fd() const { return socket_.get(); }
  bool wants_write() const { return sent_ < out_.size(); }
  // POLLIN, and POLLOUT while something is queued.
  short events() const { return static_cast<short>(POLLIN | (wants_write() ? POLLOUT : 0)); }
  std::size_t queued() const { return out_.size() - sent_; }

  // A number for a stream that this side opens.
  std::uint32_t new_stream();
  void send(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
            std::string_view payload);

  // Writes and reads what is possible without waiting, as poll() found (`revents`).
  Status progress(short revents);
  // The next whole frame of a stream (HELLO is handled here), nullopt when there is none yet.
  // Error: the peer broke the protocol, or has gone and everything it sent was taken.
  Result<std::optional<proto::Frame>> next();
  // The oldest descriptor that has come and nobody has taken; invalid: there is none. They come
  // with the frame that says so, or before it.
  Fd take_descriptor();
  // Waits for the next frame. Error: deadline_exceeded where nothing moved for `silence_ms` (-1:
  // for ever).
  Result<proto::Frame> wait(int silence_ms = -1);
  // Writes until at most `most` bytes are queued; reads meanwhile.
  Status flush(std::size_t most = 0);
  // No more frames will be sent.
  void finish();

 private:
  Status write_some();
  Status read_some();

  Fd socket_;
  proto::Decoder decoder_;
  std::deque<Fd> received_;
  std::string out_;
  std::size_t sent_ = 0;
  std::uint32_t next_stream_ = 1;
  bool greeted_ = false;
  bool ended_ = false;
};

// Credit of one stream's channels as this side sees it: what it may send, and what it granted.
class Credit {
 public:
  // Bytes that may be sent on kIn now.
  std::uint64_t may_send() const { return may_send_; }
  void spent(std::uint64_t bytes) { may_send_ -= bytes; }
  // A CREDIT frame for kIn. Error: malformed, or beyond any sensible sum.
  Status granted(std::string_view payload);
  // DATA came on `channel`. Error: more than was granted, or an unknown channel.
  Status received(std::uint8_t channel, std::size_t bytes);
  // The bytes are consumed: what to grant anew now (0: not yet worth a frame).
  std::uint32_t consumed(std::uint8_t channel, std::size_t bytes);

 private:
  std::uint64_t may_send_ = proto::kInitialCredit;
  std::uint64_t granted_[3] = {0, proto::kInitialCredit, proto::kInitialCredit};
  std::uint64_t owed_[3] = {0, 0, 0};
};

// The payload of a CREDIT frame.
std::string credit_payload(std::uint32_t bytes);

}  // namespace caisson::box
