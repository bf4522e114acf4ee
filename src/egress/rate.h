// How often something may happen: a bucket of tokens that fills with time. The gateway holds
// queries and new connections of a sandbox to it. The time is given, so that it is exact and can be
// tested; whole tokens only come out, but no part of one is lost to rounding.
//
// Pure; one bucket an owner, no threads.
#pragma once

#include <chrono>
#include <cstdint>

namespace caisson::egress {

struct Rate {
  std::uint32_t per_second = 1;  // from 1
  std::uint32_t burst = 1;       // from 1: how many at once after a pause
};

class TokenBucket {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Full at `now`. Both numbers of `rate` are at least 1: policy refuses others.
  TokenBucket(Rate rate, Time now);

  // Takes one token if there is one. A time before the last one counts as the last one.
  bool take(Time now);
  // How long from `now` until take() gives one; 0: at once.
  std::chrono::nanoseconds wait(Time now) const;

 private:
  // In billionths of a token: what a rate of one a second adds in a nanosecond.
  std::uint64_t credit_at(Time now) const;

  Rate rate_;
  std::uint64_t credit_;
  Time last_;
};

}  // namespace caisson::egress
