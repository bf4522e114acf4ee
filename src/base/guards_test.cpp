#include "base/guards.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>
#include <string>

namespace caisson {
namespace {

#if defined(CAISSON_TEST_SWITCHES)
TEST(Guards, EveryGuardHasItsOwnName) {
  std::set<std::string_view> names;
  for (const std::string_view name : kGuardNames) {
    EXPECT_EQ(name.find(','), std::string_view::npos);
    EXPECT_TRUE(!name.empty() && names.insert(name).second) << name;
  }
  EXPECT_EQ(parse_guards("host_bytes").value(), Guards().set(0));
  EXPECT_TRUE(parse_guards("floor").value().test(static_cast<std::size_t>(Guard::kFloor)));
}

TEST(Guards, NamesBecomeASet) {
  EXPECT_TRUE(parse_guards("").value().none());
  const Guards two = parse_guards("floor,scrub").value();
  EXPECT_EQ(two.count(), 2u);
  EXPECT_TRUE(two.test(static_cast<std::size_t>(Guard::kScrub)));
}

TEST(Guards, AnUnknownNameIsRefusedByName) {
  for (const std::string_view text : {"everything", "floor,,scrub", "Floor", "floor,everything"}) {
    const auto refused = parse_guards(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  }
  EXPECT_NE(parse_guards("floor,everything").error().message().find("\"everything\""),
            std::string::npos);
}
#else
TEST(Guards, TheReleaseBuildDoesWithoutNone) {
  ASSERT_EQ(::setenv("CAISSON_GUARD_OFF", "floor,scrub", 1), 0);
  for (std::size_t i = 0; i < kGuardCount; ++i) EXPECT_FALSE(guard_off(static_cast<Guard>(i)));
  static_assert(!guard_off(Guard::kFloor));
  ::unsetenv("CAISSON_GUARD_OFF");
}
#endif

}  // namespace
}  // namespace caisson
