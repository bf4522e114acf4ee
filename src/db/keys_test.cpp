#include "db/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class KeysTest : public DatabaseTest {
 protected:
  Keys keys_{database_};
};

TEST_F(KeysTest, HaveTheFormThatClientsCheck) {
  const NewApiKey made = keys_.create(ours_.id, "laptop", 5).value();
  EXPECT_THAT(made.secret, MatchesRegex("e2b_[0-9a-f]{40}"));
  EXPECT_EQ(made.key.mask, made.secret.substr(0, 6) + "…" + made.secret.substr(42));
  EXPECT_NE(keys_.create(ours_.id, "laptop", 5)->secret, made.secret);
}

TEST_F(KeysTest, AreKnownAgainByTheirSecret) {
  const NewApiKey made = keys_.create(ours_.id, "laptop", 5).value();
  const ApiKey key = keys_.authenticate(made.secret).value();
  EXPECT_EQ(key, made.key);
  EXPECT_EQ(key.team_id, ours_.id);
}

TEST_F(KeysTest, TheSecretIsNowhereInTheFiles) {
  const NewApiKey made = keys_.create(ours_.id, "laptop", 5).value();
  for (const char* suffix : {"", "-wal"}) {
    std::stringstream bytes;
    bytes << std::ifstream(path_ + suffix, std::ios::binary).rdbuf();
    EXPECT_FALSE(bytes.str().contains(made.secret.substr(4, 20)));
  }
}

TEST_F(KeysTest, WhateverIsWrongTheErrorIsTheSame) {
  const NewApiKey made = keys_.create(ours_.id, "", 5).value();
  std::string other = made.secret;
  other.back() = other.back() == '0' ? '1' : '0';
  const NewApiKey revoked = keys_.create(ours_.id, "", 5).value();
  ASSERT_TRUE(keys_.revoke(ours_.id, revoked.key.id, 6));
  for (const std::string& secret :
       {std::string(), std::string("e2b_"), other, revoked.secret, made.secret + "0",
        "E2B_" + made.secret.substr(4), std::string(44, '\0'), std::string(1 << 20, 'a')}) {
    const auto key = keys_.authenticate(secret);
    ASSERT_FALSE(key);
    EXPECT_EQ(key.error().code(), Code::kUnauthenticated);
    EXPECT_EQ(key.error().message(), "the API key is not valid");
  }
  EXPECT_TRUE(keys_.authenticate(made.secret));
}

TEST_F(KeysTest, UseIsNotedOnceAMinute) {
  const NewApiKey made = keys_.create(ours_.id, "", 5).value();
  EXPECT_EQ(made.key.last_used_ms, std::nullopt);
  for (const std::int64_t now : {1'000'000, 1'059'999}) {
    ASSERT_TRUE(keys_.note_use(made.key.id, now));
    EXPECT_EQ(keys_.authenticate(made.secret)->last_used_ms, 1'000'000);
  }
  ASSERT_TRUE(keys_.note_use(made.key.id, 1'060'000));
  EXPECT_EQ(keys_.authenticate(made.secret)->last_used_ms, 1'060'000);
}

TEST_F(KeysTest, AreListedByTeamOldestFirst) {
  const NewApiKey second = keys_.create(ours_.id, "b", 2).value();
  const NewApiKey first = keys_.create(ours_.id, "a", 1).value();
  const NewApiKey foreign = keys_.create(theirs_.id, "c", 1).value();
  const auto list = keys_.list(ours_.id).value();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0], first.key);
  EXPECT_EQ(list[1], second.key);
  EXPECT_EQ(keys_.list(theirs_.id)->size(), 1u);
}

TEST_F(KeysTest, AreRevokedOnceByTheBeginningOfTheirId) {
  const NewApiKey made = keys_.create(ours_.id, "", 1).value();
  const ApiKey revoked = keys_.revoke(ours_.id, made.key.id.substr(0, 8), 9).value();
  EXPECT_EQ(revoked.revoked_ms, 9);
  EXPECT_EQ(keys_.list(ours_.id)->front().revoked_ms, 9);
  EXPECT_EQ(keys_.revoke(ours_.id, made.key.id, 9).error().code(), Code::kNotFound);
}

TEST_F(KeysTest, WhatNamesNoKeyOrSeveralIsRefused) {
  EXPECT_EQ(keys_.revoke(ours_.id, "1234567", 9).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(keys_.revoke(ours_.id, "12345678", 9).error().code(), Code::kNotFound);
  ASSERT_TRUE(keys_.create(ours_.id, "", 1));
  ASSERT_TRUE(keys_.create(ours_.id, "", 1));
  ASSERT_TRUE(database_.sqlite().run("UPDATE api_keys SET id = 'aaaaaaaa' || substr(id, 9)"));
  const auto several = keys_.revoke(ours_.id, "aaaaaaaa", 9);
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().message(), HasSubstr("several"));
  for (const ApiKey& key : keys_.list(ours_.id).value()) EXPECT_FALSE(key.revoked_ms);
}

TEST_F(KeysTest, AnotherTeamCannotRevoke) {
  const NewApiKey made = keys_.create(ours_.id, "", 1).value();
  EXPECT_EQ(keys_.revoke(theirs_.id, made.key.id, 9).error().code(), Code::kNotFound);
  EXPECT_TRUE(keys_.authenticate(made.secret));
}

TEST_F(KeysTest, NeedATeamAndABearableName) {
  EXPECT_EQ(keys_.create("none", "", 1).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(keys_.create(ours_.id, "a\x1b[2J", 1).error().code(), Code::kInvalidArgument);
}

TEST_F(KeysTest, TheHashIsFoundByItsIndex) {
  Query query = database_.sqlite()
                    .query("EXPLAIN QUERY PLAN SELECT id FROM api_keys WHERE hash = ?", Blob{"x"})
                    .value();
  ASSERT_TRUE(query.next().value());
  EXPECT_THAT(query.get<std::string>(3), HasSubstr("SEARCH api_keys USING"));
}

}  // namespace
}  // namespace caisson::db
