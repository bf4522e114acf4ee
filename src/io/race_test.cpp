#include "io/race.h"

#include <gtest/gtest.h>

#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

// Says that it was destroyed.
struct Trace {
  int& count;
  ~Trace() { ++count; }
};

Async<void> wait_for(Event& event, int& ended, int& destroyed) {
  const Trace trace{destroyed};
  co_await event.wait();
  co_await event.wait();
  ++ended;
}

Async<void> at_once(int& ended) {
  ++ended;
  co_return;
}

TEST(Race, TheFirstEndsItAndTheOtherIsCancelled) {
  Loop loop(1);
  Event never(loop);
  int won = 0, lost = 0, destroyed = 0;
  auto body = [&]() -> Async<void> {
    co_await race(wait_for(never, lost, destroyed), at_once(won));
    EXPECT_EQ(destroyed, 1);
    co_await race(at_once(won), wait_for(never, lost, destroyed));
    EXPECT_EQ(destroyed, 2);
  };
  run_on(loop, body);
  EXPECT_EQ(won, 2);
  EXPECT_EQ(lost, 0);
}

TEST(Race, WhatWaitsInsideOfItIsCancelledTogether) {
  Loop loop(1);
  Event never(loop);
  int won = 0, lost = 0, destroyed = 0;
  auto body = [&]() -> Async<void> {
    co_await race(race(wait_for(never, lost, destroyed), wait_for(never, lost, destroyed)),
                  at_once(won));
    EXPECT_EQ(destroyed, 2);
    // The loop's coroutine itself was not cancelled.
    co_await Loop::sleep(std::chrono::milliseconds(1));
    ++won;
  };
  run_on(loop, body);
  EXPECT_EQ(won, 2);
  EXPECT_EQ(lost, 0);
}

TEST(Both, WaitsForBothAndIsCancelledWithBoth) {
  Loop loop(1);
  Event never(loop);
  int ended = 0, lost = 0, destroyed = 0;
  auto body = [&]() -> Async<void> {
    co_await both(at_once(ended), at_once(ended));
    EXPECT_EQ(ended, 2);
    co_await race(both(wait_for(never, lost, destroyed), wait_for(never, lost, destroyed)),
                  at_once(ended));
    EXPECT_EQ(destroyed, 2);
  };
  run_on(loop, body);
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(lost, 0);
}

TEST(Race, CancelsAReadOfAStream) {
  Loop loop(1);
  auto ends = stream_pair(loop);
  int won = 0;
  auto read = [](Stream& stream) -> Async<void> {
    std::array<char, 16> piece;
    for (;;) {
      const auto count = co_await stream.read(piece);
      if (!count.has_value() || *count == 0) break;
    }
  };
  auto body = [&]() -> Async<void> { co_await race(read(*ends[0]), at_once(won)); };
  run_on(loop, body);
  EXPECT_EQ(won, 1);
}

}  // namespace
}  // namespace caisson::io
