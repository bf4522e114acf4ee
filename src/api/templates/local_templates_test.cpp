#include "api/templates/local_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/exchange_for_test.h"
#include "api/templates/script_host_for_test.h"
#include "db/database_for_test.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Over a database of its own and a host that is played; the builder is a script that says at once
// that it is done, or that it failed where the job has a step "fail".
class LocalTemplatesTest : public db::DatabaseTest {
 protected:
  LocalTemplatesTest() {
    host_.script =
        "case $job in\n"
        "*'\"fail\"'*) echo '{\"failure\":\"exit status 2\",\"step\":\"1\"}' >&3;;\n"
        "*'\"hang\"'*) read -r never <&4;;\n"
        "*) echo '{\"image\":\"" +
        std::string(64, 'a') +
        "\"}' >&3;;\n"
        "esac\n";
  }

  template <typename Body>
  void with(Body body) {
    io::Loop loop(2);
    auto database =
        std::make_shared<fleet::SharedDatabase>(loop, db::Database::open(path_).value());
    LocalTemplates templates(
        {.loop = loop,
         .config = config_,
         .database = database,
         .host = host_,
         .uploads = folder_.path() + "/uploads",
         .upload_token = [](std::string_view what) { return "token-of-" + std::string(what); }});
    auto whole = [](LocalTemplates& of, Body& inner) -> io::Async<void> {
      const Status prepared = co_await of.prepare();
      EXPECT_TRUE(prepared.has_value()) << prepared.error().message();
      co_await inner(of);
      co_await of.close();
    };
    run(loop, whole(templates, body));
  }
  static BuildOrder order(const std::string& command) {
    BuildOrder made{.from_image = "base"};
    made.steps = {{.type = "RUN", .args = {command}, .files_hash = "", .force = false}};
    return made;
  }
  // Its last state.
  static io::Async<BuildProgress> ended(LocalTemplates& of, std::string team, std::string id,
                                        std::string build) {
    for (;;) {
      Result<BuildProgress> now = co_await of.progress(team, id, build, {});
      EXPECT_TRUE(now.has_value());
      if (!now.has_value() || (now->build.status != db::BuildStatus::kBuilding &&
                               now->build.status != db::BuildStatus::kWaiting))
        co_return now.value();
      co_await io::Loop::sleep(std::chrono::milliseconds(5));
    }
  }
  // A build of that name, to its end.
  static io::Async<BuildProgress> built(LocalTemplates& of, std::string team, NewTemplate wanted,
                                        BuildOrder what) {
    Result<NewBuild> made = co_await of.create(team, std::move(wanted));
    EXPECT_TRUE(made.has_value()) << made.error().message();
    const std::string id = made->view.id, build = made->view.build_id;
    const Status started = co_await of.start_build(team, id, build, std::move(what));
    EXPECT_TRUE(started.has_value()) << started.error().message();
    co_return co_await ended(of, team, id, build);
  }

  ScriptHost host_;
  policy::ServerConfig config_;
};

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
    held.clear();
    const auto again = co_await of.begin_upload(id, hash, place->expires, place->token);
    EXPECT_TRUE(again.has_value());
  });
}

}  // namespace
}  // namespace caisson::api
