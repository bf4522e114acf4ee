#include "api/templates/build_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/exchange_for_test.h"
#include "api/templates/script_host_for_test.h"

namespace caisson::api {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MemoryBook final : public BuildBook {
 public:
  explicit MemoryBook(io::Loop& loop) : changed(loop) {}
  io::Async<void> log(std::string build_id, std::vector<db::LogEntry> entries) override {
    for (db::LogEntry& entry : entries) said.push_back(build_id + ": " + entry.message);
    changed.notify();
    co_return;
  }
  io::Async<void> finished(BuildTask task, std::string image) override {
    done.push_back(task.build_id);
    EXPECT_EQ(image, "sha256:" + std::string(64, 'a'));
    changed.notify();
    co_return;
  }
  io::Async<void> failed(BuildTask task, std::string step, std::string reason) override {
    failures.push_back(task.build_id + " " + step + ": " + reason);
    changed.notify();
    co_return;
  }

  std::vector<std::string> said, done, failures;
  io::Event changed;
};

class BuildQueueTest : public testing::Test {
 protected:
  BuildQueue::Options options(const std::string& script) {
    host_.script =
        script.empty() ? script : "done='{\"image\":\"" + std::string(64, 'a') + "\"}'\n" + script;
    return {};
  }
  static BuildTask task(const std::string& build, const std::string& of = "t1") {
    BuildTask made{.team = "team", .template_id = of, .build_id = build};
    made.job.spec.image = "base";
    made.job.name = "template/" + of + ":" + build;
    return made;
  }
  // Until so many builds have ended.
  static io::Async<void> ended(MemoryBook& book, std::size_t count) {
    while (book.done.size() + book.failures.size() < count) co_await book.changed.wait();
  }
  template <typename Body>
  void with_queue(BuildQueue::Options options, Body body) {
    io::Loop loop(2);
    MemoryBook book(loop);
    BuildQueue queue(loop, host_, std::move(options), book);
    run(loop, body(queue, book));
  }

  ScriptHost host_;
};

TEST_F(BuildQueueTest, WhatItSaysAndThatItIsDoneIsWrittenDown) {
  const auto script = R"(echo "{\"log\":\"hello\",\"step\":\"1\",\"level\":\"info\"}" >&3
echo "$done" >&3)";
  with_queue(options(script), [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    co_await ended(book, 1);
    EXPECT_THAT(book.said, ElementsAre("b1: hello"));
    EXPECT_THAT(book.done, ElementsAre("b1"));
  });
}

TEST_F(BuildQueueTest, TheJobIsGivenToIt) {
  const auto script = R"(case $job in *'"name":"template/t1:b1"'*) echo "$done" >&3;; esac)";
  with_queue(options(script), [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    queue.add(task("b1"));
    co_await ended(book, 1);
    EXPECT_THAT(book.done, ElementsAre("b1"));
  });
}

TEST_F(BuildQueueTest, AFailureIsToldWithItsStep) {
  with_queue(options(R"(echo '{"failure":"exit status 2","step":"3"}' >&3)"),
             [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
               queue.add(task("b1"));
               co_await ended(book, 1);
               EXPECT_THAT(book.failures, ElementsAre("b1 3: exit status 2"));
               EXPECT_THAT(book.said, ElementsAre("b1: exit status 2"));
             });
}

TEST_F(BuildQueueTest, ABuilderThatEndsOrTalksNonsenseHasFailed) {
  for (const char* script : {"exit 1", "echo nonsense >&3; read -r never <&4", "kill -9 $$"}) {
    with_queue(options(script), [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
      queue.add(task("b1"));
      co_await ended(book, 1);
      EXPECT_THAT(book.failures.at(0), HasSubstr("the build "));
    });
  }
}

TEST_F(BuildQueueTest, OneThatIsNotThereHasFailed) {
  with_queue(options(""), [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    queue.add(task("b1"));
    co_await ended(book, 1);
    EXPECT_THAT(book.failures.at(0), HasSubstr("b1 base: the build cannot be started"));
  });
}

TEST_F(BuildQueueTest, FilesGoAlongWithTheJob) {
  BuildQueue::Options chosen = options("echo \"$done\" >&3");
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    BuildTask copies = task("b1");
    copies.job.archives = {std::string(64, 'c')};
    copies.archive_paths = {"/bin/bash"};
    queue.add(copies);
    copies.build_id = "b2";
    copies.archive_paths = {"/none"};
    queue.add(copies);
    co_await ended(book, 2);
    EXPECT_THAT(book.failures, ElementsAre(HasSubstr("b2 base: the build cannot be started")));
    EXPECT_THAT(book.done, ElementsAre("b1"));
  });
}

