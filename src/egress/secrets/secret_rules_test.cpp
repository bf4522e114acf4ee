#include "egress/secrets/secret_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egress/secrets/secrets_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;  // NOLINT: rules and their parts

using Half = policy::SecretPlace::Half;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SecretRules, KnowWhichHostsASecretIsFor) {
  SecretEntry made = entry();
  made.rule.passthrough = {"logs.example.com"};
  const auto all = rules({made});
  const Secret& secret = all->all()[0];
  EXPECT_TRUE(secret.serves(host("API.example.com.")));
  EXPECT_TRUE(secret.serves(host("a.b.example.org")));
  EXPECT_FALSE(secret.serves(host("example.org")));
  EXPECT_FALSE(secret.serves(host("xapi.example.com")));
  EXPECT_FALSE(secret.serves(host("logs.example.com")));
  EXPECT_TRUE(secret.passes(host("logs.example.com")));
  EXPECT_FALSE(secret.passes(host("api.example.com")));
}

TEST(SecretRules, WithoutPlacesTheUsualHeadersAndBasicAreMeant) {
  const auto all = rules({entry()});
  const Secret& secret = all->all()[0];
  for (const std::string_view name :
       {"Authorization", "X-API-Key", "api-key", "x-goog-api-key", "PRIVATE-TOKEN"})
    EXPECT_TRUE(secret.in_header(name)) << name;
  EXPECT_TRUE(secret.in_basic(Half::kUser));
  EXPECT_TRUE(secret.in_basic(Half::kPassword));
  for (const std::string_view name : {"proxy-authorization", "cookie", "x-other"})
    EXPECT_FALSE(secret.in_header(name)) << name;
  EXPECT_FALSE(secret.in_path());
  EXPECT_FALSE(secret.in_query("key"));
  EXPECT_FALSE(secret.in_some_form());
  EXPECT_TRUE(secret.pointers().empty());
}

TEST(SecretRules, PlacesThatAreNamedAreTheOnlyOnes) {
  const auto all = rules({entry({{PlaceKind::kBasic, "", Half::kUser},
                                 {PlaceKind::kQuery, "key", Half::kAny},
                                 {PlaceKind::kPath, "", Half::kAny},
                                 {PlaceKind::kJson, "/a/b", Half::kAny},
                                 {PlaceKind::kForm, "token", Half::kAny},
                                 {PlaceKind::kHeader, "Cookie", Half::kAny}})});
  const Secret& secret = all->all()[0];
  EXPECT_TRUE(secret.in_basic(Half::kUser));
  EXPECT_FALSE(secret.in_basic(Half::kPassword));
  EXPECT_TRUE(secret.in_query("key"));
  EXPECT_FALSE(secret.in_query("Key"));
  EXPECT_TRUE(secret.in_path());
  EXPECT_TRUE(secret.in_form("token"));
  EXPECT_FALSE(secret.in_form("key"));
  EXPECT_TRUE(secret.in_some_form());
  EXPECT_TRUE(secret.in_header("cookie"));
  EXPECT_FALSE(secret.in_header("authorization"));
  ASSERT_EQ(secret.pointers().size(), 1u);
  EXPECT_EQ(secret.pointers()[0].words, (std::vector<std::string>{"a", "b"}));
}

TEST(SecretRules, AnyHeaderIsNoneThatServersRepeat) {
  const auto all = rules({entry({{PlaceKind::kHeader, "*", Half::kAny}})});
  const Secret& secret = all->all()[0];
  for (const std::string_view name : {"authorization", "x-vault-token", "X-Any-Thing"})
    EXPECT_TRUE(secret.in_header(name)) << name;
  for (const std::string_view name :
       {"User-Agent", "Referer", "Origin", "Host", "Cookie", "Via", "Forwarded", "X-Forwarded-For",
        "X-Request-Id", "traceparent", "Accept", "Accept-Language", "Sec-Fetch-Site",
        "Content-Type", "If-None-Match", "Range", "Proxy-Authorization"})
    EXPECT_FALSE(secret.in_header(name)) << name;
}

TEST(SecretRules, ValuesBelongToTheirSecretsWithOldOnes) {
  SecretEntry first = entry();
  first.old_values = {shared("an old value of gh")};
  const auto all = rules({first, other_entry()});
  const auto owner = [&](std::string_view text) {
    const auto match = all->values().plain().find(text);
    return match ? all->secret_of_value(all->values().text_of_plain(match->pattern)).name() : "";
  };
  EXPECT_EQ(owner("an old value of gh"), "gh");
  EXPECT_EQ(owner(kValue), "gh");
  EXPECT_EQ(owner(kOtherValue), "other");
  EXPECT_EQ(owner(kPlaceholder), "");
}

TEST(SecretRules, ASecretMayHaveNoValue) {
  SecretEntry made = entry();
  made.value = nullptr;
  const auto all = rules({made});
  EXPECT_EQ(all->all()[0].value(), nullptr);
  EXPECT_TRUE(all->values().empty());
}

struct Case {
  std::vector<SecretEntry> entries;
  std::string complaint;
};

template <typename Change>
Case one(Change change, std::string complaint) {
  SecretEntry made = entry();
  change(made);
  return {{made}, std::move(complaint)};
}

