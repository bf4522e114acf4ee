// What the connections of one sandbox may use together, and the stream that holds them to it.
//
// A Meter counts connections, bytes and how fast they go, for all connections of a sandbox. A
// MeteredStream is the gateway's end of one connection of the sandbox: every byte of it goes
// through the meter, bytes that were looked at before are read again, and it ends when nothing has
// moved for too long. Connections that are made for the sandbox on the other side are counted apart
// (UpstreamPlace): with HTTP/2 one connection of a sandbox may need many. Belongs to the loop; the
// meter outlives its streams and its places.
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
  // Made for the sandbox, at once; no more than it may have itself.
  std::uint64_t upstreams() const { return upstreams_; }
  // Ends all of them with a reset.
  void reset_all();

 private:
  friend class MeteredStream;
  friend class UpstreamPlace;
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
  std::uint64_t upstreams_ = 0;
};

// One connection that is made for the sandbox, for as long as it lives.
class UpstreamPlace {
 public:
  // null: there are as many as limits.connections allows.
  static std::unique_ptr<UpstreamPlace> take(Meter& meter);
  ~UpstreamPlace() { --meter_.upstreams_; }
  UpstreamPlace(const UpstreamPlace&) = delete;
  UpstreamPlace& operator=(const UpstreamPlace&) = delete;

 private:
  explicit UpstreamPlace(Meter& meter) : meter_(meter) { ++meter_.upstreams_; }
  Meter& meter_;
};

// What a request comes on: a connection of the sandbox, or one stream of those that share one
// (HTTP/2).
class Carrier {
 public:
  virtual ~Carrier() = default;
  // That went to the sandbox.
  virtual std::uint64_t bytes_down() const = 0;
  // When a byte last moved.
  virtual io::Clock::time_point moved_at() const = 0;
  // Ends it at once, for a limit or a policy.
  virtual void end_for(std::string_view limit) = 0;
  // What it was ended for; empty: nothing.
  virtual std::string_view ended_by() const = 0;
};

class MeteredStream final : public io::Stream, public Carrier {
 public:
  // `seen` was read from `stream` already.
  MeteredStream(Meter& meter, std::unique_ptr<io::Stream> stream, std::string seen);
  ~MeteredStream() override;

  // Reads more behind what was seen, which stays to be read: for whoever must look first. Error:
  // that of read(); the end is one (unavailable).
  io::Async<Status> look_further(io::Clock::duration time);
  std::string_view seen() const { return seen_; }
  // What stands there in place of the first bytes of it: whoever reads on gets that.
  void replace_seen(std::size_t used, std::string_view instead) { seen_.replace(0, used, instead); }

  io::Async<Result<std::size_t>> read(std::span<char> into) override;
  io::Async<Status> wait_readable() override;
  io::Async<Status> write(std::string_view bytes) override;
  io::Async<void> finish() override;
  void close(Close how) override;
  void set_timeout(io::Clock::duration time) override;
  std::string peer() const override { return stream_->peer(); }
  std::string original_destination() const override { return stream_->original_destination(); }

  std::uint64_t bytes_up() const { return up_; }
  std::uint64_t bytes_down() const override { return down_; }
  std::string_view ended_by() const override { return ended_by_; }
  io::Clock::time_point moved_at() const override { return moved_at_; }
  void end_for(std::string_view limit) override;

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
