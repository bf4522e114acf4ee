#include "egress/rate.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations

using Time = TokenBucket::Time;
constexpr Time kStart{1h};

int take_all(TokenBucket& bucket, Time now) {
  int taken = 0;
  while (bucket.take(now)) ++taken;
  return taken;
}

TEST(TokenBucket, GivesABurstAndThenTheRate) {
  TokenBucket bucket({.per_second = 50, .burst = 100}, kStart);
  EXPECT_EQ(take_all(bucket, kStart), 100);
  EXPECT_EQ(take_all(bucket, kStart + 19ms), 0);
  EXPECT_EQ(take_all(bucket, kStart + 20ms), 1);
  EXPECT_EQ(take_all(bucket, kStart + 1020ms), 50);
}

TEST(TokenBucket, NeverHoldsMoreThanTheBurst) {
  TokenBucket bucket({.per_second = 50, .burst = 3}, kStart);
  EXPECT_EQ(take_all(bucket, kStart + 24h), 3);
  EXPECT_EQ(take_all(bucket, kStart + 10 * 365 * 24h), 3);
}

TEST(TokenBucket, LosesNoPartOfATokenToRounding) {
  // Seven a second do not divide a second; asked a thousand times a second.
  TokenBucket bucket({.per_second = 7, .burst = 2}, kStart);
  int taken = 0;
  for (int i = 0; i <= 10'000; ++i) taken += bucket.take(kStart + i * 1ms) ? 1 : 0;
  EXPECT_EQ(taken, 2 + 70);
}

TEST(TokenBucket, SaysHowLongToWait) {
  TokenBucket bucket({.per_second = 3, .burst = 1}, kStart);
  EXPECT_EQ(bucket.wait(kStart), 0ns);
  EXPECT_TRUE(bucket.take(kStart));
  const auto wait = bucket.wait(kStart);
  EXPECT_EQ(wait, 333'333'334ns);
  EXPECT_FALSE(bucket.take(kStart + wait - 1ns));
  EXPECT_TRUE(bucket.take(kStart + wait));
}

TEST(TokenBucket, ATimeBeforeTheLastAddsNothing) {
  TokenBucket bucket({.per_second = 1, .burst = 1}, kStart);
  EXPECT_TRUE(bucket.take(kStart + 10s));
  EXPECT_FALSE(bucket.take(kStart));
  EXPECT_EQ(bucket.wait(kStart + 9s), 2s);
  EXPECT_FALSE(bucket.take(kStart + 10s));
  EXPECT_TRUE(bucket.take(kStart + 11s));
}

TEST(TokenBucket, TheLargestNumbersFit) {
  constexpr std::uint32_t kMost = UINT32_MAX;
  TokenBucket bucket({.per_second = kMost, .burst = kMost}, kStart);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(bucket.take(kStart));
  EXPECT_EQ(bucket.wait(Time::max()), 0ns);
  EXPECT_TRUE(bucket.take(Time::max()));
}

}  // namespace
}  // namespace caisson::egress
