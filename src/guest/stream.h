// What the guest's loop knows of a stream: descriptors to wait for, frames to take, frames to give.
//
// The loop asks every stream before each poll(2) what it waits for (prepare), tells it afterwards
// (service), hands it the peer's frames, and gives it turns to produce output while the channel has
// room: one frame a turn, in a circle over all streams, so that none starves another. A stream ends
// by sending its CLOSE frame itself; then finished() is true and the loop destroys it.
#pragma once

#include <poll.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"
#include "base/switches.h"
#include "guest/channel.h"

namespace caisson::guest {

// The descriptors and the nearest deadline of one turn of the loop.
class Poller {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void clear() {
    entries_.clear();
    timeout_ms_ = -1;
  }
  // The entry's index for ready(); kNone for an invalid descriptor or no events.
  std::size_t add(int fd, short events);
  short ready(std::size_t index) const {
    return index == kNone ? short{0} : entries_[index].revents;
  }
  void wake_within(std::int64_t timeout_ms);
  Status wait();

 private:
  std::vector<pollfd> entries_;
  std::int64_t timeout_ms_ = -1;
};

// Whom the kernel ends first where memory is short: a command before the guest, whose end would be
// that of all of them. A child is born with its parent's score, and could not raise its own: its
// file in /proc is not the child's, as nothing of a process is that cannot be dumped. So the guest
// has the commands' score for the moment of a birth.
class OomScore {
 public:
  // Opens the caller's own score, which must be dumpable. Where there is none to open, nothing is
  // ever changed.
  static OomScore open();
  void raise() const { set(score_ + kCommand); }
  void restore() const { set(score_); }

 private:
  static constexpr int kCommand = 100;
  static constexpr int kMost = 1000;
  void set(int score) const;

  Fd file_;
  int score_ = 0;
};

// What every forked child is put into.
struct Inside {
  Fd userns;     // invalid: children stay in the guest's user namespace
  Fd cgroup_ns;  // invalid: they stay in the guest's control group namespace
  OomScore oom_score;
  SwitchMask disabled_mechanisms = 0;
  // RLIMIT_NOFILE as the guest found it; its own is higher, for all its streams.
  rlimit open_files{};
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void prepare(Poller& poller) = 0;
  virtual void service(const Poller& poller, Channel& channel) = 0;
  // Adds at most one frame to the channel; false where there is nothing to add or no room.
  virtual bool produce(Channel& channel) = 0;
  // A DATA, CREDIT, FINISH, CONTROL or CLOSE frame of the peer. An error ends the stream: the loop
  // answers with a CLOSE that carries it.
  virtual Status take(const proto::Frame& frame, Channel& channel) = 0;
  // The process `pid` has ended; true when it was this stream's.
  virtual bool reaped(pid_t pid, int status, const rusage& usage, Channel& channel) = 0;
  // Ends at once what runs for this stream.
  virtual void kill() = 0;
  // Asks what runs for this stream to end.
  virtual void terminate() {}
  virtual bool finished() const = 0;
};

}  // namespace caisson::guest