TEST(SecretRules, RefuseWhatIsWrongWithoutShowingAValue) {
  SecretEntry within = other_entry();
  within.placeholder = std::string(kPlaceholder) + "more";
  SecretEntry of_value = other_entry();
  of_value.value = shared("x" + std::string(kPlaceholder));
  const std::vector<Case> cases = {
      {{entry(), entry()}, "secrets.gh: found the name twice"},
      one([](SecretEntry& e) { e.rule.hosts = {"*"}; }, "secrets.gh.hosts[0]"),
      one([](SecretEntry& e) { e.placeholder = "short"; }, "secret gh: its placeholder is none"),
      one([](SecretEntry& e) { e.value = shared("ghp_Rea"); },
          "secret gh: the secret's value has 7"),
      one([](SecretEntry& e) { e.value = shared("ghp_Real\r\nX: y"); }, "byte 9"),
      one([](SecretEntry& e) { e.old_values = {shared("ghp_Rea")}; }, "has 7 bytes"),
      one([](SecretEntry& e) { e.old_values = {nullptr}; }, "an old value is missing"),
      one([](SecretEntry& e) { e.old_values.assign(9, shared("ghp_Real1234")); },
          "9 old values are kept; allowed are 8"),
      {{entry(), within}, "its placeholder is part of that of other"},
      {{entry(), of_value}, "its placeholder and a value have a part in common"},
      one([](SecretEntry& e) { e.placeholder = "x-" + std::string(kValue); }, "in common"),
  };
  for (const Case& c : cases) {
    const auto refused = SecretRules::create(c.entries);
    ASSERT_FALSE(refused.has_value()) << c.complaint;
    EXPECT_THAT(refused.error().message(), HasSubstr(c.complaint));
    EXPECT_THAT(refused.error().message(), Not(HasSubstr("ghp_Rea")));
  }
}

TEST(SecretRules, RefuseMoreValuesThanCanBeLookedFor) {
  std::vector<SecretEntry> entries;
  for (int i = 0; i < 64; ++i) {
    SecretEntry made = entry();
    made.rule.name = "s" + std::to_string(i);
    made.rule.env = "";
    made.placeholder = "placeholder-number-" + std::to_string(1000 + i);
    made.value = shared(std::string(4096, static_cast<char>('A' + i % 26)));
    made.old_values = {shared(std::string(4096, static_cast<char>('a' + i % 26)))};
    entries.push_back(std::move(made));
  }
  const auto refused = SecretRules::create(std::move(entries));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
}

TEST(SecretEnds, AValueThatEndedGoesNowhereAndIsStillTakenOutOfAnswers) {
  const WallTime now = std::chrono::system_clock::now();
  std::vector<SecretEntry> entries = {for_test::entry({{for_test::PlaceKind::kPath, "", {}}}),
                                      for_test::other_entry()};
  entries[0].expires = now;
  entries[1].expires = now + std::chrono::seconds(1);
  EXPECT_TRUE(drop_ended_values(entries, now));
  EXPECT_EQ(entries[0].value, nullptr);
  EXPECT_NE(entries[1].value, nullptr);
  ASSERT_EQ(entries[0].old_values.size(), 1u);
  EXPECT_EQ(entries[0].old_values[0]->bytes(), for_test::kValue);
  EXPECT_FALSE(drop_ended_values(entries, now)) << "once";
  // The next one, under the same placeholder.
  replace_value(entries[0], for_test::shared(for_test::kOtherValue), std::nullopt);
  EXPECT_EQ(entries[0].placeholder, for_test::kPlaceholder);
  EXPECT_EQ(entries[0].old_values.size(), 1u);
}

TEST(SecretEnds, OldValuesGiveWayWhereAllAreTooLong) {
  std::vector<SecretEntry> entries;
  for (std::size_t n = 0; n < 12; ++n) {
    SecretEntry& entry = entries.emplace_back(for_test::entry());
    entry.rule.name = "s" + std::to_string(n);
    entry.rule.env.clear();
    entry.placeholder = std::string(20, static_cast<char>('a' + n)) + "0123456789";
    for (std::size_t turn = 0; turn < 9; ++turn)
      replace_value(
          entry, for_test::shared(std::to_string(turn) + std::string(4000, 'x') + entry.rule.name),
          std::nullopt);
  }
  EXPECT_EQ(SecretRules::create(entries).error().code(), Code::kResourceExhausted);
  const auto made = SecretRules::create_fitting(entries);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  for (const SecretEntry& entry : entries) EXPECT_TRUE(entry.value->bytes().starts_with("8"));
}

TEST(SecretEnds, NoMoreOldValuesAreKeptThanRulesTake) {
  SecretEntry entry = for_test::entry();
  for (std::size_t n = 0; n < 2 * kMostOldValues; ++n)
    replace_value(entry, for_test::shared("value-number-" + std::to_string(n)), std::nullopt);
  EXPECT_EQ(entry.old_values.size(), kMostOldValues);
  EXPECT_EQ(entry.old_values.back()->bytes(), "value-number-14");
}

}  // namespace
}  // namespace caisson::egress
