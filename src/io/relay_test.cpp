#include "io/relay.h"

#include <gtest/gtest.h>

#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

TEST(Relay, PassesBothWaysWithWhatCameEarlyAndTheEnds) {
  Loop loop(1);
  auto left = stream_pair(loop), right = stream_pair(loop);
  auto body = [&]() -> Async<void> {
    auto whole = [&]() -> Async<void> {
      co_await relay(*left[1], "early ", *right[0], "soon ");
      left[1].reset();
      right[0].reset();
    };
    loop.spawn(whole());
    co_await send(*left[0], "to the right");
    co_await left[0]->finish();
    const std::string at_right = co_await read_to_end(*right[1]);
    EXPECT_EQ(at_right, "early to the right");
    co_await send(*right[1], "to the left");
    co_await right[1]->finish();
    const std::string at_left = co_await read_to_end(*left[0]);
    EXPECT_EQ(at_left, "soon to the left");
  };
  run_on(loop, body);
}

TEST(Relay, ABreakEndsBothSides) {
  Loop loop(1);
  auto left = stream_pair(loop), right = stream_pair(loop);
  auto body = [&]() -> Async<void> {
    loop.post([&] { left[1]->close(); });
    co_await relay(*left[1], "", *right[0], "");
    const std::string at_right = co_await read_to_end(*right[1]);
    EXPECT_EQ(at_right, "");
  };
  run_on(loop, body);
}

}  // namespace
}  // namespace caisson::io
