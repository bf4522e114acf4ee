#include "api/templates/local_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "api/templates/local_templates_for_test.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(LocalTemplatesTest, WhatIsBuiltIsWhatASandboxIsMadeOf) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    BuildOrder what = order("make");
    what.start_command = "";
    const BuildProgress done = co_await built(
        of, ours_.id, {.name = "tools", .tags = {}, .cpus = 2, .memory_mib = 1024}, what);
    EXPECT_EQ(done.build.status, db::BuildStatus::kReady) << done.build.failure;
    for (const std::string& name :
         {std::string("tools"), std::string("default/tools:default"), done.build.template_id}) {
      const auto made = co_await of.to_make(ours_.id, name);
      EXPECT_TRUE(made.has_value()) << name;
      if (!made.has_value()) continue;
      EXPECT_EQ(made->id, done.build.template_id);
      EXPECT_EQ(made->alias, "tools");
      EXPECT_EQ(made->recipe.image, "sha256:" + std::string(64, 'a'));
      EXPECT_EQ(made->recipe.cpu_milli, 2000u);
      EXPECT_EQ(made->recipe.memory_bytes, 1024ull << 20);
    }
    const auto listed = co_await of.list(ours_.id);
    EXPECT_EQ(listed->at(0).names, std::vector<std::string>{"tools"});
    const auto others = co_await of.list(theirs_.id);
    EXPECT_TRUE(others->empty());
    for (const std::string& name : {std::string("tools"), std::string("tools:none")}) {
      const auto made = co_await of.to_make(name == "tools" ? theirs_.id : ours_.id, name);
      EXPECT_EQ(made.error().code(), Code::kNotFound) << name;
    }
  });
}

TEST_F(LocalTemplatesTest, AFailureIsKeptWithItsStep) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const BuildProgress done = co_await built(of, ours_.id, {.name = "tools"}, order("fail"));
    EXPECT_EQ(done.build.status, db::BuildStatus::kError);
    EXPECT_EQ(done.build.failure, "exit status 2");
    EXPECT_EQ(done.build.failure_step, "1");
    EXPECT_EQ(done.entries.back().level, db::LogLevel::kError);
  });
}

TEST_F(LocalTemplatesTest, NamesAndSizesAreJudged) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    for (const auto& [wanted, code] : std::initializer_list<std::pair<NewTemplate, Code>>{
             {{.name = "Upper"}, Code::kInvalidArgument},
             {{.name = "a:b:c"}, Code::kInvalidArgument},
             {{.name = "a", .tags = {"B"}}, Code::kInvalidArgument},
             {{.name = "a", .cpus = 9}, Code::kInvalidArgument},
             {{.name = "a", .memory_mib = 1 << 20}, Code::kInvalidArgument},
             {{.name = "theirs/a"}, Code::kPermissionDenied}}) {
      const auto made = co_await of.create(ours_.id, wanted);
      EXPECT_FALSE(made.has_value()) << wanted.name;
      if (!made.has_value()) EXPECT_EQ(made.error().code(), code) << made.error().message();
    }
    const auto tagged = co_await of.create(ours_.id, {.name = "default/a:v1", .tags = {"x", "v1"}});
    EXPECT_THAT(tagged->tags, ElementsAre("v1", "x"));
    const auto plain = co_await of.create(ours_.id, {.name = "a"});
    EXPECT_THAT(plain->tags, ElementsAre("default"));
    EXPECT_EQ(plain->view.id, tagged->view.id);
  });
}

TEST_F(LocalTemplatesTest, OrdersAreJudgedBeforeTheyAreTaken) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, build = made->view.build_id;
    BuildOrder copies = order("x");
    copies.steps[0] = {
        .type = "COPY", .args = {"a", "b"}, .files_hash = std::string(64, 'a'), .force = false};
    BuildOrder theirs = order("x"), unknown = order("x"), bad = order("");
    theirs.from_image = "caisson-template/" + id + ":" + build;
    unknown.from_image.clear();
    unknown.from_template = "none";
    for (const auto& [what, code] :
         std::initializer_list<std::pair<BuildOrder, Code>>{{copies, Code::kInvalidArgument},
                                                            {theirs, Code::kInvalidArgument},
                                                            {unknown, Code::kNotFound},
                                                            {bad, Code::kInvalidArgument}}) {
      const Status started = co_await of.start_build(ours_.id, id, build, what);
      EXPECT_FALSE(started.has_value());
      if (!started.has_value()) EXPECT_EQ(started.error().code(), code);
    }
    const Status other = co_await of.start_build(theirs_.id, id, build, order("x"));
    EXPECT_EQ(other.error().code(), Code::kNotFound);
    const Status once = co_await of.start_build(ours_.id, id, build, order("x"));
    EXPECT_TRUE(once.has_value());
    const Status twice = co_await of.start_build(ours_.id, id, build, order("x"));
    EXPECT_EQ(twice.error().code(), Code::kFailedPrecondition);
    co_await ended(of, ours_.id, id, build);
  });
}

