#include "api/database_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "api/templates.h"
#include "base/proto.h"
#include "db/teams.h"
#include "db/templates.h"
#include "fleet/database_records.h"
#include "fleet/fake_host_for_test.h"
#include "fleet/shape.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DatabaseSnapshotsTest : public testing::Test {
 protected:
  DatabaseSnapshotsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "snapshots-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
  }
  ~DatabaseSnapshotsTest() override { std::filesystem::remove_all(directory_); }

  // Runs a body on a loop over a database with two teams.
  template <typename Body>
  void with_snapshots(Body body) {
    io::Loop loop(1);
    auto opened = db::Database::open(directory_ + "/db");
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    db::Teams teams(*opened);
    first_ = teams.find(db::kDefaultTeam)->id;
    second_ = teams.create("other", "Other", {}, 1)->id;
    auto database = std::make_shared<fleet::SharedDatabase>(loop, std::move(*opened));
    DatabaseSnapshots snapshots(loop, host_, database,
                                {.most = most_, .turns = std::make_shared<io::Turns>(loop, 1)});
    auto task = [](io::Loop& on, DatabaseSnapshots& under_test, Body& run) -> io::Async<void> {
      co_await run(under_test);
      on.stop();
    };
    loop.spawn(task(loop, snapshots, body));
    loop.run();
  }

  fleet::FakeHost host_;
  std::string directory_, first_, second_;
  std::uint64_t most_ = 1000;
};

const fleet::Snapshot kTaken{
    .image = "sha256:" + std::string(64, 'a'), .cpu_milli = 2000, .memory = 1 << 20, .disk = 0};

TEST_F(DatabaseSnapshotsTest, WhatWasTakenCanBeMade) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    const auto added = co_await snapshots.add(first_, "i1", "", kTaken);
    EXPECT_TRUE(added.has_value());
    EXPECT_THAT(added->names, IsEmpty());
    const auto made = co_await snapshots.to_make(first_, added->id);
    EXPECT_EQ(made->recipe.image, kTaken.image);
    EXPECT_EQ(made->recipe.cpu_milli, policy::LimitValue(2000));
    EXPECT_EQ(made->recipe.disk_bytes, policy::LimitValue());
    EXPECT_EQ(made->id, added->id);
    // Clients add the tag that means the one that is current.
    const auto tagged = co_await snapshots.to_make(first_, added->id + ":default");
    EXPECT_TRUE(tagged.has_value());
  });
}

TEST_F(DatabaseSnapshotsTest, WhatIsMadeIsLikeItsSource) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    fleet::Snapshot taken = kTaken;
    fleet::Shape shape;
    shape.recipe = {.image = taken.image, .cpu_milli = 2000, .pids = 7, .user = "root"};
    shape.recipe.privileges = policy::Privileges::kNone;
    shape.start = {.command = "serve", .ready = "check", .label = "label"};
    taken.shape = fleet::encode_shape(shape).value();
    const auto added = co_await snapshots.add(first_, "i1", "", taken);
    const auto made = co_await snapshots.to_make(first_, added->id);
    EXPECT_EQ(made->recipe, shape.recipe);
    EXPECT_EQ(made->start, shape.start);
    EXPECT_TRUE(made->env.empty());
  });
}

TEST_F(DatabaseSnapshotsTest, TheLongestStartCommandsCanBeKept) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    fleet::Snapshot taken = kTaken;
    fleet::Shape shape;
    shape.recipe.image = taken.image;
    // Six bytes each in JSON.
    shape.start = {.command = std::string(kMostCommand, '\1'),
                   .ready = std::string(kMostCommand, '\2'),
                   .label = std::string(proto::kMaxLabel, '\3')};
    taken.shape = fleet::encode_shape(shape).value();
    const auto added = co_await snapshots.add(first_, "i1", "", taken);
    EXPECT_TRUE(added.has_value()) << added.error().message();
    const auto made = co_await snapshots.to_make(first_, added->id);
    EXPECT_EQ(made->start, shape.start);
    db::SandboxRow row =
        fleet::row_of({.team = first_, .recipe = shape.recipe, .start = shape.start});
    row.id = row.host_id = "i1";
    const Status kept = db::Sandboxes::check(row);
    EXPECT_TRUE(kept.has_value()) << kept.error().message();
  });
}

TEST_F(DatabaseSnapshotsTest, OfOneThatIsNotUnderstoodNothingIsMade) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    fleet::Snapshot taken = kTaken;
    taken.shape = R"({"recipe": {"privileges": "fewer"}, "start": {}})";
    const auto added = co_await snapshots.add(first_, "i1", "", taken);
    const auto made = co_await snapshots.to_make(first_, added->id);
    EXPECT_EQ(made.error().code(), Code::kFailedPrecondition);
    EXPECT_THAT(made.error().message(), testing::HasSubstr("another version of the server"));
    EXPECT_THAT(made.error().message(), testing::HasSubstr("fewer"));
  });
}

