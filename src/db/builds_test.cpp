#include "db/builds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/database_for_test.h"
#include "db/templates.h"

namespace caisson::db {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BuildsTest : public DatabaseTest {
 protected:
  Build added() { return builds_.add(ours_.id, template_.id, {}, {}, 1).value(); }
  Build now(const Build& build) { return builds_.find(ours_.id, template_.id, build.id).value(); }

  Templates templates_{database_};
  Builds builds_{database_};
  Template template_ = templates_.ensure(ours_.id, "tools", 1).value();
};

TEST_F(BuildsTest, ComeBackAsTheyWereMade) {
  const BuildSize size = {.cpu_milli = 2000, .memory = 1 << 30, .disk = 2};
  const Build made = builds_.add(ours_.id, template_.id, {"v1", "default"}, size, 7).value();
  EXPECT_EQ(now(made), made);
  EXPECT_EQ(made.status, BuildStatus::kWaiting);
  EXPECT_THAT(made.tags, ElementsAre("v1", "default"));
  EXPECT_EQ(builds_.find(ours_.id, "other", made.id).error().code(), Code::kNotFound);
}

TEST_F(BuildsTest, NeedATemplateAndTags) {
  EXPECT_EQ(builds_.add(ours_.id, "none", {}, {}, 1).error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.add(ours_.id, template_.id, {"a b"}, {}, 1).error().code(),
            Code::kInvalidArgument);
  const std::vector<std::string> many(33, "a");
  EXPECT_THAT(builds_.add(ours_.id, template_.id, many, {}, 1).error().message(), HasSubstr("33"));
}

TEST_F(BuildsTest, GoFromWaitingOverBuildingToReady) {
  const Build build = added();
  ASSERT_TRUE(builds_.start(build.id, "serve &", "curl localhost"));
  EXPECT_EQ(now(build).status, BuildStatus::kBuilding);
  EXPECT_EQ(now(build).start_command, "serve &");
  EXPECT_EQ(now(build).ready_command, "curl localhost");
  EXPECT_EQ(builds_.start(build.id, "", "").error().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(builds_.finish(build.id, "img", 9));
  EXPECT_EQ(now(build).status, BuildStatus::kReady);
  EXPECT_EQ(now(build).image, "img");
  EXPECT_EQ(now(build).finished_ms, 9);
  EXPECT_EQ(builds_.finish(build.id, "other", 10).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(builds_.set_failed(build.id, "1", "x", 10).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(now(build).image, "img");
}

TEST_F(BuildsTest, FailOnceAndSayWhy) {
  const Build build = added();
  ASSERT_TRUE(builds_.set_failed(build.id, "3", "it broke" + std::string(10'000, '!'), 9));
  EXPECT_EQ(now(build).status, BuildStatus::kError);
  EXPECT_EQ(now(build).failure_step, "3");
  EXPECT_TRUE(now(build).failure.starts_with("it broke!"));
  EXPECT_EQ(now(build).failure.size(), kMaxLogMessage);
  EXPECT_EQ(builds_.finish(build.id, "img", 10).error().code(), Code::kFailedPrecondition);
}

TEST_F(BuildsTest, ThatAreNotThereAreNotFound) {
  EXPECT_EQ(builds_.start("none", "", "").error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.finish("none", "", 1).error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.set_failed("none", "", "", 1).error().code(), Code::kNotFound);
}

TEST_F(BuildsTest, AreListedNewestFirst) {
  const Build first = added();
  const Build second = builds_.add(ours_.id, template_.id, {}, {}, 2).value();
  EXPECT_THAT(builds_.list(ours_.id, template_.id, 10).value(), ElementsAre(second, first));
  EXPECT_THAT(builds_.list(ours_.id, template_.id, 1).value(), ElementsAre(second));
}

TEST_F(BuildsTest, ThoseNobodyWorksOnAnyMoreFail) {
  const Build waiting = added(), building = added(), ready = added();
  ASSERT_TRUE(builds_.start(building.id, "", ""));
  ASSERT_TRUE(builds_.finish(ready.id, "img", 2));
  ASSERT_TRUE(builds_.fail_unfinished("the server was stopped", 5));
  EXPECT_EQ(now(waiting).status, BuildStatus::kError);
  EXPECT_EQ(now(building).failure, "the server was stopped");
  EXPECT_EQ(now(building).finished_ms, 5);
  EXPECT_EQ(now(ready).status, BuildStatus::kReady);
}

TEST_F(BuildsTest, LogsAreReadInPartsFromALevelOn) {
  const Build build = added();
  const LogEntry info = {.time_ms = 1, .level = LogLevel::kInfo, .step = "base", .message = "a"};
  const LogEntry debug = {.time_ms = 2, .level = LogLevel::kDebug, .step = "1", .message = "b"};
  const LogEntry error = {.time_ms = 3, .level = LogLevel::kError, .step = "2", .message = "c"};
  ASSERT_TRUE(builds_.append_logs(build.id, std::vector{info, debug}));
  ASSERT_TRUE(builds_.append_logs(build.id, std::vector{error}));
  EXPECT_THAT(builds_.logs(build.id, 0, 10, LogLevel::kDebug).value(),
              ElementsAre(info, debug, error));
  EXPECT_THAT(builds_.logs(build.id, 1, 1, LogLevel::kDebug).value(), ElementsAre(debug));
  EXPECT_THAT(builds_.logs(build.id, 1, 10, LogLevel::kInfo).value(), ElementsAre(error));
  EXPECT_THAT(builds_.logs(build.id, 3, 10, LogLevel::kDebug).value(), IsEmpty());
  EXPECT_THAT(builds_.logs("none", 0, 10, LogLevel::kDebug).value(), IsEmpty());
}

TEST_F(BuildsTest, LogsAreBounded) {
  const Build build = added();
  const std::vector<LogEntry> entries(
      static_cast<std::size_t>(kMaxLogEntries) + 50,
      LogEntry{.time_ms = 1, .level = LogLevel::kInfo, .step = "", .message = "x"});
  ASSERT_TRUE(builds_.append_logs(build.id, entries));
  ASSERT_TRUE(builds_.append_logs(build.id, std::span(entries).first(2)));
  const auto kept = builds_.logs(build.id, 0, 100'000, LogLevel::kDebug).value();
  ASSERT_EQ(kept.size(), static_cast<std::size_t>(kMaxLogEntries) + 1);
  EXPECT_THAT(kept.back().message, HasSubstr("left out"));
}

TEST_F(BuildsTest, LogsAreBoundedByTheirBytesToo) {
  const Build build = added();
  const LogEntry entry = {
      .time_ms = 1, .level = LogLevel::kInfo, .step = "", .message = std::string(4096, 'x')};
  const std::vector<LogEntry> entries(100, entry);
  const std::size_t fit = static_cast<std::size_t>(kMaxLogBytes) / 4096;
  for (std::size_t added = 0; added <= fit; added += entries.size())
    ASSERT_TRUE(builds_.append_logs(build.id, entries));
  // Nothing follows, however short.
  ASSERT_TRUE(builds_.append_logs(build.id, std::vector{LogEntry{.message = "x"}}));
  const auto kept = builds_.logs(build.id, 0, 100'000, LogLevel::kDebug).value();
  ASSERT_EQ(kept.size(), fit + 1);
  EXPECT_EQ(kept[fit - 1].message, entry.message);
  EXPECT_THAT(kept.back().message, HasSubstr("left out"));
}

TEST_F(BuildsTest, TheStatusOfAnyTeamsBuildIsKnown) {
  const Build build = added(), other = added();
  ASSERT_TRUE(builds_.start(build.id, "", ""));
  EXPECT_EQ(builds_.status(build.id).value(), BuildStatus::kBuilding);
  EXPECT_EQ(builds_.status(other.id).value(), BuildStatus::kWaiting);
  EXPECT_EQ(builds_.status("none").error().code(), Code::kNotFound);
  EXPECT_THAT(builds_.building().value(), ElementsAre(build.id));
}

constexpr std::int64_t kHour = 3'600'000;

class Retention : public BuildsTest {
 protected:
  // A build that ended: tagged, it is ready.
  std::string ended(std::int64_t made_ms, const std::vector<std::string>& tags = {},
                    std::int64_t entries = 1) {
    const Build build = builds_.add(ours_.id, template_.id, tags, {}, made_ms).value();
    const std::vector<LogEntry> log(static_cast<std::size_t>(entries), LogEntry{.message = "said"});
    EXPECT_TRUE(builds_.append_logs(build.id, log));
    EXPECT_TRUE(tags.empty() ? builds_.set_failed(build.id, "1", "no", made_ms)
                             : builds_.finish(build.id, "img", made_ms));
    return build.id;
  }
  std::size_t logs(const std::string& id) {
    return builds_.logs(id, 0, 1000, LogLevel::kDebug)->size();
  }
  static constexpr auto kAll = OutdatedBuild::What::kAll, kLog = OutdatedBuild::What::kLog;
};

TEST_F(Retention, OfATemplateTheNewestAreKept) {
  const std::string oldest = ended(1), older = ended(2), tagged = ended(3, {"v1"});
  const std::string newer = ended(4), newest = ended(5);
  const BuildRetention two = {.per_template = 2, .kept_ms = {}};
  EXPECT_THAT(builds_.outdated(two, 10, 10).value(),
              ElementsAre(OutdatedBuild{oldest, kAll}, OutdatedBuild{older, kAll}));
  EXPECT_THAT(builds_.outdated(two, 10, 1).value(), ElementsAre(OutdatedBuild{oldest, kAll}));
  EXPECT_THAT(builds_.outdated({.per_template = 4, .kept_ms = {}}, 10, 10).value(), IsEmpty());
}

TEST_F(Retention, WhatIsOldGoesAndOfWhatATagMeansTheLog) {
  const std::string old = ended(1), tagged = ended(2, {"v1"}), young = ended(2 * kHour);
  const BuildRetention hour = {.per_template = 100, .kept_ms = kHour};
  EXPECT_THAT(builds_.outdated(hour, 2 * kHour, 10).value(),
              ElementsAre(OutdatedBuild{old, kAll}, OutdatedBuild{tagged, kLog}));
  EXPECT_TRUE(builds_.remove_some({tagged, kLog}, 10).value());
  EXPECT_EQ(logs(tagged), 0u);
  EXPECT_EQ(builds_.status(tagged).value(), BuildStatus::kReady);
  // Once is enough.
  EXPECT_THAT(builds_.outdated(hour, 2 * kHour, 10).value(), ElementsAre(OutdatedBuild{old, kAll}));
}

TEST_F(Retention, WhatGoesOnOrHasJustBeenMadeIsKept) {
  const Build waiting = added(), building = added();
  ASSERT_TRUE(builds_.start(building.id, "", ""));
  const BuildRetention none = {.per_template = 0, .kept_ms = 1};
  EXPECT_THAT(builds_.outdated(none, kHour, 10).value(), IsEmpty());
  EXPECT_THAT(builds_.outdated(none, 25 * kHour, 10).value(),
              ElementsAre(OutdatedBuild{waiting.id, kAll}));
}

TEST_F(Retention, RemovingGoesALittleAtATime) {
  const std::string id = ended(1, {}, 5);
  EXPECT_FALSE(builds_.remove_some({id, kAll}, 2).value());
  EXPECT_EQ(logs(id), 3u);
  EXPECT_TRUE(builds_.status(id).has_value());
  EXPECT_FALSE(builds_.remove_some({id, kAll}, 2).value());
  EXPECT_TRUE(builds_.remove_some({id, kAll}, 2).value());
  EXPECT_EQ(builds_.status(id).error().code(), Code::kNotFound);
  EXPECT_TRUE(builds_.remove_some({id, kAll}, 2).value());
}

TEST_F(Retention, WhatWasTaggedMeanwhileStays) {
  const std::string id = ended(1, {"v1"});
  EXPECT_TRUE(builds_.remove_some({id, kAll}, 10).value());
  EXPECT_EQ(logs(id), 1u);
  EXPECT_EQ(builds_.status(id).value(), BuildStatus::kReady);
}

TEST_F(BuildsTest, AMessageIsCutBetweenCharacters) {
  const Build build = added();
  std::string message(kMaxLogMessage - 1, 'a');
  message += "ü and more";
  ASSERT_TRUE(builds_.append_logs(build.id, std::vector{LogEntry{.message = message}}));
  EXPECT_EQ(builds_.logs(build.id, 0, 1, LogLevel::kDebug)->front().message,
            std::string(kMaxLogMessage - 1, 'a'));
}

TEST_F(BuildsTest, LogsNeedABuild) {
  const auto done = builds_.append_logs("none", std::vector{LogEntry{}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(done.error().message(), HasSubstr("none"));
}

}  // namespace
}  // namespace caisson::db