TEST_F(BuildQueueTest, OneThatTakesTooLongIsEnded) {
  BuildQueue::Options chosen = options("read -r never <&4");
  chosen.time = milliseconds(100);
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    queue.add(task("b1"));
    co_await ended(book, 1);
    EXPECT_THAT(book.failures.at(0), HasSubstr("took longer than"));
  });
}

TEST_F(BuildQueueTest, OnlySoManyGoOnAtOnceAndOnlySoManyWait) {
  BuildQueue::Options chosen =
      options("echo '{\"log\":\"began\",\"step\":\"\",\"level\":\"info\"}' >&3\nread -r never <&4");
  chosen.at_once = 1;
  chosen.most = 2;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    EXPECT_TRUE(queue.add(task("b2", "t2")));
    const Status full = queue.check("team");
    EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(full.error().message(), HasSubstr("as many builds wait as this server takes"));
    EXPECT_FALSE(queue.add(task("b3")));
    while (book.said.empty()) co_await book.changed.wait();
    EXPECT_THAT(book.said, ElementsAre("b1: began"));
    queue.cancel("t1", "not wanted");
    while (book.said.size() < 3) co_await book.changed.wait();
    EXPECT_THAT(book.said, ElementsAre("b1: began", "b1: not wanted", "b2: began"));
    EXPECT_THAT(book.failures, ElementsAre(HasSubstr("not wanted")));
    co_await queue.close("over");
    EXPECT_THAT(book.failures, ElementsAre(HasSubstr("b1"), HasSubstr("b2")));
  });
}

// Each says that it began and then that it is done when its life ends, which the test does.
constexpr const char* kBegins = R"(case $job in
*'"name":"'*) echo "{\"log\":\"began\",\"step\":\"\",\"level\":\"info\"}" >&3;;
esac
read -r never <&4
)";

TEST_F(BuildQueueTest, TeamsTakeTurns) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 1;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    const auto of = [](const std::string& team, const std::string& build) {
      BuildTask made = task(build, "template-" + build);
      made.team = team;
      return made;
    };
    for (const char* build : {"a1", "a2", "a3"}) EXPECT_TRUE(queue.add(of("a", build)));
    EXPECT_TRUE(queue.add(of("b", "b1")));
    EXPECT_TRUE(queue.add(of("c", "c1")));
    EXPECT_TRUE(queue.add(of("b", "b2")));
    std::vector<std::string> order;
    while (order.size() < 6) {
      while (book.said.size() < 2 * order.size() + 1) co_await book.changed.wait();
      const std::string began = book.said.back().substr(0, 2);
      order.push_back(began);
      queue.cancel("template-" + began, "enough");
    }
    EXPECT_THAT(order, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
    co_await ended(book, 6);
  });
}

