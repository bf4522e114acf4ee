// For tests: a server's templates over a database of its own and a host that is played. Each test
// brings a coroutine, which with() runs between prepare() and close(); the host is the test's to
// change, and outlives both. One thread but for the loop's pool.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "api/exchange_for_test.h"
#include "api/templates/local_templates.h"
#include "api/templates/script_host_for_test.h"
#include "db/database_for_test.h"

namespace caisson::api {

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
         .upload_token = [](std::string_view what) { return "token-of-" + std::string(what); },
         .quota = [this](std::string) -> io::Async<Result<fleet::Quota>> { co_return quota_; },
         .room = nullptr});
    of_loop_ = &loop;
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
  io::Loop* of_loop_ = nullptr;  // that goes on now
  policy::ServerConfig config_;
  fleet::Quota quota_ = fleet::quota_of(policy::ServerConfig(), {});
};

}  // namespace caisson::api
