#include "base/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace caisson {
namespace {

using ::testing::MatchesRegex;

TEST(Secret, RandomTextsHaveTheirFormAndDiffer) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(1000).size(), 1000u);
  EXPECT_THAT(random_hex(7), MatchesRegex("[0-9a-f]{7}"));
  EXPECT_THAT(random_id(20), MatchesRegex("[a-z0-9]{20}"));
  EXPECT_THAT(random_uuid(),
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(random_hex(40), random_hex(40));
  EXPECT_NE(random_id(20), random_id(20));
  EXPECT_NE(random_uuid(), random_uuid());
}

TEST(Secret, IdsUseTheWholeAlphabet) {
  const std::string id = random_id(10'000);
  EXPECT_EQ(std::set<char>(id.begin(), id.end()).size(), 36u);
}

TEST(Secret, ComparisonSeesEveryByteAndTheLength) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "xbc"));
  EXPECT_FALSE(same_secret("abc", "abcd"));
  EXPECT_FALSE(same_secret("abc", std::string_view("abc\0", 4)));
}

TEST(Secret, WipedTextLeavesNoByteInItsMemory) {
  std::string text(100, 'x');
  const char* const memory = text.data();
  wipe(text);
  EXPECT_EQ(text, "");
  ASSERT_GE(text.capacity(), 100u);
  EXPECT_EQ(std::string(memory, 100), std::string(100, '\0'));
}

TEST(Secret, TakenValueIsNoLongerWhereItWas) {
  std::string text = "correct horse battery staple";
  const char* const memory = text.data();
  const SecretValue value = SecretValue::take(text);
  EXPECT_EQ(value.bytes(), "correct horse battery staple");
  EXPECT_EQ(memory[0], '\0');
}

TEST(Secret, MovedValueIsInOnePlace) {
  SecretValue first("first value");
  SecretValue second("second value");
  second = std::move(first);
  EXPECT_EQ(second.bytes(), "first value");
  EXPECT_EQ(first.bytes(), "");  // NOLINT: what a move leaves is part of the promise
  const SecretValue third = std::move(second);
  EXPECT_EQ(third.bytes(), "first value");
  EXPECT_EQ(second.bytes(), "");  // NOLINT
}

}  // namespace
}  // namespace caisson
