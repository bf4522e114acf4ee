#include "fleet/quota.h"

#include <gtest/gtest.h>

#include "db/database_for_test.h"
#include "io/loop_for_test.h"

namespace caisson::fleet {
namespace {

using std::chrono::seconds;

TEST(QuotaTest, TheLowerOfTheServersAndTheTeamsCounts) {
  policy::ServerConfig config;
  config.max_sandboxes = 100;
  config.maxima = {.cpu_milli = 4000,
                   .memory = 1ull << 30,
                   .disk = std::nullopt,
                   .pids = 100,
                   .lifetime_ms = 3'600'000};
  const Quota quota = quota_of(config, {.running = 200,
                                        .cpu_milli = 2000,
                                        .memory = 2ull << 30,
                                        .disk = 5,
                                        .lifetime_ms = std::nullopt});
  EXPECT_EQ(quota, (Quota{.sandboxes = 100,
                          .paused = 100,
                          .longest = seconds(3600),
                          .cpu_milli = 2000,
                          .memory_bytes = 1ull << 30,
                          .disk_bytes = 5,
                          .pids = 100}));
}

TEST(QuotaTest, OfPausedOnesATeamMayHaveNoMoreThanOfRunningOnes) {
  policy::ServerConfig config;
  config.max_sandboxes = 100;
  EXPECT_EQ(quota_of(config, {}).paused, 100u);
  EXPECT_EQ(quota_of(config, {.running = 7}).paused, 7u);
  config.max_paused = 3;
  EXPECT_EQ(quota_of(config, {}).paused, 3u);
  EXPECT_EQ(quota_of(config, {.running = 7}).paused, 3u);
}

TEST(QuotaTest, WithoutAnyLimitALifeHasTheLongestTime) {
  policy::ServerConfig config;
  config.maxima.lifetime_ms = std::nullopt;
  EXPECT_EQ(quota_of(config, {}).longest, kLongestLife);
  EXPECT_EQ(quota_of(config, {.lifetime_ms = 90'500}).longest, seconds(90));
}

TEST(QuotaTest, UsualLimitsBecomeLessAndThoseAskedForAreRefused) {
  const Quota quota{.memory_bytes = 100ull << 20, .pids = 50};
  const Recipe recipe{.image = "i", .memory_bytes = 200ull << 20, .pids = std::nullopt};
  const Recipe usual = recipe_within(quota, recipe, Limits::kUsual).value();
  EXPECT_EQ(usual.memory_bytes, 100ull << 20);
  EXPECT_EQ(usual.pids, 50u);
  EXPECT_EQ(usual.cpu_milli, recipe.cpu_milli);
  const auto asked = recipe_within(quota, recipe, Limits::kAsked);
  EXPECT_EQ(asked.error().message(), "limits.memory: found 200MiB; allowed is 100MiB at most");
  const auto endless =
      recipe_within(quota, {.image = "i", .memory_bytes = 1, .pids = std::nullopt}, Limits::kAsked);
  EXPECT_EQ(endless.error().message(), "limits.pids: found unlimited; allowed is 50 at most");
}

TEST(QuotaTest, ThereIsOneProfileBesideTheDefaultOne) {
  using policy::SyscallProfile;
  const Recipe recipe = {.image = "i", .profile = SyscallProfile::kDebug};
  Quota quota;
  EXPECT_EQ(recipe_within(quota, recipe, Limits::kAsked).error().message(),
            "profile: found debug; allowed is default (limits.maximum.profile)");
  quota.profile = SyscallProfile::kBrowser;
  EXPECT_EQ(recipe_within(quota, recipe, Limits::kAsked).error().message(),
            "profile: found debug; allowed is default or browser (limits.maximum.profile)");
  quota.profile = SyscallProfile::kDebug;
  EXPECT_TRUE(recipe_within(quota, recipe, Limits::kAsked).has_value());
  EXPECT_TRUE(recipe_within(quota, {.image = "i"}, Limits::kAsked).has_value());
}

TEST(QuotaTest, SudoIsRefusedWhereTheOperatorAllowsNone) {
  using policy::Privileges;
  Quota quota;
  const Recipe sudo = {.image = "i"}, none = {.image = "i", .privileges = Privileges::kNone};
  EXPECT_TRUE(check_privileges(quota, sudo).has_value());
  EXPECT_TRUE(check_privileges(quota, none).has_value());
  policy::ServerConfig config;
  config.most_privileges = Privileges::kNone;
  quota = quota_of(config, {});
  EXPECT_TRUE(check_privileges(quota, none).has_value());
  EXPECT_EQ(check_privileges(quota, sudo).error().message(),
            "privileges: found sudo, which sandboxes have unless their spec says none; allowed is "
            "none alone on this server (limits.maximum.privileges)");
}

class DatabaseQuotasTest : public db::DatabaseTest {};

TEST_F(DatabaseQuotasTest, ATeamsQuotaIsReadAndRemembered) {
  ASSERT_TRUE(teams_.set_quota(ours_.id, {.running = 3}).has_value());
  io::Loop loop(1);
  auto body = [&]() -> io::Async<void> {
    auto database = std::make_shared<SharedDatabase>(loop, db::Database::open(path_).value());
    const policy::ServerConfig config;
    DatabaseQuotas quotas(database, config);
    const auto first = co_await quotas.of(ours_.id);
    EXPECT_EQ(first.value().sandboxes, 3u);
    const auto others = co_await quotas.of(theirs_.id);
    EXPECT_EQ(others.value().sandboxes, config.max_sandboxes);
    const auto changed = teams_.set_quota(ours_.id, {.running = 4});
    EXPECT_TRUE(changed.has_value());
    const auto again = co_await quotas.of(ours_.id);
    EXPECT_EQ(again.value().sandboxes, 3u);
    const auto nobody = co_await quotas.of("nobody");
    EXPECT_EQ(nobody.error().code(), Code::kNotFound);
  };
  io::run_on(loop, body);
}

}  // namespace
}  // namespace caisson::fleet
