#include "egress/rate.h"

#include "base/error.h"

namespace caisson::egress {
namespace {

constexpr std::uint64_t kToken = 1'000'000'000;

}  // namespace

TokenBucket::TokenBucket(Rate rate, Time now)
    : rate_(rate), credit_(rate.burst * kToken), last_(now) {
  VERIFY(rate.per_second > 0 && rate.burst > 0);
}

std::uint64_t TokenBucket::credit_at(Time now) const {
  if (now <= last_) return credit_;
  const auto passed = static_cast<std::uint64_t>(std::chrono::nanoseconds(now - last_).count());
  const std::uint64_t missing = rate_.burst * kToken - credit_;
  // Compared by division: the product need not fit.
  if (passed >= missing / rate_.per_second + 1) return rate_.burst * kToken;
  return credit_ + passed * rate_.per_second;
}

bool TokenBucket::take(Time now) {
  credit_ = credit_at(now);
  if (now > last_) last_ = now;
  if (credit_ < kToken) return false;
  credit_ -= kToken;
  return true;
}

std::chrono::nanoseconds TokenBucket::wait(Time now) const {
  const std::uint64_t credit = credit_at(now);
  if (credit >= kToken) return std::chrono::nanoseconds(0);
  const std::uint64_t left = (kToken - credit + rate_.per_second - 1) / rate_.per_second;
  const auto behind = now < last_ ? last_ - now : Time::duration(0);
  return std::chrono::nanoseconds(left) + behind;
}

}  // namespace caisson::egress