TEST_F(LocalTemplatesTest, WhatAnotherServerLeftUnfinishedHasFailed) {
  std::string id, build;
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    id = made->view.id;
    build = made->view.build_id;
    const Status started = co_await of.start_build(ours_.id, id, build, order("hang"));
    EXPECT_TRUE(started.has_value());
  });
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto found = co_await of.progress(ours_.id, id, build, {});
    EXPECT_EQ(found->build.status, db::BuildStatus::kError);
    EXPECT_THAT(found->build.failure, StartsWith("the server ended or was started again"));
  });
}

// What a database refuses that is full or broken, as triggers of the test's: a name, and what it is
// before.
struct Fault {
  const char* name;
  const char* what;
};
constexpr Fault kNotReady = {"not_ready", "UPDATE ON builds WHEN NEW.status = 'ready'"};
constexpr Fault kNotTagged = {"not_tagged", "INSERT ON template_tags WHEN 1"};
constexpr Fault kNotFailed = {"not_failed", "UPDATE ON builds WHEN NEW.status = 'error'"};
constexpr Fault kNotDropped = {"not_dropped",
                               "UPDATE ON builds WHEN NEW.image = '' AND NEW.status = 'ready'"};

class Faults : public LocalTemplatesTest {
 protected:
  void inject(const Fault& fault) {
    db::Database database = db::Database::open(path_).value();
    const Status made = database.sqlite().run_script(
        std::string("CREATE TRIGGER ") + fault.name + " BEFORE " + fault.what +
        " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END");
    ASSERT_TRUE(made.has_value()) << made.error().message();
  }
  void mend(const Fault& fault) {
    db::Database database = db::Database::open(path_).value();
    ASSERT_TRUE(
        database.sqlite().run_script(std::string("DROP TRIGGER ") + fault.name).has_value());
  }
  // As the builder does before it says that it is done.
  void name_image(const std::string& id, const std::string& build) {
    host_.named.push_back(
        {"caisson-template/" + id + ":" + build, "sha256:" + std::string(64, 'a')});
  }
  // An ordered build whose image will be named.
  io::Async<NewBuild> ordered(LocalTemplates& of, NewTemplate wanted) {
    Result<NewBuild> made = co_await of.create(ours_.id, std::move(wanted));
    name_image(made->view.id, made->view.build_id);
    const Status started =
        co_await of.start_build(ours_.id, made->view.id, made->view.build_id, order("make"));
    EXPECT_TRUE(started.has_value()) << started.error().message();
    co_return std::move(*made);
  }
  static io::Async<void> none_goes_on(LocalTemplates& of) {
    while (!of.unfinished().empty()) co_await io::Loop::sleep(std::chrono::milliseconds(2));
  }
};

TEST_F(Faults, ABuildThatCannotBeWrittenDownHasFailedAndLeavesNoImage) {
  for (const Fault& fault : {kNotReady, kNotTagged}) {
    with([&](LocalTemplates& of) -> io::Async<void> {
      inject(fault);
      const NewBuild made = co_await ordered(of, {.name = "tools"});
      const BuildProgress done = co_await ended(of, ours_.id, made.view.id, made.view.build_id);
      EXPECT_EQ(done.build.status, db::BuildStatus::kError) << fault.name;
      EXPECT_THAT(done.build.failure, HasSubstr("the disk is full"));
      EXPECT_EQ(done.build.image, "");
      co_await none_goes_on(of);
      EXPECT_TRUE(host_.named.empty());
      mend(fault);
      const auto none = co_await of.to_make(ours_.id, "tools");
      EXPECT_EQ(none.error().code(), Code::kNotFound);
    });
  }
}

