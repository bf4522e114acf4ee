#include "base/time_text.h"

#include <gtest/gtest.h>

namespace caisson {
namespace {

constexpr WallTime kTime{std::chrono::milliseconds(1767323045678)};

TEST(TimeTextTest, WritesMicroseconds) {
  EXPECT_EQ(time_text(kTime), "2026-01-02T03:04:05.678000Z");
}

TEST(TimeTextTest, RoundsDown) {
  EXPECT_EQ(time_text(kTime + std::chrono::nanoseconds(1999)), "2026-01-02T03:04:05.678001Z");
}

TEST(TimeTextTest, ReadsWhatItWrites) {
  EXPECT_EQ(parse_time(time_text(kTime)), kTime);
}

TEST(TimeTextTest, ReadsOffsetsAndFractionsOfAnyLength) {
  EXPECT_EQ(parse_time("2026-01-02T03:04:05.678Z"), kTime);
  EXPECT_EQ(parse_time("2026-01-02t03:04:05.678z"), kTime);
  EXPECT_EQ(parse_time("2026-01-02 04:34:05.678000000+01:30"), kTime);
  EXPECT_EQ(parse_time("2026-01-01T22:04:05.678-05:00"), kTime);
  EXPECT_EQ(parse_time("2026-01-02T03:04:05Z"), kTime - std::chrono::milliseconds(678));
  EXPECT_EQ(parse_time("2026-01-02T03:04:05.000000001Z"),
            kTime - std::chrono::milliseconds(678) + std::chrono::nanoseconds(1));
}

TEST(TimeTextTest, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "2026-01-02", "2026-01-02T03:04:05", "2026-02-30T03:04:05Z", "2026-13-01T03:04:05Z",
        "2026-01-02T24:04:05Z", "2026-01-02T03:60:05Z", "2026-01-02T03:04:61Z",
        "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.1234567890Z", "2026-01-02T03:04:05+1:00",
        "2026-01-02T03:04:05+24:00", "2026-01-02T03:04:05+01:60", "2026-01-02T03:04:05Z ",
        "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z", "20x6-01-02T03:04:05Z", "tomorrow"}) {
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace caisson
