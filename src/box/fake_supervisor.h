// For tests: the other end of a Connection, played by the test itself on a thread of its own.
//
// It speaks the frames over a socket pair with blocking calls and no checks of its own; a script
// sends what the test wants and looks at what came. Joined in the destructor.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/proto.h"
#include "base/verdict.h"

namespace caisson::box {

class FakeSupervisor {
 public:
  using Script = std::function<void(FakeSupervisor&)>;

  explicit FakeSupervisor(Script script) {
    int ends[2];
    VERIFY(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    client_ = Fd(ends[0]);
    socket_ = Fd(ends[1]);
    thread_ = std::thread([this, script = std::move(script)] {
      script(*this);
      ::shutdown(socket_.get(), SHUT_RDWR);
    });
  }
  ~FakeSupervisor() { thread_.join(); }
  FakeSupervisor(const FakeSupervisor&) = delete;
  FakeSupervisor& operator=(const FakeSupervisor&) = delete;

  Fd take_client() { return std::move(client_); }

  void send_raw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void send(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
            std::string_view payload) {
    send_raw(proto::encode_frame(stream, type, detail, payload));
  }
  void hello(std::uint32_t version = proto::kVersion, std::uint32_t least = proto::kMinVersion) {
    proto::Fields fields;
    fields.put_u32(proto::Tag::kVersion, version).put_u32(proto::Tag::kMinVersion, least);
    send(0, proto::FrameType::kHello, 0, fields.bytes());
  }
  void out(std::uint32_t stream, std::string_view bytes,
           proto::Channel channel = proto::Channel::kOut) {
    send(stream, proto::FrameType::kData, static_cast<std::uint8_t>(channel), bytes);
  }
  void started(std::uint32_t stream) {
    send(stream, proto::FrameType::kEvent, 0,
         proto::Fields().put_u32(proto::Tag::kStarted, 7).bytes());
  }
  void close(std::uint32_t stream, const Outcome& outcome) {
    send(stream, proto::FrameType::kClose, 0, encode_outcome(outcome));
  }
  static Outcome exited(std::uint32_t code) {
    Outcome outcome;
    outcome.verdict = Verdict::kExited;
    outcome.exit_code = code;
    return outcome;
  }

  // Waits for the client's HELLO.
  void take_hello() {
    for (;;) {
      auto frame = decoder_.next();
      VERIFY(frame.has_value());
      if (frame->has_value()) {
        VERIFY((*frame)->header.type == proto::FrameType::kHello);
        return;
      }
      char buffer[4096];
      const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) return;
      decoder_.feed({buffer, static_cast<std::size_t>(count)});
    }
  }

  // The next frame that is not HELLO; a CLOSE of stream 0 when the client has gone.
  proto::Frame next() {
    for (;;) {
      auto frame = decoder_.next();
      VERIFY(frame.has_value());
      if (frame->has_value()) {
        if ((*frame)->header.type == proto::FrameType::kHello) continue;
        return std::move(**frame);
      }
      char buffer[65536];
      const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) return {.header = {.type = proto::FrameType::kClose}, .payload = {}};
      decoder_.feed({buffer, static_cast<std::size_t>(count)});
    }
  }
  // The next frame of that type; others are dropped.
  proto::Frame next(proto::FrameType type) {
    for (;;) {
      proto::Frame frame = next();
      if (frame.header.type == type || frame.header.stream == 0) return frame;
    }
  }

 private:
  Fd client_, socket_;
  proto::Decoder decoder_;
  std::thread thread_;
};

}  // namespace caisson::box
