#include "egress/secrets/placeholder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/encoding.h"
#include "base/json.h"
#include "base/secret.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

using policy::SecretShape;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string made(const SecretShape& shape, std::string_view value) {
  auto placeholder = make_placeholder(shape, value, random_bytes);
  EXPECT_TRUE(placeholder.has_value()) << placeholder.error().message();
  return placeholder.value_or("");
}

TEST(Placeholder, HasTheLengthOfAValueThatLeavesRoomForRandomBits) {
  EXPECT_THAT(made({}, std::string(40, 'v')), MatchesRegex("[A-Za-z0-9]{40}"));
  EXPECT_THAT(made({}, std::string(22, 'v')), MatchesRegex("[A-Za-z0-9]{22}"));
  EXPECT_THAT(made({}, "12345678"), MatchesRegex("[A-Za-z0-9]{22}"));
}

TEST(Placeholder, KeepsAPrefix) {
  const SecretShape shape{SecretShape::Kind::kPrefix, "ghp_"};
  EXPECT_THAT(made(shape, std::string(40, 'v')), MatchesRegex("ghp_[A-Za-z0-9]{36}"));
  EXPECT_THAT(made(shape, "ghp_short"), MatchesRegex("ghp_[A-Za-z0-9]{22}"));
}

TEST(Placeholder, OfNoShapeSaysNothingOfTheLength) {
  const SecretShape shape{SecretShape::Kind::kNone, ""};
  EXPECT_THAT(made(shape, "12345678"), MatchesRegex("[A-Za-z0-9]{32}"));
  EXPECT_THAT(made(shape, std::string(1000, 'v')), MatchesRegex("[A-Za-z0-9]{32}"));
}

TEST(Placeholder, OfAnAwsKeyHasTheFormOfItsId) {
  const SecretShape shape{SecretShape::Kind::kAws, ""};
  EXPECT_THAT(made(shape, "ASIA0123456789ABCDEF"), MatchesRegex("AKIA[A-Z2-7]{16}"));
  EXPECT_THAT(made(shape, std::string(40, '/')), MatchesRegex("[A-Za-z0-9]{40}"));
  const auto other = make_placeholder(shape, "123456789", random_bytes);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message(), HasSubstr("has 9 bytes; allowed are 20"));
}

TEST(Placeholder, OfAJwtParsesAsOneOfTheSameLength) {
  const SecretShape shape{SecretShape::Kind::kJwt, ""};
  const std::size_t least = made(shape, "12345678").size();
  for (std::size_t length = least; length < least + 40; ++length) {
    const std::string token = made(shape, std::string(length, 'v'));
    // A length that is three short of a group cannot be had at the very beginning.
    if (length >= least + 4) EXPECT_EQ(token.size(), length);
    ASSERT_TRUE(is_placeholder(token)) << token;
    const std::size_t first = token.find('.'), second = token.rfind('.');
    ASSERT_LT(first, second);
    const auto header = json::parse(base64url_decode(token.substr(0, first)).value());
    const auto payload =
        json::parse(base64url_decode(token.substr(first + 1, second - first - 1)).value());
    ASSERT_TRUE(header.has_value() && payload.has_value()) << token;
    EXPECT_EQ(*header->find("alg")->as_string(), "HS256");
    EXPECT_GT(*payload->find("exp")->as_integer(), 4'000'000'000);
    EXPECT_EQ(base64url_decode(token.substr(second + 1)).value().size(), 32u);
  }
}

TEST(Placeholder, IsAnotherEachTimeAndHasEveryCharacter) {
  std::set<std::string> all;
  std::set<char> characters;
  for (int i = 0; i < 100; ++i) {
    const std::string text = made({}, std::string(40, 'v'));
    all.insert(text);
    characters.insert(text.begin(), text.end());
  }
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(characters.size(), 62u);
}

TEST(Placeholder, IsMadeOfTheRandomBytesAlone) {
  const RandomBytes same = [](std::size_t count) { return std::string(count, '\x05'); };
  const auto a = make_placeholder({}, std::string(30, 'a'), same);
  const auto b = make_placeholder({}, std::string(30, 'b'), same);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(*a, *b);
}

TEST(Placeholder, TakesNoByteThatWouldMakeACharacterLikelier) {
  // 248 to 255 are left over by 62 characters.
  bool first = true;
  const RandomBytes random = [&](std::size_t count) {
    const std::string bytes(count, first ? '\xf8' : '\x01');
    first = false;
    return bytes;
  };
  const auto text = make_placeholder({}, std::string(22, 'a'), random);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, std::string(22, 'B'));
}

