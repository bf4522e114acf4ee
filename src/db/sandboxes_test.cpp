#include "db/sandboxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class SandboxesTest : public DatabaseTest {
 protected:
  SandboxRow row(std::string id, std::int64_t started_ns) const {
    return {.id = std::move(id),
            .team_id = ours_.id,
            .template_id = "base",
            .alias = "base",
            .image = "base:latest",
            .host_id = "h1",
            .user = "user",
            .workdir = "",
            .secure = true,
            .state = SandboxState::kRunning,
            .started_ns = started_ns,
            .end_at_ms = 1000,
            .timeout_ms = 300'000,
            .cpu_milli = 2000,
            .memory = 512 << 20,
            .disk = 1 << 30};
  }
  void add(const SandboxRow& one) {
    const auto added = sandboxes_.insert(one, std::nullopt);
    ASSERT_TRUE(added) << added.error().message();
  }
  std::vector<std::string> ids(const SandboxFilter& filter) {
    std::vector<std::string> all;
    const auto page = sandboxes_.list(ours_.id, filter);
    EXPECT_TRUE(page) << page.error().message();
    for (const SandboxRow& one : page->rows) all.push_back(one.id);
    return all;
  }

  Sandboxes sandboxes_{database_};
};

TEST_F(SandboxesTest, IdsHaveTheirForm) {
  EXPECT_THAT(new_sandbox_id(), MatchesRegex("i[a-z0-9]{20}"));
  EXPECT_NE(new_sandbox_id(), new_sandbox_id());
}

