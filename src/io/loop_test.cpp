#include "io/loop.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

using namespace std::chrono_literals;

TEST(Loop, WorkPostedByAnotherThreadRunsOnTheLoop) {
  Loop loop(1);
  std::thread::id ran;
  std::thread other([&] {
    loop.post([&] {
      ran = std::this_thread::get_id();
      loop.stop();
    });
  });
  loop.run();
  other.join();
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(Loop, ASpawnedCoroutineDoesNotRunOnTheStackOfWhoSpawnsIt) {
  Loop loop(1);
  bool began = false;
  auto task = [&]() -> Async<void> {
    began = true;
    co_return;
  };
  auto body = [&]() -> Async<void> {
    loop.spawn(task());
    EXPECT_FALSE(began);
    co_await Loop::sleep(0s);
    EXPECT_TRUE(began);
  };
  run_on(loop, body);
}

TEST(Loop, ThePoolRunsWorkOnAnotherThreadAndGivesItsResultBack) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    std::thread::id ran;
    auto work = [&]() -> Result<std::string> {
      ran = std::this_thread::get_id();
      return std::string("done");
    };
    const Result<std::string> result = co_await loop.in_pool(std::move(work));
    EXPECT_EQ(result.value_or(""), "done");
    EXPECT_NE(ran, std::this_thread::get_id());
  };
  run_on(loop, body);
}

TEST(Loop, ManyJobsOfThePoolAllComeBack) {
  Loop loop(4);
  auto body = [&]() -> Async<void> {
    int sum = 0;
    for (int i = 0; i < 1000; ++i) {
      auto work = [i] { return i; };
      sum += co_await loop.in_pool(std::move(work));
    }
    EXPECT_EQ(sum, 499500);
  };
  run_on(loop, body);
}

TEST(Loop, CoroutinesThatStillWaitAreDestroyedWithIt) {
  auto alive = std::make_shared<int>();
  std::weak_ptr<int> watch = alive;
  {
    Loop loop(1);
    Event never(loop);
    auto waits = [](Event& event, std::shared_ptr<int>) -> Async<void> { co_await event.wait(); };
    auto sleeps = [](std::shared_ptr<int>) -> Async<void> { co_await Loop::sleep(24h); };
    auto in_pool = [](Loop& on, std::shared_ptr<int>) -> Async<void> {
      auto work = [] { return 0; };
      co_await on.in_pool(std::move(work));
      co_await Loop::sleep(24h);
    };
    loop.spawn(waits(never, alive));
    loop.spawn(sleeps(alive));
    loop.spawn(in_pool(loop, std::move(alive)));
    loop.post([&] { loop.stop(); });
    loop.run();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Loop, ASignalCallsItsHandlerEachTime) {
  Loop loop(1);
  int count = 0;
  loop.on_signal(SIGUSR1, [&] {
    if (++count == 2) loop.stop();
    ::raise(SIGUSR1);
  });
  loop.post([] { ::raise(SIGUSR1); });
  loop.run();
  EXPECT_EQ(count, 2);
}

TEST(LoopDeathTest, AnExceptionInACoroutineAborts) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        Loop loop(1);
        auto throws = []() -> Async<void> {
          throw std::runtime_error("thrown on purpose");
          co_return;
        };
        loop.spawn(throws());
        loop.run();
      },
      "thrown on purpose");
}

TEST(Event, NotifyWakesAllThatWait) {
  Loop loop(1);
  Event event(loop), done(loop);
  int woken = 0;
  auto waiter = [&]() -> Async<void> {
    co_await event.wait();
    if (++woken == 3) done.notify();
  };
  auto body = [&]() -> Async<void> {
    for (int i = 0; i < 3; ++i) loop.spawn(waiter());
    co_await Loop::sleep(0s);
    event.notify();
    co_await done.wait();
    EXPECT_EQ(woken, 3);
  };
  run_on(loop, body);
}

TEST(Event, WhoComesAfterNotifyWaitsForTheNext) {
  Loop loop(1);
  Event event(loop);
  auto body = [&]() -> Async<void> {
    event.notify();
    const bool notified = co_await event.wait_until(Clock::now() + 1ms);
    EXPECT_FALSE(notified);
  };
  run_on(loop, body);
}

TEST(Event, WaitUntilSaysWhetherItWasNotified) {
  Loop loop(1);
  Event event(loop);
  auto body = [&]() -> Async<void> {
    loop.post([&] { event.notify(); });
    const bool notified = co_await event.wait_until(Clock::now() + 24h);
    EXPECT_TRUE(notified);
  };
  run_on(loop, body);
}

TEST(Event, ItsEndWakesWhoWaits) {
  Loop loop(1);
  auto event = std::make_unique<Event>(loop);
  auto body = [&]() -> Async<void> {
    loop.post([&] { event.reset(); });
    co_await event->wait();
    EXPECT_EQ(event, nullptr);
  };
  run_on(loop, body);
}

TEST(Event, MovingItKeepsWhoWaits) {
  Loop loop(1);
  Event event(loop);
  auto body = [&]() -> Async<void> {
    loop.post([&] {
      Event moved = std::move(event);
      moved.notify();
    });
    co_await event.wait();
  };
  run_on(loop, body);
}

}  // namespace
}  // namespace caisson::io