struct BadValue {
  std::string value, complaint;
};

TEST(Placeholder, AProxysPasswordHasBoundsOfItsOwn) {
  const policy::SecretRule rule = policy::password_rule({.address = "proxy.example.com:1080"});
  EXPECT_TRUE(check_value_of(rule, "x").has_value());
  EXPECT_TRUE(check_value_of(rule, std::string(255, 'x')).has_value());
  EXPECT_FALSE(check_value_of(rule, "").has_value());
  EXPECT_FALSE(check_value_of(rule, std::string(256, 'x')).has_value());
}

TEST(Placeholder, NoneForAValueThatIsRefused) {
  const std::vector<BadValue> values = {
      {"", "has 0 bytes; allowed are 8 to 4096"},
      {"1234567", "has 7 bytes"},
      {std::string(4097, 'v'), "has 4097 bytes"},
      {"12345678\n", "byte 9 of the secret's value is a control character"},
      {"1234\r5678", "byte 5"},
      {std::string("\0002345678", 8), "byte 1"},
      {"1234567\x7f", "byte 8"},
      {"1234\t5678", "byte 5"},
      {"1234\x1b[0m5678", "byte 5"},
  };
  for (const BadValue& bad : values) {
    const auto placeholder = make_placeholder({}, bad.value, random_bytes);
    ASSERT_FALSE(placeholder.has_value()) << bad.complaint;
    EXPECT_THAT(placeholder.error().message(), HasSubstr(bad.complaint));
    if (bad.value.size() > 4) EXPECT_THAT(placeholder.error().message(), Not(HasSubstr("1234")));
  }
}

TEST(Placeholder, OthersThanUnreservedCharactersAreInNone) {
  EXPECT_TRUE(is_placeholder("abcdefgh-._~0123"));
  for (const std::string_view text :
       {"abcdefgh-._~012", "", "abcdefgh 0123456789", "abcdefgh/0123456789", "abcdefgh%41123456"})
    EXPECT_FALSE(is_placeholder(text)) << text;
  EXPECT_FALSE(is_placeholder(std::string(4161, 'a')));
}

TEST(PlaceholderOf, IsOfTheShapeWhereTheSandboxGetsIt) {
  policy::SecretRule rule;
  rule.shape = {policy::SecretShape::Kind::kPrefix, "ghp_"};
  const auto made = placeholder_of(rule, "ghp_0123456789", random_bytes);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(made->starts_with("ghp_"));
  EXPECT_FALSE(placeholder_of(rule, "short", random_bytes).has_value());
}

TEST(PlaceholderOf, OfAnOpenValueSaysNothingOfItsLength) {
  policy::SecretRule rule;
  rule.inject = policy::SecretInjection{.header = "X", .prefix = "", .scrub = false};
  for (const std::string& value : {std::string("v"), std::string(4096, 'v')}) {
    const auto made = placeholder_of(rule, value, random_bytes);
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->size(), 32u);
  }
  EXPECT_FALSE(placeholder_of(rule, "", random_bytes).has_value());
  EXPECT_FALSE(placeholder_of(rule, "a\nb", random_bytes).has_value());
  EXPECT_FALSE(placeholder_of(rule, std::string(4097, 'v'), random_bytes).has_value());
}

}  // namespace
}  // namespace caisson::egress