TEST_F(SandboxesTest, ARowComesBackAsItWas) {
  SandboxRow one = row("i1", 123'456'789'012'345'678);
  one.secure = false;
  one.state = SandboxState::kPaused;
  one.workdir = "/srv";
  one.metadata = {{"", ""}, {"a b", "ü\n\"'"}, {"user", "1"}};
  one.lifecycle = R"({"onTimeout":"pause"})";
  one.network = R"({"allowPublicTraffic":false})";
  add(one);
  EXPECT_EQ(sandboxes_.find(ours_.id, "i1").value(), one);
  EXPECT_EQ(sandboxes_.find_of_any_team("i1").value(), one);
  EXPECT_THAT(sandboxes_.all_of_any_team().value().rows, ElementsAre(one));
}

TEST_F(SandboxesTest, AnotherTeamsRowsAreNotThere) {
  add(row("i1", 1));
  const std::string& team = theirs_.id;
  EXPECT_EQ(sandboxes_.find(team, "i1").error().code(), Code::kNotFound);
  EXPECT_THAT(sandboxes_.list(team, {})->rows, IsEmpty());
  EXPECT_EQ(sandboxes_.count_running(team).value(), 0u);
  EXPECT_EQ(sandboxes_.set_end_at(team, "i1", 2).error().code(), Code::kNotFound);
  EXPECT_EQ(sandboxes_.set_network(team, "i1", "{}").error().code(), Code::kNotFound);
  EXPECT_EQ(sandboxes_.pause(team, "i1", "", 2).error().code(), Code::kNotFound);
  EXPECT_EQ(sandboxes_.resume(team, "i1", "", 2, {}).error().code(), Code::kNotFound);
  EXPECT_EQ(sandboxes_.remove(team, "i1").error().code(), Code::kNotFound);
  SandboxRow stolen = row("i1", 1);
  stolen.team_id = team;
  EXPECT_EQ(sandboxes_.put(stolen).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(sandboxes_.insert(stolen, {}).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(sandboxes_.find(ours_.id, "i1").value(), row("i1", 1));
}

TEST_F(SandboxesTest, PutMakesARowAndReplacesIt) {
  SandboxRow one = row("i1", 1);
  ASSERT_TRUE(sandboxes_.put(one));
  one.state = SandboxState::kPaused;
  one.host_id = "";
  one.end_at_ms = 7;
  one.metadata = {{"a", "b"}};
  one.network = "{\"a\":1}";
  ASSERT_TRUE(sandboxes_.put(one));
  EXPECT_THAT(sandboxes_.all_of_any_team().value().rows, ElementsAre(one));
  ASSERT_TRUE(sandboxes_.remove_of_any_team("i1"));
  ASSERT_TRUE(sandboxes_.remove_of_any_team("i1"));
  EXPECT_THAT(sandboxes_.all_of_any_team().value().rows, IsEmpty());
}

TEST_F(SandboxesTest, WhatCannotBeARowIsRefused) {
  SandboxRow one = row("i1", 1);
  one.team_id = "none";
  EXPECT_EQ(sandboxes_.insert(one, {}).error().code(), Code::kFailedPrecondition);
  one = row("i1", 1);
  one.metadata = {{"a\xff", "b"}};
  EXPECT_THAT(sandboxes_.insert(one, {}).error().message(), HasSubstr("UTF-8"));
  one.metadata = {{"a", std::string("b\0c", 3)}};
  EXPECT_EQ(sandboxes_.insert(one, {}).error().code(), Code::kInvalidArgument);
  one.metadata = {{"a", std::string(kMaxSandboxJson, 'b')}};
  EXPECT_THAT(sandboxes_.insert(one, {}).error().message(), HasSubstr("metadata"));
  one.metadata = {};
  one.lifecycle = std::string(kMaxLifecycleJson + 1, ' ');
  EXPECT_THAT(sandboxes_.put(one).error().message(), HasSubstr("lifecycle"));
  one.lifecycle = "{}";
  one.network = std::string(kMaxSandboxJson + 1, ' ');
  EXPECT_THAT(sandboxes_.put(one).error().message(), HasSubstr("network"));
  EXPECT_THAT(sandboxes_.all_of_any_team().value().rows, IsEmpty());
}

TEST_F(SandboxesTest, DamagedMetadataIsSaid) {
  add(row("i1", 1));
  for (const char* text : {"", "[]", "{\"a\":1}", "{"}) {
    ASSERT_TRUE(database_.sqlite().run("UPDATE sandboxes SET metadata = ?", text));
    EXPECT_EQ(sandboxes_.find(ours_.id, "i1").error().code(), Code::kDataLoss) << text;
  }
}

TEST_F(SandboxesTest, TheNewestComesFirstUnlessAskedOtherwise) {
  add(row("i2", 20));
  add(row("i1", 10));
  add(row("i3", 20));
  EXPECT_THAT(ids({}), ElementsAre("i3", "i2", "i1"));
  EXPECT_THAT(ids({.order = Order::kOldestFirst}), ElementsAre("i1", "i2", "i3"));
}

TEST_F(SandboxesTest, FiltersHoldTogether) {
  add(row("i1", 10));
  SandboxRow other = row("i2", 20);
  other.template_id = "node";
  other.state = SandboxState::kPaused;
  add(other);
  EXPECT_THAT(ids({.state = SandboxState::kRunning}), ElementsAre("i1"));
  EXPECT_THAT(ids({.state = SandboxState::kPaused}), ElementsAre("i2"));
  EXPECT_THAT(ids({.template_id = "node"}), ElementsAre("i2"));
  EXPECT_THAT(ids({.template_id = "none"}), IsEmpty());
  EXPECT_THAT(ids({.started_from_ns = 20}), ElementsAre("i2")) << "inclusive";
  EXPECT_THAT(ids({.started_from_ns = 21}), IsEmpty());
  EXPECT_THAT(ids({.state = SandboxState::kRunning, .template_id = "node"}), IsEmpty());
}

TEST_F(SandboxesTest, MetadataIsComparedAsItIs) {
  const std::string odd = "$.\"a\\']%_[0]";
  SandboxRow one = row("i1", 10);
  one.metadata = {{odd, "1"}, {"b", "x y&z"}, {"ü", "ß"}};
  add(one);
  SandboxRow two = row("i2", 20);
  two.metadata = {{"b", "x y&z"}};
  add(two);
  EXPECT_THAT(ids({.metadata = {{"b", "x y&z"}}}), ElementsAre("i2", "i1"));
  EXPECT_THAT(ids({.metadata = {{"b", "x y&z"}, {odd, "1"}}}), ElementsAre("i1"));
  EXPECT_THAT(ids({.metadata = {{"ü", "ß"}}}), ElementsAre("i1"));
  EXPECT_THAT(ids({.metadata = {{"b", "X y&z"}}}), IsEmpty());
  EXPECT_THAT(ids({.metadata = {{"b", "x y&z"}, {"c", ""}}}), IsEmpty());
  EXPECT_THAT(ids({.metadata = {{"b", ""}}}), IsEmpty());
}

TEST_F(SandboxesTest, PagesCoverAllOnceWhateverIsMadeMeanwhile) {
  for (int i = 0; i < 7; ++i) add(row("i" + std::to_string(i), 10 + i / 3));
  for (const Order order : {Order::kNewestFirst, Order::kOldestFirst}) {
    std::vector<std::string> seen;
    SandboxFilter filter = {.order = order, .limit = 3};
    int pages = 0;
    do {
      const SandboxPage page = sandboxes_.list(ours_.id, filter).value();
      for (const SandboxRow& one : page.rows) seen.push_back(one.id);
      filter.after = page.next;
      // Before the place where the next page begins.
      const std::int64_t elsewhere = order == Order::kNewestFirst ? 1000 : 1;
      add(row("n" + std::to_string(static_cast<int>(order)) + std::to_string(pages++), elsewhere));
    } while (filter.after.has_value());
    std::erase_if(seen, [](const std::string& id) { return id[0] == 'n'; });
    EXPECT_EQ(seen.size(), 7u);
    EXPECT_EQ(seen.front(), order == Order::kNewestFirst ? "i6" : "i0");
    EXPECT_EQ(seen.back(), order == Order::kNewestFirst ? "i0" : "i6");
  }
}

TEST_F(SandboxesTest, TheLastPageIsKnownAsSuch) {
  add(row("i1", 1));
  add(row("i2", 2));
  EXPECT_FALSE(sandboxes_.list(ours_.id, {.limit = 2})->next);
  EXPECT_EQ(sandboxes_.list(ours_.id, {.limit = 1})->next,
            (SandboxCursor{.started_ns = 2, .id = "i2"}));
  const SandboxPage none = sandboxes_.list(ours_.id, {.limit = 0}).value();
  EXPECT_THAT(none.rows, IsEmpty());
  EXPECT_FALSE(none.next);
}

TEST_F(SandboxesTest, ListingUsesItsIndex) {
  Query query = database_.sqlite()
                    .query(
                        "EXPLAIN QUERY PLAN SELECT id FROM sandboxes WHERE team_id = ? AND "
                        "started_ns >= 1 AND (started_ns, id) < (2, 'a') "
                        "ORDER BY started_ns DESC, id DESC LIMIT 3",
                        "x")
                    .value();
  ASSERT_TRUE(query.next().value());
  EXPECT_THAT(query.get<std::string>(3), HasSubstr("sandboxes_by_start (team_id=? AND started_ns"));
  EXPECT_FALSE(query.next().value()) << "no sorting";
}

TEST_F(SandboxesTest, RunningOnesAreCountedAndLimited) {
  ASSERT_TRUE(sandboxes_.insert(row("i1", 1), 2));
  ASSERT_TRUE(sandboxes_.insert(row("i2", 1), 2));
  const auto refused = sandboxes_.insert(row("i3", 1), 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("allowed are 2"));
  ASSERT_TRUE(sandboxes_.pause(ours_.id, "i1", "", 5));
  EXPECT_EQ(sandboxes_.count_running(ours_.id).value(), 1u);
  ASSERT_TRUE(sandboxes_.insert(row("i3", 1), 2));
  EXPECT_EQ(sandboxes_.resume(ours_.id, "i1", "h2", 9, 2).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(sandboxes_.find(ours_.id, "i1")->state, SandboxState::kPaused);
}

TEST_F(SandboxesTest, PauseAndResumeMoveDeadlineAndHost) {
  add(row("i1", 1));
  ASSERT_TRUE(sandboxes_.pause(ours_.id, "i1", "kept", 77));
  SandboxRow found = sandboxes_.find(ours_.id, "i1").value();
  EXPECT_EQ(found.state, SandboxState::kPaused);
  EXPECT_EQ(found.host_id, "kept");
  EXPECT_EQ(found.end_at_ms, 77);
  EXPECT_EQ(sandboxes_.pause(ours_.id, "i1", "", 78).error().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(sandboxes_.resume(ours_.id, "i1", "h2", 99, {}));
  found = sandboxes_.find(ours_.id, "i1").value();
  EXPECT_EQ(found.state, SandboxState::kRunning);
  EXPECT_EQ(found.host_id, "h2");
  EXPECT_EQ(found.end_at_ms, 99);
  EXPECT_EQ(found.started_ns, 1);
  EXPECT_EQ(sandboxes_.resume(ours_.id, "i1", "", 1, {}).error().code(), Code::kFailedPrecondition);
}

TEST_F(SandboxesTest, DeadlineAndNetworkChangeAndRowsGo) {
  add(row("i1", 1));
  ASSERT_TRUE(sandboxes_.set_end_at(ours_.id, "i1", 5));
  ASSERT_TRUE(sandboxes_.set_network(ours_.id, "i1", "{\"a\":1}"));
  EXPECT_EQ(sandboxes_.find(ours_.id, "i1")->end_at_ms, 5);
  EXPECT_EQ(sandboxes_.find(ours_.id, "i1")->network, "{\"a\":1}");
  EXPECT_EQ(
      sandboxes_.set_network(ours_.id, "i1", std::string(kMaxSandboxJson + 1, ' ')).error().code(),
      Code::kInvalidArgument);
  ASSERT_TRUE(sandboxes_.remove(ours_.id, "i1"));
  EXPECT_EQ(sandboxes_.remove(ours_.id, "i1").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace caisson::db
