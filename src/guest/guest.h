// The guest's loop: one thread, one poll(2), every stream in its turn.
//
// The loop ends when the channel does: the peer closed it, or sent what cannot be a frame. As PID 1
// the guest then kills every process of the sandbox. Nothing that comes from inside the sandbox can
// end it or make it wait: descriptors never block, file work is done by forked children.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "guest/channel.h"
#include "guest/stream.h"

namespace caisson::guest {

struct GuestOptions {
  Fd channel_in;
  Fd channel_out;  // invalid: channel_in goes both ways
  Inside inside;
};

class Guest {
 public:
  // Also makes the process fit for the job: not dumpable, every signal blocked, 0 to 2 occupied.
  static Result<std::unique_ptr<Guest>> create(GuestOptions options);
  ~Guest();

  // Until the channel ends. An error says why the connection could not go on.
  Status run();

 private:
  Guest(Channel channel, Inside inside, Fd signals);
  Status take_frames();
  Status take_frame(const proto::Frame& frame);
  Status take_hello(const proto::Frame& frame);
  Result<std::vector<Fd>> take_descriptors(const proto::Frame& frame);
  void open_stream(const proto::Frame& frame, std::vector<Fd> descriptors);
  // Null where the answer is out already.
  Result<std::unique_ptr<Stream>> make_stream(const proto::Frame& frame,
                                              std::vector<Fd> descriptors);
  Result<std::unique_ptr<Stream>> control(std::uint32_t id, const proto::FieldReader& fields);
  Status begin_shutdown(std::uint32_t id, const proto::FieldReader& fields);
  bool shutdown_is_due() const;
  Status begin_ending(std::uint32_t id);
  void settle_ending();
  static bool has_children();
  void close_stream(std::uint32_t id);
  void close_with_error(std::uint32_t id, const Error& error);
  void reap();
  void produce();
  void end_everything();

  Channel channel_;
  Inside inside_;
  Fd signals_;
  std::map<std::uint32_t, std::unique_ptr<Stream>> streams_;
  Poller poller_;
  std::uint32_t highest_stream_ = 0;
  std::uint32_t last_turn_ = 0;
  bool hello_taken_ = false;
  bool room_again_ = false;
  struct Shutdown {
    std::uint32_t stream;
    std::chrono::steady_clock::time_point deadline;
  };
  std::optional<Shutdown> shutdown_;
  std::optional<std::uint32_t> ending_;  // the stream that waits for the end of all processes
};

}  // namespace caisson::guest
