// The server's connection to one sandbox: the client side of the supervisor's framed protocol
// (base/proto.h, docs/formats/guest-protocol.md) for many coroutines at once.
//
// One socket, one reader coroutine, any number of streams. Everything that comes is hostile input;
// the first violation ends the connection, and with it every stream. What a stream holds back is
// bounded by the credit that it granted, and credit is granted as its reader takes messages, so a
// slow reader costs 256 KiB a channel and delays no other stream. Belongs to the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/proto.h"
#include "io/async.h"
#include "io/loop.h"
#include "io/stream.h"

namespace caisson::fleet {

// One stream of a BoxClient; dropping it sends CLOSE where it is still open. May outlive the
// client, of which it then sees the end.
class BoxStream {
 public:
  struct Message {
    enum class Kind : std::uint8_t { kEvent, kData, kFinish, kClose };
    Kind kind = Kind::kClose;
    proto::Channel channel = proto::Channel::kOut;  // kData, kFinish
    std::string bytes;                              // the payload
  };

  ~BoxStream();
  BoxStream(const BoxStream&) = delete;
  BoxStream& operator=(const BoxStream&) = delete;

  // The next message in the order of arrival. After kClose only errors follow. Error: unavailable
  // where the sandbox has gone.
  io::Async<Result<Message>> next();
  // The same; nullopt at the time.
  io::Async<Result<std::optional<Message>>> next_until(io::Clock::time_point time);
  // Sends on channel 0 as the credit allows; returns when all is handed on. Error: the stream has
  // ended (failed_precondition), the sandbox has gone (unavailable).
  io::Async<Status> write(std::string bytes);
  // Waits until all that was written has been granted again: the supervisor has passed it on, and
  // nothing can drop it any more. Error: the stream ended before.
  io::Async<Status> taken();
  // No more comes on channel 0.
  void finish();
  void control(const proto::Fields& fields);
  bool closed() const;

 private:
  friend class BoxClient;
  struct State;
  explicit BoxStream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class BoxClient {
 public:
  // `socket_path`: RUN/sandboxes/ID/socket. Returns when both sides have said HELLO.
  static io::Async<Result<std::unique_ptr<BoxClient>>> connect(io::Loop& loop,
                                                               std::string socket_path);
  // The same over a connection that stands.
  static io::Async<Result<std::unique_ptr<BoxClient>>> connect(io::Loop& loop,
                                                               std::unique_ptr<io::Stream> socket);
  ~BoxClient();

  // Error: unavailable where the sandbox has gone, resource_exhausted with too many open streams.
  Result<std::unique_ptr<BoxStream>> open(proto::Kind kind, const proto::Fields& fields);
  // A request of stream 0 (proto::ControlOperation above kReseed): every EVENT that answers it, the
  // last of which may be an error. Error: also deadline_exceeded, after `time`.
  io::Async<Result<std::vector<std::string>>> request(proto::ControlOperation operation,
                                                      proto::Fields fields,
                                                      io::Clock::duration time = kAnswerTime);
  static constexpr std::chrono::seconds kAnswerTime{15};
  // Ends the sandbox.
  void shutdown();
  bool gone() const;
  io::Async<void> wait_gone();
  io::Async<void> wait_gone_until(io::Clock::time_point time);
  // Calls it, once, on the loop when the connection has ended, which may be now; in place of what
  // was to be called before. nullptr: nothing.
  void on_gone(std::function<void()> handler);

  struct State;  // for box_client.cpp alone

 private:
  explicit BoxClient(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace caisson::fleet
