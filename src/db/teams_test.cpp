#include "db/teams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::HasSubstr;

class TeamsTest : public DatabaseTest {};

TEST_F(TeamsTest, AreFoundBySlugAndId) {
  const Quota quota = {
      .running = 3, .cpu_milli = 500, .memory = 1 << 30, .disk = {}, .lifetime_ms = 60'000};
  const Team team = teams_.create("a-1", "Team Ä", quota, 42).value();
  EXPECT_EQ(team.created_ms, 42);
  EXPECT_EQ(teams_.find("a-1").value(), team);
  EXPECT_EQ(teams_.find_id(team.id).value(), team);
  EXPECT_EQ(teams_.find("a-2").error().code(), Code::kNotFound);
  EXPECT_EQ(teams_.find_id("a-1").error().code(), Code::kNotFound);
}

TEST_F(TeamsTest, AreListedBySlug) {
  ASSERT_TRUE(teams_.create("a", "", Quota(), 1));
  const auto list = teams_.list().value();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].slug, "a");
  EXPECT_EQ(list[1], ours_);
  EXPECT_EQ(list[2], theirs_);
}

TEST_F(TeamsTest, ASlugIsGivenOnce) {
  const auto again = teams_.create("theirs", "", Quota(), 1);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(again.error().message(), HasSubstr("theirs"));
}

TEST_F(TeamsTest, WhatIsNoSlugOrNameIsRefused) {
  for (const std::string& slug :
       {std::string(), std::string("-a"), std::string("A"), std::string("a b"), std::string("a/b"),
        std::string(64, 'a'), std::string("a\0", 2)}) {
    const auto team = teams_.create(slug, "", Quota(), 1);
    ASSERT_FALSE(team) << slug;
    EXPECT_EQ(team.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(team.error().message(), HasSubstr("allowed"));
  }
  for (const std::string& name :
       {std::string(129, 'a'), std::string("a\nb"), std::string("\xff")}) {
    EXPECT_EQ(teams_.create("fine", name, Quota(), 1).error().code(), Code::kInvalidArgument);
  }
}

TEST_F(TeamsTest, QuotasChange) {
  ASSERT_TRUE(teams_.set_quota(ours_.id, {.running = 1}));
  EXPECT_EQ(teams_.find(kDefaultTeam)->quota, Quota{.running = 1});
  ASSERT_TRUE(teams_.set_quota(ours_.id, {}));
  EXPECT_EQ(teams_.find(kDefaultTeam)->quota, Quota());
  EXPECT_EQ(teams_.set_quota("none", {}).error().code(), Code::kNotFound);
  EXPECT_EQ(teams_.set_quota(ours_.id, {.memory = UINT64_MAX}).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace caisson::db
