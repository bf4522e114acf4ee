#include "base/file_time.h"

#include <gtest/gtest.h>

namespace caisson {
namespace {

constexpr auto kMost = static_cast<std::uint64_t>(INT64_MAX);
constexpr auto kLeast = static_cast<std::uint64_t>(INT64_MIN);

TEST(FileTime, ComesBackAsItWas) {
  for (const timespec time : {timespec{1'700'000'000, 123'456'789}, timespec{0, 0},
                              timespec{-1, 999'999'999}, timespec{-2'000'000'000, 1}}) {
    const timespec back = to_timespec(to_nanoseconds(time));
    EXPECT_EQ(back.tv_sec, time.tv_sec);
    EXPECT_EQ(back.tv_nsec, time.tv_nsec);
  }
}

TEST(FileTime, WhatDoesNotFitBecomesTheNearest) {
  EXPECT_EQ(to_nanoseconds({INT64_MAX / 2, 0}), kMost);
  EXPECT_EQ(to_nanoseconds({INT64_MIN / 2, 0}), kLeast);
  EXPECT_EQ(to_nanoseconds({INT64_MAX / kNanosecondsPerSecond, 999'999'999}), kMost);
}

TEST(FileTime, EveryNumberGivesAValidTime) {
  for (const std::uint64_t number : {std::uint64_t{0}, kMost, kLeast, kLeast + 1, UINT64_MAX}) {
    const timespec time = to_timespec(number);
    EXPECT_GE(time.tv_nsec, 0);
    EXPECT_LT(time.tv_nsec, kNanosecondsPerSecond);
    EXPECT_EQ(to_nanoseconds(time), number);
  }
}

}  // namespace
}  // namespace caisson
