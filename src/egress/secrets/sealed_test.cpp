#include "egress/secrets/sealed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/encoding.h"
#include "egress/secrets/secrets_for_test.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

using for_test::entry;
using for_test::other_entry;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey(kSealingKey, 'k');

std::string sealed(std::vector<SecretEntry> entries) {
  auto text = seal(kKey, entries);
  EXPECT_TRUE(text.has_value());
  return text.value_or("");
}

TEST(Sealed, ComesBackWholeWithItsRules) {
  SecretEntry first = entry({{for_test::PlaceKind::kQuery, "key"}});
  const auto back = unseal(kKey, sealed({first, other_entry()}));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].rule, first.rule);
  EXPECT_EQ((*back)[0].placeholder, for_test::kPlaceholder);
  EXPECT_EQ((*back)[0].value->bytes(), for_test::kValue);
  EXPECT_EQ((*back)[1].rule.name, "other");
  EXPECT_EQ((*back)[1].value->bytes(), for_test::kOtherValue);
}

TEST(Sealed, OfNoneComesBackToo) {
  const auto back = unseal(kKey, sealed({}));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(back->empty());
}

TEST(Sealed, ShowsNothingAndIsAnotherTextEachTime) {
  const std::string text = sealed({entry()});
  const std::string bytes = base64_decode(text).value();
  EXPECT_THAT(bytes, Not(HasSubstr(std::string(for_test::kValue))));
  EXPECT_THAT(bytes, Not(HasSubstr("api.example.com")));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text, sealed({entry()}));
}

TEST(Sealed, IsRefusedUnderAnotherKey) {
  const auto back = unseal(std::string(kSealingKey, 'x'), sealed({entry()}));
  ASSERT_FALSE(back.has_value());
  EXPECT_EQ(back.error().code(), Code::kInvalidArgument);
}

TEST(Sealed, IsRefusedWithAnyByteChangedOrLeftAway) {
  const std::string bytes = base64_decode(sealed({entry()})).value();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(unseal(kKey, base64_encode(changed)).has_value()) << at;
    EXPECT_FALSE(unseal(kKey, base64_encode(bytes.substr(0, at))).has_value()) << at;
  }
  EXPECT_FALSE(unseal(kKey, base64_encode(bytes + "x")).has_value());
  EXPECT_FALSE(unseal(kKey, "no base64!").has_value());
}

TEST(Sealed, NeedsAWholeKey) {
  EXPECT_FALSE(seal("short", {}).has_value());
  EXPECT_FALSE(unseal("short", sealed({})).has_value());
}

TEST(Sealed, OneThatHasNoValueComesBackWithoutOne) {
  SecretEntry without = entry();
  without.value = nullptr;
  const auto back = unseal(kKey, sealed({without, other_entry()}));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ((*back)[0].value, nullptr);
  EXPECT_EQ((*back)[0].placeholder, for_test::kPlaceholder);
  EXPECT_EQ((*back)[1].value->bytes(), for_test::kOtherValue);
}

TEST(Sealed, TheProxysPasswordComesBackForItsAddress) {
  SecretEntry password{
      .rule = policy::password_rule(
          {.address = "proxy.test:1080",
           .username = "me",
           .password =
               policy::SecretSource{.kind = policy::SecretSource::Kind::kVault, .text = ".pw"}}),
      .placeholder = "",
      .value = std::make_shared<const SecretValue>("x")};
  const auto back = unseal(kKey, sealed({entry(), password}));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[1].rule, password.rule);
  EXPECT_EQ((*back)[1].value->bytes(), "x");
  // No request knows of it.
  EXPECT_EQ(SecretRules::create(*back).value()->all().size(), 1u);
}

TEST(Sealed, KeysAreRandom) {
  const SecretValue one = make_sealing_key(), other = make_sealing_key();
  EXPECT_EQ(one.bytes().size(), kSealingKey);
  EXPECT_NE(one.bytes(), other.bytes());
}

TEST(PolicyTexts, AreTakenApartAndJoined) {
  EXPECT_EQ(split_policy("{}").policy, "{}");
  EXPECT_EQ(split_policy("{}").sealed, "");
  const std::string text = join_policy("{}", "abc");
  EXPECT_EQ(split_policy(text).policy, "{}");
  EXPECT_EQ(split_policy(text).sealed, "abc");
  EXPECT_EQ(join_policy("{}", ""), "{}");
}

}  // namespace
}  // namespace caisson::egress