TEST_F(Faults, AReadyBuildKeepsItsImageWhereTheOldOnesCannotBeLetGo) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const NewBuild old = co_await ordered(of, {.name = "tools"});
    co_await ended(of, ours_.id, old.view.id, old.view.build_id);
    inject(kNotDropped);
    const NewBuild made = co_await ordered(of, {.name = "tools"});
    const BuildProgress done = co_await ended(of, ours_.id, made.view.id, made.view.build_id);
    EXPECT_EQ(done.build.status, db::BuildStatus::kReady) << done.build.failure;
    co_await none_goes_on(of);
    EXPECT_EQ(host_.named.size(), 2u);
    mend(kNotDropped);
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value());
    const auto before = co_await of.progress(ours_.id, old.view.id, old.view.build_id, {});
    EXPECT_EQ(before->build.image, "");
    // The newer one is of the same image here, which is still needed.
    const auto whole = co_await of.to_make(ours_.id, "tools");
    EXPECT_EQ(whole->recipe.image, "sha256:" + std::string(64, 'a'));
    EXPECT_FALSE(host_.named.empty());
  });
}

TEST_F(Faults, WhatCannotBeWrittenDownAtAllIsSettledLater) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    inject(kNotReady);
    inject(kNotFailed);
    const NewBuild made = co_await ordered(of, {.name = "tools"});
    co_await none_goes_on(of);
    const auto found = co_await of.progress(ours_.id, made.view.id, made.view.build_id, {});
    EXPECT_EQ(found->build.status, db::BuildStatus::kBuilding);
    EXPECT_EQ(host_.named.size(), 1u);
    const Status failed = co_await of.sweep();
    EXPECT_FALSE(failed.has_value());
    mend(kNotFailed);
    mend(kNotReady);
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value()) << swept.error().message();
    const auto settled = co_await of.progress(ours_.id, made.view.id, made.view.build_id, {});
    EXPECT_EQ(settled->build.status, db::BuildStatus::kError);
    EXPECT_THAT(settled->build.failure, HasSubstr("could not be written down"));
    EXPECT_TRUE(host_.named.empty());
  });
}

TEST_F(Faults, AServerThatDiesBeforeItIsWrittenDownLeavesAFailedOne) {
  NewBuild made;
  with([&](LocalTemplates& of) -> io::Async<void> {
    Result<NewBuild> waits = co_await of.create(ours_.id, {.name = "tools"});
    made = std::move(*waits);
  });
  {
    db::Database database = db::Database::open(path_).value();
    ASSERT_TRUE(db::Builds(database).start(made.view.build_id, "", "").has_value());
  }
  name_image(made.view.id, made.view.build_id);
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto found = co_await of.progress(ours_.id, made.view.id, made.view.build_id, {});
    EXPECT_EQ(found->build.status, db::BuildStatus::kError);
    EXPECT_TRUE(host_.named.empty());
  });
}

TEST_F(LocalTemplatesTest, ATeamsQuotaHoldsForItsBuilds) {
  quota_ = fleet::Quota{.cpu_milli = 1000, .memory_bytes = 256ull << 20, .disk_bytes = 1 << 20};
  // Says that it is done where the job has the team's limits.
  host_.script =
      "case $job in *'\"cpuMilli\":1000,\"memory\":268435456,\"disk\":1048576'*) echo "
      "'{\"image\":\"" +
      std::string(64, 'a') + "\"}' >&3;; esac\n";
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto cpus = co_await of.create(ours_.id, {.name = "tools", .cpus = 2});
    EXPECT_EQ(cpus.error().message(), "cpuCount: found 2; allowed is 1 at most");
    const auto memory = co_await of.create(ours_.id, {.name = "tools", .memory_mib = 257});
    EXPECT_EQ(memory.error().message(), "memoryMB: found 257; allowed is 256 at most");
    // What nobody asked for is what the team may have.
    const BuildProgress done = co_await built(of, ours_.id, {.name = "tools"}, order("make"));
    EXPECT_EQ(done.build.status, db::BuildStatus::kReady) << done.build.failure;
    EXPECT_EQ(done.build.size.cpu_milli, 1000u);
    EXPECT_EQ(done.build.size.memory, 256ull << 20);
  });
}

TEST_F(LocalTemplatesTest, ATeamsQuotaHoldsForTheTrialOfWhatItStarts) {
  config_.defaults.disk = 1ull << 30;
  config_.defaults.pids = 1000;
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools", .cpus = 2});
    // It has less by now than when it made the build.
    quota_ = fleet::Quota{.cpu_milli = 500,
                          .memory_bytes = 256ull << 20,
                          .disk_bytes = 1ull << 20,
                          .pids = 64,
                          .privileges = policy::Privileges::kNone};
    BuildOrder what = order("make");
    what.start_command = "sleep infinity";
    const Status started =
        co_await of.start_build(ours_.id, made->view.id, made->view.build_id, std::move(what));
    EXPECT_TRUE(started.has_value());
    const BuildProgress done = co_await ended(of, ours_.id, made->view.id, made->view.build_id);
    EXPECT_THAT(done.build.failure, HasSubstr("makes no sandboxes"));
    EXPECT_EQ(host_.asked_for.size(), 1u);
    EXPECT_EQ(host_.asked_for.at(0), (maker::Recipe{.image = "sha256:" + std::string(64, 'a'),
                                                    .cpu_milli = 500,
                                                    .memory_bytes = 256ull << 20,
                                                    .disk_bytes = 1ull << 20,
                                                    .pids = 64,
                                                    .privileges = policy::Privileges::kNone}));
  });
}