TEST_F(DatabaseSnapshotsTest, ANameIsTheTeamsOwn) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    const auto added = co_await snapshots.add(first_, "i1", "mine", kTaken);
    EXPECT_EQ(added->id, "default/mine:default");
    EXPECT_THAT(added->names, ElementsAre("default/mine"));
    for (const char* name : {"mine", "default/mine", "default/mine:default"}) {
      const auto made = co_await snapshots.to_make(first_, name);
      EXPECT_TRUE(made.has_value()) << name;
      const auto others = co_await snapshots.to_make(second_, name);
      EXPECT_EQ(others.error().code(), Code::kNotFound) << name;
      const auto removed = co_await snapshots.remove(second_, name);
      EXPECT_EQ(removed.error().code(), Code::kNotFound) << name;
    }
    const auto bad = co_await snapshots.add(first_, "i1", "No Name", kTaken);
    EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
    const auto foreign = co_await snapshots.add(second_, "i1", "default/mine", kTaken);
    EXPECT_EQ(foreign.error().code(), Code::kNotFound);
  });
}

TEST_F(DatabaseSnapshotsTest, ATeamHasSoManyAndMayReplaceThem) {
  most_ = 1;
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    auto checked = co_await snapshots.check(first_, "mine");
    EXPECT_TRUE(checked.has_value());
    const auto added = co_await snapshots.add(first_, "i1", "mine", kTaken);
    EXPECT_TRUE(added.has_value());
    for (const char* name : {"", "other"}) {
      checked = co_await snapshots.check(first_, name);
      EXPECT_EQ(checked.error().code(), Code::kResourceExhausted) << name;
    }
    checked = co_await snapshots.check(first_, "mine");
    EXPECT_TRUE(checked.has_value());
    checked = co_await snapshots.check(second_, "");
    EXPECT_TRUE(checked.has_value());
    checked = co_await snapshots.check(second_, "No Name");
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
  });
}

TEST_F(DatabaseSnapshotsTest, TheImageOfOneThatIsNotAddedIsDroppedUnlessItIsNeeded) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    auto refused = co_await snapshots.add(first_, "i1", "No Name", kTaken);
    EXPECT_FALSE(refused.has_value());
    EXPECT_THAT(host_.dropped(), ElementsAre(kTaken.image));
    const auto added = co_await snapshots.add(first_, "i1", "", kTaken);
    EXPECT_TRUE(added.has_value());
    refused = co_await snapshots.add(first_, "i1", "No Name", kTaken);
    EXPECT_FALSE(refused.has_value());
    EXPECT_THAT(host_.dropped(), ElementsAre(kTaken.image));
  });
}

TEST_F(DatabaseSnapshotsTest, AreListedByPages) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    for (const char* name : {"a", "b", "c"}) {
      const auto added = co_await snapshots.add(first_, name, name, kTaken);
      EXPECT_TRUE(added.has_value());
    }
    SnapshotQuery query{.sandbox = {}, .name = {}, .limit = 2, .after = {}};
    std::vector<std::string> seen;
    do {
      const auto page = co_await snapshots.list(first_, query);
      for (const SnapshotView& view : page->snapshots) seen.push_back(view.names.front());
      query.after = page->next_token;
    } while (!query.after.empty());
    EXPECT_THAT(seen, testing::UnorderedElementsAre("default/a", "default/b", "default/c"));
    query.sandbox = "b";
    auto page = co_await snapshots.list(first_, query);
    EXPECT_EQ(page->snapshots.size(), 1u);
    query.sandbox.reset();
    query.name = "other/a";
    page = co_await snapshots.list(first_, query);
    EXPECT_THAT(page->snapshots, IsEmpty());
    page = co_await snapshots.list(second_, SnapshotQuery());
    EXPECT_THAT(page->snapshots, IsEmpty());
    // No alphabet, no base64 of that length, "none", "1", "_1".
    for (const char* token : {"!!!!", "x", "bm9uZQ", "MQ", "XzE"}) {
      query = {.sandbox = {}, .name = {}, .limit = 2, .after = token};
      const auto wrong = co_await snapshots.list(first_, query);
      EXPECT_FALSE(wrong.has_value()) << token;
      if (wrong.has_value()) continue;
      EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument) << token;
    }
    // "1_": behind the first moment, where nothing is.
    query = {.sandbox = {}, .name = {}, .limit = 2, .after = "MV8"};
    page = co_await snapshots.list(first_, query);
    EXPECT_TRUE(page.has_value() && page->snapshots.empty());
  });
}

TEST_F(DatabaseSnapshotsTest, AreRemovedOnceAndATemplateIsNone) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    const auto added = co_await snapshots.add(first_, "i1", "mine", kTaken);
    const auto removed = co_await snapshots.remove(first_, added->id);
    EXPECT_TRUE(removed.has_value());
    const auto again = co_await snapshots.remove(first_, added->id);
    EXPECT_EQ(again.error().code(), Code::kNotFound);
    const auto made = co_await snapshots.to_make(first_, added->id);
    EXPECT_EQ(made.error().code(), Code::kNotFound);
    EXPECT_THAT(host_.dropped(), ElementsAre(kTaken.image));
  });
}

TEST_F(DatabaseSnapshotsTest, WhatNothingNeedsIsDroppedFromTheStore) {
  with_snapshots([this](DatabaseSnapshots& snapshots) -> io::Async<void> {
    const auto added = co_await snapshots.add(first_, "i1", "mine", kTaken);
    EXPECT_TRUE(added.has_value());
    const std::string other = "sha256:" + std::string(64, 'b');
    host_.set_old({kTaken.image, other});
    const auto swept = co_await snapshots.sweep();
    EXPECT_TRUE(swept.has_value());
    EXPECT_THAT(host_.dropped(), ElementsAre(other));
  });
}

}  // namespace
}  // namespace caisson::api
