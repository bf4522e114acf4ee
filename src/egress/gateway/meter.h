// What the connections of one sandbox may use together, and the stream that holds them to it.
//
// A Meter counts connections, bytes and how fast they go, for all connections of a sandbox. A
// MeteredStream is the gateway's end of one connection of the sandbox: every byte of it goes
// through the meter, bytes that were looked at before are read again, and it ends when nothing has
// moved for too long. Belongs to the loop; the meter outlives its streams.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <caisson/network.h>

#include "egress/rate.h"
#include "io/loop.h"
#include "io/stream.h"

namespace caisson::egress {

class MeteredStream;

class Meter {
 public:
  explicit Meter(const policy::NetworkLimits& limits);
  // New limits for what comes from now on; what was counted stays.
  void set_limits(const policy::NetworkLimits& limits);
  const policy::NetworkLimits& limits() const { return limits_; }

  // Whether one more connection may begin; empty, or the name of the limit that is in its way.
  std::string_view connection_fault();
  bool take_query();

  std::uint64_t bytes_up() const { return up_.total; }
  std::uint64_t bytes_down() const { return down_.total; }
  std::uint64_t connections() const { return streams_.size(); }
  // Ends all of them with a reset.
  void reset_all();

 private:
  friend class MeteredStream;
  struct Direction {
    std::uint64_t total = 0;
    // When the bytes so far will have gone at the rate that is allowed.
    io::Clock::time_point free_at{};
  };
  // Counts bytes and says how long they have to wait. Error: resource_exhausted with the limit's
  // name.
  Result<io::Clock::duration> pass(Direction& direction, std::optional<std::uint64_t> most,
                                   std::optional<std::uint64_t> rate, std::size_t bytes);

  policy::NetworkLimits limits_;
  std::optional<TokenBucket> new_connections_, queries_;
  Direction up_, down_;
  std::list<MeteredStream*> streams_;
};

class MeteredStream final : public io::Stream {
 public:
  // `seen` was read from `stream` already.
  MeteredStream(Meter& meter, std::unique_ptr<io::Stream> stream, std::string seen);
  ~MeteredStream() override;

  // Reads more behind what was seen, which stays to be read: for whoever must look first. Error:
  // that of read(); the end is one (unavailable).
  io::Async<Status> look_further(io::Clock::duration time);
  std::string_view seen() const { return seen_; }

  io::Async<Result<std::size_t>> read(std::span<char> into) override;
  io::Async<Status> wait_readable() override;
  io::Async<Status> write(std::string_view bytes) override;
  io::Async<void> finish() override;
  void close(Close how) override;
  void set_timeout(io::Clock::duration time) override;
  std::string peer() const override { return stream_->peer(); }
  std::string original_destination() const override { return stream_->original_destination(); }

  std::uint64_t bytes_up() const { return up_; }
  std::uint64_t bytes_down() const { return down_; }
  // The limit that ended it; empty: none.
  std::string_view ended_by() const { return ended_by_; }
  // When a byte last moved.
  io::Clock::time_point moved_at() const { return moved_at_; }
  void end_for(std::string_view limit);

 private:
  Meter& meter_;
  std::unique_ptr<io::Stream> stream_;
  std::string seen_;
  std::list<MeteredStream*>::iterator place_;
  std::uint64_t up_ = 0, down_ = 0;
  std::string_view ended_by_;
  io::Clock::time_point moved_at_ = io::Clock::now();
};

}  // namespace caisson::egress