TEST_F(LocalTemplatesTest, MoreTemplatesThanATeamMayHaveAreRefused) {
  config_.max_templates = 2;
  with([&](LocalTemplates& of) -> io::Async<void> {
    for (const char* name : {"one", "two"}) {
      const auto made = co_await of.create(ours_.id, {.name = name});
      EXPECT_TRUE(made.has_value());
    }
    const auto third = co_await of.create(ours_.id, {.name = "three"});
    EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
    EXPECT_EQ(third.error().message(),
              "you have 2 templates, as many as a team may have (max_templates)");
    const auto missing = co_await of.find(ours_.id, "three");
    EXPECT_EQ(missing.error().code(), Code::kNotFound);
    // One more build of what there is, another team's, and one in the place of one that went.
    const auto again = co_await of.create(ours_.id, {.name = "one"});
    EXPECT_TRUE(again.has_value());
    const auto other = co_await of.create(theirs_.id, {.name = "three"});
    EXPECT_TRUE(other.has_value());
    const Status removed = co_await of.remove(ours_.id, "two");
    EXPECT_TRUE(removed.has_value());
    const auto in_its_place = co_await of.create(ours_.id, {.name = "three"});
    EXPECT_TRUE(in_its_place.has_value());
  });
}

TEST_F(LocalTemplatesTest, MoreBuildsThanATeamMayHaveAreRefused) {
  config_.builds.team_most = 1;
  with([&](LocalTemplates& of) -> io::Async<void> {
    for (const bool first : {true, false}) {
      const auto made = co_await of.create(ours_.id, {.name = "tools"});
      const Status started =
          co_await of.start_build(ours_.id, made->view.id, made->view.build_id, order("hang"));
      EXPECT_EQ(started.has_value(), first);
      if (first) continue;
      EXPECT_EQ(started.error().code(), Code::kResourceExhausted);
      // It may be ordered again later.
      const auto found = co_await of.progress(ours_.id, made->view.id, made->view.build_id, {});
      EXPECT_EQ(found->build.status, db::BuildStatus::kWaiting);
    }
  });
}

TEST_F(LocalTemplatesTest, OthersMayUseAPublicOneAndChangeNone) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const BuildProgress done = co_await built(of, ours_.id, {.name = "tools"}, order("x"));
    const std::string id = done.build.template_id;
    const auto hidden = co_await of.find(theirs_.id, id);
    EXPECT_EQ(hidden.error().code(), Code::kPermissionDenied);
    const auto opened = co_await of.set_access(ours_.id, "tools", TemplateView::Access::kPublic);
    EXPECT_EQ(opened->access, TemplateView::Access::kPublic);
    const auto used = co_await of.to_make(theirs_.id, "default/tools");
    EXPECT_TRUE(used.has_value());
    const Status removed = co_await of.remove(theirs_.id, id);
    EXPECT_EQ(removed.error().code(), Code::kPermissionDenied);
    const auto tagged = co_await of.set_tags(theirs_.id, id, {"a"});
    EXPECT_EQ(tagged.error().code(), Code::kPermissionDenied);
    const auto place = co_await of.upload_place(theirs_.id, id, std::string(64, 'a'));
    EXPECT_EQ(place.error().code(), Code::kPermissionDenied);
  });
}

TEST_F(LocalTemplatesTest, TagsMoveAndGo) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const BuildProgress one = co_await built(of, ours_.id, {.name = "tools:v1"}, order("x"));
    const BuildProgress two = co_await built(of, ours_.id, {.name = "tools:v2"}, order("x"));
    const auto moved = co_await of.set_tags(ours_.id, "tools:v2", {"v1"});
    EXPECT_EQ(moved.value(), two.build.id);
    const auto tags = co_await of.tags(ours_.id, "tools");
    EXPECT_EQ(tags->size(), 2u);
    const auto bad = co_await of.set_tags(ours_.id, "tools:v2", {"tools:x"});
    EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
    const auto none = co_await of.set_tags(ours_.id, "tools:none", {"x"});
    EXPECT_EQ(none.error().code(), Code::kNotFound);
    const Status gone = co_await of.remove_tags(ours_.id, "tools", {"v1", "v2"});
    EXPECT_TRUE(gone.has_value());
    const auto details = co_await of.details(ours_.id, one.build.template_id);
    for (const db::Build& build : details->builds) EXPECT_EQ(build.image, "");
    const Status removed = co_await of.remove(ours_.id, "tools");
    EXPECT_TRUE(removed.has_value());
    const auto after = co_await of.find(ours_.id, "tools");
    EXPECT_EQ(after.error().code(), Code::kNotFound);
  });
}

