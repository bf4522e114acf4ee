#include "base/switches.h"

#include <gtest/gtest.h>

#include <set>

namespace caisson {
namespace {

TEST(Switches, EveryMechanismHasItsOwnName) {
  std::set<std::string_view> names;
  for (const std::string_view name : kMechanismNames) {
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(name.find(','), std::string_view::npos);
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(Mechanism::kSeccomp), "seccomp");
  EXPECT_EQ(to_string(Mechanism::kUidSplit), "uid_split");
  EXPECT_EQ(to_string(Mechanism::kPivot), "pivot");
  EXPECT_EQ(to_string(Mechanism::kNamespaceLimits), "namespace_limits");
  EXPECT_EQ(to_string(Mechanism::kPathBeneath), "path_beneath");
}

#if defined(CAISSON_TEST_SWITCHES)
TEST(Switches, NamesBecomeBits) {
  EXPECT_EQ(parse_switches("").value(), 0u);
  const SwitchMask mask = parse_switches("seccomp,path_beneath").value();
  EXPECT_EQ(mask, bit_of(Mechanism::kSeccomp) | bit_of(Mechanism::kPathBeneath));
  EXPECT_TRUE(is_off(mask, Mechanism::kSeccomp));
  EXPECT_FALSE(is_off(mask, Mechanism::kLandlock));
}

TEST(Switches, AnUnknownNameIsRefusedByName) {
  const auto result = parse_switches("seccomp,everything");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_NE(result.error().message().find("\"everything\""), std::string::npos);
  EXPECT_NE(result.error().message().find("landlock"), std::string::npos);
  EXPECT_FALSE(parse_switches("seccomp,,landlock").has_value());
}
#else
TEST(Switches, TheReleaseBuildCannotTurnAnythingOff) {
  for (std::size_t i = 0; i < kMechanismCount; ++i) {
    EXPECT_FALSE(is_off(~SwitchMask{0}, static_cast<Mechanism>(i)));
  }
}
#endif

}  // namespace
}  // namespace caisson
