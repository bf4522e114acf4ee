#include "api/templates/store_moment.h"

#include <gtest/gtest.h>

namespace caisson::api {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr StoreMoment::Clock::time_point kBegin{hours(1000)};

TEST(StoreMomentTest, IsDueWhereNoneCameByItself) {
  StoreMoment moment(hours(1), minutes(10));
  moment.had(kBegin);
  EXPECT_FALSE(moment.is_due(kBegin));
  EXPECT_FALSE(moment.is_due(kBegin + minutes(59)));
  EXPECT_TRUE(moment.is_due(kBegin + minutes(60)));
  EXPECT_TRUE(moment.is_due(kBegin + minutes(69)));
  moment.had(kBegin + minutes(69));
  EXPECT_FALSE(moment.is_due(kBegin + minutes(128)));
  EXPECT_TRUE(moment.is_due(kBegin + minutes(129)));
}

TEST(StoreMomentTest, IsNotWaitedForForEverButLongerEachTime) {
  StoreMoment moment(hours(1), minutes(10));
  moment.had(kBegin);
  EXPECT_TRUE(moment.is_due(kBegin + minutes(60)));
  EXPECT_FALSE(moment.is_due(kBegin + minutes(70)));
  EXPECT_FALSE(moment.is_due(kBegin + minutes(129)));
  EXPECT_TRUE(moment.is_due(kBegin + minutes(130)));
  EXPECT_TRUE(moment.is_due(kBegin + minutes(149)));
  EXPECT_EQ(moment.patience(), minutes(20));
  EXPECT_FALSE(moment.is_due(kBegin + minutes(150)));
  // One that came makes the next wait short again.
  moment.had(kBegin + minutes(150));
  EXPECT_EQ(moment.patience(), minutes(10));
}

TEST(StoreMomentTest, TheWaitIsBounded) {
  StoreMoment moment(hours(1), minutes(10));
  moment.had(kBegin);
  StoreMoment::Clock::time_point now = kBegin;
  for (int i = 0; i < 100; ++i) {
    now += hours(1) + moment.patience();
    EXPECT_FALSE(moment.is_due(now));
  }
  EXPECT_EQ(moment.patience(), hours(24));
}

}  // namespace
}  // namespace caisson::api