TEST_F(LocalTemplatesTest, FilesAreTakenWithATokenAlone) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, hash(64, 'a');
    const auto place = co_await of.upload_place(ours_.id, id, hash);
    EXPECT_FALSE(place->present);
    const auto bad_hash = co_await of.upload_place(ours_.id, id, "../x");
    EXPECT_EQ(bad_hash.error().code(), Code::kInvalidArgument);
    for (const auto& [to, token] : std::initializer_list<std::pair<std::string, std::string>>{
             {hash, "other"}, {std::string(64, 'b'), place->token}}) {
      const auto refused = co_await of.begin_upload(id, to, place->expires, token);
      EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
    }
    const auto late = co_await of.begin_upload(id, hash, 5, "token-of-" + id + "/" + hash + "/5");
    EXPECT_THAT(late.error().message(), HasSubstr("time to upload is over"));
    const auto upload = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_TRUE(upload.has_value());
    EXPECT_TRUE((*upload)->append("bytes").has_value());
    EXPECT_TRUE((*upload)->keep().has_value());
    const auto there = co_await of.upload_place(ours_.id, id, hash);
    EXPECT_TRUE(there->present);
  });
}

TEST_F(LocalTemplatesTest, AnUploadsURLGoesWithItsTemplate) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, hash(64, 'a');
    const auto place = co_await of.upload_place(ours_.id, id, hash);
    auto upload = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_TRUE((*upload)->append("bytes").has_value());
    EXPECT_TRUE((*upload)->keep().has_value());
    auto late = co_await of.begin_upload(
        id, std::string(64, 'b'), place->expires,
        "token-of-" + id + "/" + std::string(64, 'b') + "/" + std::to_string(place->expires));
    EXPECT_TRUE(late.has_value());
    const Status removed = co_await of.remove(ours_.id, "tools");
    EXPECT_TRUE(removed.has_value());
    EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/uploads/" + ours_.id + "/" + id));
    EXPECT_EQ((*late)->keep().error().code(), Code::kNotFound);
    const auto refused = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.error().message(), HasSubstr("was removed"));
  });
}

TEST_F(LocalTemplatesTest, FilesOfATemplateThatIsGoneAreSwept) {
  const std::string lost = folder_.path() + "/uploads/" + ours_.id + "/gone";
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, hash(64, 'a');
    const auto place = co_await of.upload_place(ours_.id, id, hash);
    auto upload = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_TRUE((*upload)->keep().has_value());
    std::filesystem::create_directories(lost);
    std::ofstream(lost + "/" + hash) << "bytes";
    const Status swept = co_await of.sweep();
    EXPECT_TRUE(swept.has_value());
    EXPECT_FALSE(std::filesystem::exists(lost));
    const auto there = co_await of.upload_place(ours_.id, id, hash);
    EXPECT_TRUE(there->present);
  });
}

TEST_F(LocalTemplatesTest, OnlySoManyFilesComeAtOnce) {
  with([&](LocalTemplates& of) -> io::Async<void> {
    const auto made = co_await of.create(ours_.id, {.name = "tools"});
    const std::string id = made->view.id, hash(64, 'a');
    const auto place = co_await of.upload_place(ours_.id, id, hash);
    std::vector<std::shared_ptr<Upload>> held;
    for (;;) {
      auto upload = co_await of.begin_upload(id, hash, place->expires, place->token);
      if (!upload.has_value()) {
        EXPECT_EQ(upload.error().code(), Code::kResourceExhausted);
        break;
      }
      held.push_back(std::move(*upload));
    }
    EXPECT_EQ(held.size(), 16u);
    // Which is nothing to another team.
    const auto others = co_await of.create(theirs_.id, {.name = "tools"});
    const auto their_place = co_await of.upload_place(theirs_.id, others->view.id, hash);
    const auto theirs =
        co_await of.begin_upload(others->view.id, hash, their_place->expires, their_place->token);
    EXPECT_TRUE(theirs.has_value());
    held.clear();
    const auto again = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_TRUE(again.has_value());
  });
}

}  // namespace
}  // namespace caisson::api