TEST_F(BuildQueueTest, WhoHadATurnLetsPassWhoHadNone) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 1;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1", "t1")));
    EXPECT_TRUE(queue.add(task("b2", "t2")));
    while (book.said.empty()) co_await book.changed.wait();
    // Though the other one waits for longer.
    BuildTask others = task("b3", "t3");
    others.team = "others";
    EXPECT_TRUE(queue.add(std::move(others)));
    queue.cancel("t1", "enough");
    while (book.said.size() < 3) co_await book.changed.wait();
    EXPECT_EQ(book.said.back(), "b3: began");
    // Whichever it was, so that a wrong one is told rather than waited for.
    queue.cancel(book.said.back().starts_with("b3") ? "t3" : "t2", "enough");
    while (book.said.size() < 5) co_await book.changed.wait();
    EXPECT_EQ(book.said.back(), "b2: began");
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, TeamsThatComeAgainAndAgainDoNotPassOneThatWaitsForEver) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 1;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    const auto add = [&](const std::string& team, const std::string& build) {
      BuildTask made = task(build, "template-" + build);
      made.team = team;
      EXPECT_TRUE(queue.add(std::move(made)));
    };
    add("c", "c1");
    add("c", "c2");
    std::vector<std::string> order;
    // Two others have one each that waits whenever the other one's goes on, and never more.
    for (const auto& [team, build] :
         std::vector<std::pair<std::string, std::string>>{{"a", "a1"}, {"b", "b1"}, {"a", "a2"}}) {
      while (book.said.size() < 2 * order.size() + 1) co_await book.changed.wait();
      order.push_back(book.said.back().substr(0, 2));
      add(team, build);
      queue.cancel("template-" + order.back(), "enough");
    }
    while (book.said.size() < 2 * order.size() + 1) co_await book.changed.wait();
    order.push_back(book.said.back().substr(0, 2));
    EXPECT_THAT(order, ElementsAre("c1", "a1", "c2", "b1"));
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, WhereItWasBusyForLongTheStoreGetsAMoment) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 2;
  chosen.busy_for = milliseconds(0);
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1", "t1")));
    EXPECT_TRUE(queue.add(task("b2", "t2")));
    while (book.said.size() < 2) co_await book.changed.wait();
    EXPECT_EQ(queue.running(std::nullopt), 1u);
    queue.cancel("t1", "enough");
    while (book.said.size() < 4) co_await book.changed.wait();
    EXPECT_THAT(book.said, ElementsAre(HasSubstr("b2: waiting: the builds that go on end first"),
                                       "b1: began", "b1: enough", "b2: began"));
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, TheStoresMomentIsNotWaitedForForEver) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 2;
  chosen.busy_for = milliseconds(20);
  chosen.rest_for = milliseconds(20);
  chosen.look_every = milliseconds(2);
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1", "t1")));
    while (book.said.empty()) co_await book.changed.wait();
    co_await io::Loop::sleep(milliseconds(20));
    EXPECT_TRUE(queue.add(task("b2", "t2")));
    while (book.said.back() != "b2: began") co_await book.changed.wait();
    EXPECT_EQ(queue.running(std::nullopt), 2u);
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, OneTeamDoesNotTakeEveryPlace) {
  BuildQueue::Options chosen = options(kBegins);
  chosen.at_once = 3;
  chosen.team_at_once = 2;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    for (const char* build : {"b1", "b2", "b3"}) EXPECT_TRUE(queue.add(task(build)));
    while (book.said.size() < 2) co_await book.changed.wait();
    EXPECT_EQ(queue.running("team"), 2u);
    BuildTask others = task("b4", "t2");
    others.team = "others";
    EXPECT_TRUE(queue.add(std::move(others)));
    while (book.said.size() < 3) co_await book.changed.wait();
    EXPECT_EQ(book.said.back(), "b4: began");
    EXPECT_EQ(queue.running("team"), 2u);
    EXPECT_EQ(queue.running(std::nullopt), 3u);
    EXPECT_THAT(queue.builds(), ElementsAre("b1", "b2", "b3", "b4"));
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, OneTeamDoesNotFillIt) {
  BuildQueue::Options chosen = options("read -r never <&4");
  chosen.at_once = 1;
  chosen.team_most = 2;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook&) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    EXPECT_TRUE(queue.add(task("b2")));
    const Status more = queue.add(task("b3"));
    EXPECT_EQ(more.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(more.error().message(), HasSubstr("you have 2 builds that wait or go on"));
    EXPECT_TRUE(queue.check("others").has_value());
    co_await queue.close("over");
  });
}

