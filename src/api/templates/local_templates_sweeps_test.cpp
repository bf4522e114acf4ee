#include <gmock/gmock.h>

#include <atomic>

#include "api/templates/local_templates_for_test.h"
#include "db/sandboxes.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;

TEST_F(LocalTemplatesTest, ASweepLeavesWhatGoesOn) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, build = made->view.build_id;
    const Status started = co_await of.start_build(ours_.id, id, build, order("hang"));
    EXPECT_TRUE(started.has_value());
    while (of.building(ours_.id) == 0) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    const std::string own = "caisson-template/" + id + ":" + build;
    host_.named = {{own, "sha256:" + std::string(64, 'b')},
                   {"caisson-template/x:y", "sha256:" + std::string(64, 'c')}};
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value());
    EXPECT_EQ(host_.named.size(), 1u);
    EXPECT_EQ(host_.named.at(0).name, own);
    const auto found = co_await of.progress(ours_.id, id, build, {});
    EXPECT_EQ(found->build.status, db::BuildStatus::kBuilding);
  });
}

TEST_F(LocalTemplatesTest, ABuildThatBeginsWhileImagesAreForgottenKeepsItsOwn) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const BuildProgress old = co_await built(of, ours_.id, {.name = "tools:v1"}, order("make"));
    const std::string image = "sha256:" + std::string(64, 'a');
    host_.named = {{"caisson-template/" + old.build.template_id + ":" + old.build.id, image}};
    std::atomic<bool> lists = false, go_on = false;
    host_.on_list = [&] {
      lists = true;
      lists.notify_all();
      go_on.wait(false);
    };
    bool removed = false;
    auto remove = [](LocalTemplates& from, std::string team, bool& done) -> io::Async<void> {
      const Status gone = co_await from.remove_tags(team, "tools", {"v1"});
      EXPECT_TRUE(gone.has_value());
      done = true;
    };
    of_loop_->spawn(remove(of, ours_.id, removed));
    while (!lists) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    // The same image once more, by another build.
    const auto made = co_await of.create(ours_.id, {.name = "again"});
    const Status started =
        co_await of.start_build(ours_.id, made->view.id, made->view.build_id, order("hang"));
    EXPECT_TRUE(started.has_value());
    while (of.building(ours_.id) == 0) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    const std::string own = "caisson-template/" + made->view.id + ":" + made->view.build_id;
    host_.named.push_back({own, image});
    go_on = true;
    go_on.notify_all();
    while (!removed) co_await io::Loop::sleep(std::chrono::milliseconds(1));
    EXPECT_THAT(host_.named, ElementsAre(testing::Field(&maker::NamedImage::name, own)));
  });
}

TEST_F(LocalTemplatesTest, WhatOneBuildNeedsStaysWhereAnotherLetsGoOfTheSame) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const BuildProgress old = co_await built(of, ours_.id, {.name = "tools:v1"}, order("make"));
    const std::string image = "sha256:" + std::string(64, 'a');
    host_.named = {{"caisson-template/" + old.build.template_id + ":" + old.build.id, image}};
    // Between the moment that nothing refers to it and the one that it is forgotten.
    host_.on_list = [&] {
      db::Database other = db::Database::open(path_).value();
      const auto kept = db::Templates(other).ensure(theirs_.id, "kept", 1);
      ASSERT_TRUE(kept.has_value());
      const auto build = db::Builds(other).add(theirs_.id, kept->id, {"default"}, {}, 1);
      ASSERT_TRUE(build.has_value());
      ASSERT_TRUE(db::Builds(other).finish(build->id, image, 2).has_value());
    };
    const Status gone = co_await of.remove_tags(ours_.id, "tools", {"v1"});
    EXPECT_TRUE(gone.has_value());
    EXPECT_EQ(host_.named.size(), 1u);
  });
}

TEST_F(LocalTemplatesTest, AnImageGoesWithTheLastSandboxThatUsedIt) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const std::string image = "sha256:" + std::string(64, 'd');
    host_.named = {{"caisson-template/x:y", image}};
    db::SandboxRow row{.id = "i1",
                       .team_id = ours_.id,
                       .template_id = "x",
                       .alias = "",
                       .image = image,
                       .host_id = "h1"};
    row.lifecycle = "{}";
    const Status put = db::Sandboxes(database_).put(row);
    EXPECT_TRUE(put.has_value()) << put.error().message();
    const Status kept = co_await of.sweep();
    EXPECT_TRUE(kept.has_value());
    EXPECT_EQ(host_.named.size(), 1u);
    EXPECT_TRUE(db::Sandboxes(database_).remove_of_any_team("i1").has_value());
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value());
    EXPECT_TRUE(host_.named.empty());
  });
}

TEST_F(LocalTemplatesTest, OldBuildsGo) {
  config_.builds.kept = 2;
  with([&](LocalTemplates& of) -> io::Async<void> {
    std::vector<std::string> failed;
    for (int i = 0; i < 4; ++i) {
      const BuildProgress one = co_await built(of, ours_.id, {.name = "tools"}, order("fail"));
      failed.push_back(one.build.id);
      // Of builds of one moment it is not said which is the older one.
      co_await io::Loop::sleep(std::chrono::milliseconds(2));
    }
    const BuildProgress ready = co_await built(of, ours_.id, {.name = "tools"}, order("make"));
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value());
    const auto details = co_await of.details(ours_.id, "tools");
    std::vector<std::string> left;
    for (const db::Build& build : details->builds) left.push_back(build.id);
    EXPECT_THAT(left, ElementsAre(ready.build.id, failed[3], failed[2]));
  });
}

TEST_F(LocalTemplatesTest, TheCacheIsBoundedAfterBuilds) {
  config_.builds.cache = 5ull << 30;
  config_.builds.cache_ms = 7'200'000;
  with([&](LocalTemplates& of) -> io::Async<void> {
    of_loop_->spawn(of.keep_house([](const Error& error) { ADD_FAILURE() << error.message(); }));
    const auto count = [this] { return host_.asked_to_trim(); };
    while (count() < 2) co_await io::Loop::sleep(std::chrono::milliseconds(2));
    const std::size_t before = count();
    co_await built(of, ours_.id, {.name = "tools"}, order("make"));
    while (count() == before) co_await io::Loop::sleep(std::chrono::milliseconds(2));
    EXPECT_EQ(host_.trimmed.back(), (maker::CacheBound{.bytes = 5ull << 30, .seconds = 7200}));
  });
}

}  // namespace
}  // namespace caisson::api
