#include "db/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SecretsTest : public DatabaseTest {
 protected:
  SecretRow made(std::string_view id, std::string_view name) {
    auto row = secrets_.create(ours_.id, id, name, {}, "sealed", 1);
    VERIFY(row.has_value());
    return std::move(*row);
  }
  Secrets secrets_{database_};
};

TEST_F(SecretsTest, IsFoundByIdAndName) {
  const auto row = secrets_.create(ours_.id, "sec_1", "openai", {{"owner", "me"}}, "sealed", 7);
  ASSERT_TRUE(row.has_value()) << row.error().message();
  EXPECT_EQ(row->version, 1);
  EXPECT_EQ(row->metadata.at("owner"), "me");
  EXPECT_EQ(row->created_ms, 7);
  EXPECT_EQ(secrets_.find(ours_.id, "openai").value(), *row);
  EXPECT_EQ(secrets_.find(ours_.id, "sec_1").value(), *row);
  EXPECT_EQ(secrets_.find(theirs_.id, "openai").error().code(), Code::kNotFound);
}

TEST_F(SecretsTest, AnUpdateIsTheNextVersion) {
  std::ignore = secrets_.create(ours_.id, "sec_1", "openai", {{"a", "b"}}, "one", 1);
  const auto next = secrets_.update(ours_.id, "openai", std::nullopt, "two", 9);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->version, 2);
  EXPECT_EQ(next->sealed, "two");
  EXPECT_EQ(next->metadata.at("a"), "b");
  EXPECT_EQ(next->updated_ms, 9);
  EXPECT_TRUE(secrets_.update(ours_.id, "sec_1", std::map<std::string, std::string>(), "three", 10)
                  ->metadata.empty());
  EXPECT_EQ(secrets_.update(theirs_.id, "openai", std::nullopt, "x", 9).error().code(),
            Code::kNotFound);
}

TEST_F(SecretsTest, ANameIsOneTeamsOnce) {
  made("sec_1", "openai");
  EXPECT_EQ(secrets_.create(ours_.id, "sec_2", "openai", {}, "x", 1).error().code(),
            Code::kAlreadyExists);
  EXPECT_TRUE(secrets_.create(theirs_.id, "sec_3", "openai", {}, "x", 1).has_value());
  EXPECT_EQ(secrets_.create("nobody", "sec_4", "a", {}, "x", 1).error().code(),
            Code::kFailedPrecondition);
}

TEST_F(SecretsTest, AreListedByNameInPages) {
  for (const char* name : {"c", "a", "b"}) made("sec_" + std::string(name), name);
  const auto first = secrets_.list(ours_.id, "", 2);
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(first->rows, ElementsAre(testing::Field(&SecretRow::name, "a"),
                                       testing::Field(&SecretRow::name, "b")));
  EXPECT_TRUE(first->more);
  const auto second = secrets_.list(ours_.id, "b", 2);
  EXPECT_THAT(second->rows, ElementsAre(testing::Field(&SecretRow::name, "c")));
  EXPECT_FALSE(second->more);
  EXPECT_TRUE(secrets_.list(theirs_.id, "", 2)->rows.empty());
}

TEST_F(SecretsTest, WhatIsRemovedIsGone) {
  made("sec_1", "openai");
  EXPECT_EQ(secrets_.remove(theirs_.id, "openai").error().code(), Code::kNotFound);
  EXPECT_EQ(secrets_.remove(ours_.id, "openai")->id, "sec_1");
  EXPECT_EQ(secrets_.find(ours_.id, "sec_1").error().code(), Code::kNotFound);
}

TEST_F(SecretsTest, ATeamHasABound) {
  for (std::uint64_t count = 0; count < kMostSecretsOfTeam; ++count)
    made("sec_" + std::to_string(count), "n" + std::to_string(count));
  EXPECT_EQ(secrets_.create(ours_.id, "sec_x", "one-more", {}, "x", 1).error().code(),
            Code::kResourceExhausted);
}

TEST(SecretNames, AreShortAndPlain) {
  for (const char* name : {"a", "0", "open-ai_key.2"})
    EXPECT_TRUE(check_secret_name(name).has_value()) << name;
  const std::string longest(64, 'a');
  EXPECT_TRUE(check_secret_name(longest).has_value());
  for (const std::string& name :
       {std::string(), longest + "a", std::string("A"), std::string("-a"), std::string(".rules-0"),
        std::string("sec_a"), std::string("a b"), std::string("a}"), std::string("ä")})
    EXPECT_FALSE(check_secret_name(name).has_value()) << name;
}

TEST(SecretMetadata, HasBounds) {
  std::map<std::string, std::string> many;
  for (int entry = 0; entry < 33; ++entry) many["k" + std::to_string(entry)] = "v";
  EXPECT_THAT(check_secret_metadata(many).error().message(), HasSubstr("33 entries"));
  EXPECT_FALSE(check_secret_metadata({{std::string(129, 'k'), "v"}}).has_value());
  EXPECT_FALSE(check_secret_metadata({{"k", std::string(1025, 'v')}}).has_value());
  EXPECT_FALSE(check_secret_metadata({{"k", "\xff"}}).has_value());
  std::map<std::string, std::string> large;
  for (int entry = 0; entry < 9; ++entry)
    large["k" + std::to_string(entry)] = std::string(1024, 'v');
  EXPECT_THAT(check_secret_metadata(large).error().message(), HasSubstr("9234 bytes"));
  EXPECT_TRUE(check_secret_metadata({{"k", std::string(1024, 'v')}, {"", ""}}).has_value());
}

}  // namespace
}  // namespace caisson::db