TEST_F(BuildQueueTest, AQuotaIsWaitedForAndHoldsUpNoOtherTeam) {
  BuildQueue::Options chosen = options("echo \"$done\" >&3");
  bool full = true;
  chosen.room = [&full](std::string team) -> io::Async<Status> {
    co_await io::Loop::sleep({});
    if (team == "team" && full) co_return fail(Error::exhausted("you have 1 running sandbox"));
    co_return Status();
  };
  chosen.look_every = milliseconds(2);
  with_queue(chosen, [&full](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    while (book.said.empty()) co_await book.changed.wait();
    BuildTask others = task("b2", "t2");
    others.team = "others";
    EXPECT_TRUE(queue.add(std::move(others)));
    co_await ended(book, 1);
    EXPECT_THAT(book.done, ElementsAre("b2"));
    EXPECT_EQ(queue.running("team"), 0u);
    full = false;
    co_await ended(book, 2);
    EXPECT_THAT(book.done, ElementsAre("b2", "b1"));
    // However often it was looked at.
    EXPECT_THAT(book.said, ElementsAre("b1: waiting: you have 1 running sandbox"));
  });
}

TEST_F(BuildQueueTest, AQuotaIsNotWaitedForForEver) {
  BuildQueue::Options chosen = options("echo \"$done\" >&3");
  chosen.room = [](std::string) -> io::Async<Status> {
    co_return fail(Error::exhausted("you have 1 running sandbox"));
  };
  chosen.look_every = milliseconds(2);
  chosen.time = milliseconds(20);
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    EXPECT_TRUE(queue.add(task("b2")));
    co_await ended(book, 2);
    EXPECT_THAT(book.failures.at(0), testing::AllOf(HasSubstr("b1 base: it could not begin in"),
                                                    HasSubstr("you have 1 running sandbox")));
    EXPECT_THAT(queue.builds(), IsEmpty());
  });
}

TEST_F(BuildQueueTest, WhatIsCancelledWhileItWaitsForAQuotaDoesNotBegin) {
  BuildQueue::Options chosen = options("echo \"$done\" >&3");
  bool asked = false, answered = false;
  chosen.room = [&](std::string team) -> io::Async<Status> {
    if (team == "team") {
      asked = true;
      while (!answered) co_await io::Loop::sleep(milliseconds(1));
    }
    co_return Status();
  };
  with_queue(chosen, [&](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    EXPECT_TRUE(queue.add(task("b1")));
    while (!asked) co_await io::Loop::sleep(milliseconds(1));
    queue.cancel("t1", "not wanted");
    BuildTask others = task("b2", "t2");
    others.team = "others";
    EXPECT_TRUE(queue.add(std::move(others)));
    answered = true;
    co_await ended(book, 1);
    EXPECT_THAT(book.done, ElementsAre("b2"));
    EXPECT_THAT(book.failures, IsEmpty());
  });
}

TEST_F(BuildQueueTest, ClosingEndsWhatRunsAndWhatWaits) {
  BuildQueue::Options chosen = options("read -r never <&4");
  chosen.at_once = 1;
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    queue.add(task("b1"));
    queue.add(task("b2"));
    co_await queue.close("the server stops");
    EXPECT_EQ(book.failures.size(), 2u);
    for (const std::string& failure : book.failures)
      EXPECT_THAT(failure, HasSubstr("the server stops"));
    EXPECT_FALSE(queue.add(task("b3")));
    EXPECT_THAT(book.done, IsEmpty());
  });
}

TEST_F(BuildQueueTest, WhatItStartsIsTriedAndItsFailureIsTheBuilds) {
  BuildQueue::Options chosen = options("echo \"$done\" >&3");
  with_queue(chosen, [](BuildQueue& queue, MemoryBook& book) -> io::Async<void> {
    BuildTask starts = task("b1");
    starts.start.command = "serve";
    queue.add(std::move(starts));
    co_await ended(book, 1);
    EXPECT_THAT(book.failures, ElementsAre("b1 finalize: this host makes no sandboxes now"));
    EXPECT_THAT(book.said.at(0), HasSubstr("starting: serve"));
  });
}

}  // namespace
}  // namespace caisson::api
