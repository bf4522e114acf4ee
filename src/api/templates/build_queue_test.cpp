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
    EXPECT_TRUE(queue.full());
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
