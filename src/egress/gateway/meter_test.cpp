#include "egress/gateway/meter.h"

#include <gtest/gtest.h>

#include <string>

#include "io/loop_for_test.h"

namespace caisson::egress {
namespace {

using io::Async;

std::string fault(Meter& meter) {
  return std::string(meter.connection_fault());
}

TEST(Meter, BoundsOpenConnections) {
  io::Loop loop(1);
  Meter meter({.connections = 1, .connections_per_second = std::nullopt});
  EXPECT_EQ(fault(meter), "");
  {
    auto pair = io::stream_pair(loop);
    const MeteredStream stream(meter, std::move(pair[0]), "");
    EXPECT_EQ(meter.connections(), 1u);
    EXPECT_EQ(fault(meter), "connections");
  }
  EXPECT_EQ(meter.connections(), 0u);
  EXPECT_EQ(fault(meter), "");
}

TEST(Meter, BoundsNewConnectionsAndQueriesASecond) {
  Meter meter({.connections_per_second = 2, .dns_per_second = 1});
  EXPECT_EQ(fault(meter), "");
  EXPECT_EQ(fault(meter), "");
  EXPECT_EQ(fault(meter), "connections_per_second");
  EXPECT_TRUE(meter.take_query());
  EXPECT_FALSE(meter.take_query());
}

TEST(Meter, UnlimitedIsUnlimited) {
  Meter meter({.connections = std::nullopt,
               .connections_per_second = std::nullopt,
               .dns_per_second = std::nullopt});
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_EQ(fault(meter), "");
    EXPECT_TRUE(meter.take_query());
  }
}

TEST(Meter, WhatWasLookedAtIsReadAgain) {
  io::Loop loop(1);
  Meter meter({});
  auto body = [&]() -> Async<void> {
    auto pair = io::stream_pair(loop);
    MeteredStream stream(meter, std::move(pair[0]), "first ");
    co_await io::send(*pair[1], "second ");
    const Status looked = co_await stream.look_further(std::chrono::seconds(10));
    EXPECT_TRUE(looked.has_value());
    EXPECT_EQ(stream.seen(), "first second ");
    EXPECT_EQ(meter.bytes_up(), 0u) << "only what goes on counts";
    co_await io::send(*pair[1], "third");
    co_await pair[1]->finish();
    const std::string came = co_await io::read_to_end(stream);
    EXPECT_EQ(came, "first second third");
    EXPECT_EQ(meter.bytes_up(), came.size());
    EXPECT_EQ(stream.bytes_up(), came.size());
  };
  io::run_on(loop, body);
}

TEST(Meter, LookingFurtherThanTheEndIsAnError) {
  io::Loop loop(1);
  Meter meter({});
  auto body = [&]() -> Async<void> {
    auto pair = io::stream_pair(loop);
    MeteredStream stream(meter, std::move(pair[0]), "");
    const Status late = co_await stream.look_further(std::chrono::milliseconds(1));
    EXPECT_EQ(late.error().code(), Code::kDeadlineExceeded);
    co_await pair[1]->finish();
    const Status ended = co_await stream.look_further(std::chrono::seconds(10));
    EXPECT_EQ(ended.error().code(), Code::kUnavailable);
  };
  io::run_on(loop, body);
}

TEST(Meter, AConnectionEndsWhenTheBytesAreUsedUp) {
  io::Loop loop(1);
  Meter meter({.bytes_up = 10, .bytes_down = 5});
  auto body = [&]() -> Async<void> {
    auto pair = io::stream_pair(loop);
    MeteredStream stream(meter, std::move(pair[0]), "12345678901");
    std::array<char, 64> room;
    const auto count = co_await stream.read(room);
    EXPECT_EQ(count.error().code(), Code::kResourceExhausted);
    EXPECT_EQ(stream.ended_by(), "bytes_up");
    EXPECT_EQ(meter.bytes_up(), 0u) << "nothing of it went on";
    const Status written = co_await stream.write("123456");
    EXPECT_FALSE(written.has_value());
    EXPECT_EQ(meter.bytes_down(), 0u);
  };
  io::run_on(loop, body);
}

TEST(Meter, ARateHoldsBackWhatIsFasterForAllConnectionsTogether) {
  io::Loop loop(1);
  Meter meter({.rate_down = 100'000});
  auto body = [&]() -> Async<void> {
    auto first = io::stream_pair(loop);
    auto second = io::stream_pair(loop);
    MeteredStream one(meter, std::move(first[0]), ""), other(meter, std::move(second[0]), "");
    const std::string bytes(10'000, 'x');
    const auto began = io::Clock::now();
    co_await io::send(one, bytes);
    co_await io::send(other, bytes);
    // 20'000 bytes are 200 ms, of which 50 ms may be ahead.
    EXPECT_GE(io::Clock::now() - began, std::chrono::milliseconds(140));
    EXPECT_EQ(meter.bytes_down(), 20'000u);
  };
  io::run_on(loop, body);
}

TEST(Meter, BoundsConnectionsThatAreMadeForTheSandboxToo) {
  Meter meter({.connections = 2});
  auto one = UpstreamPlace::take(meter);
  const auto other = UpstreamPlace::take(meter);
  EXPECT_NE(one, nullptr);
  EXPECT_NE(other, nullptr);
  EXPECT_EQ(UpstreamPlace::take(meter), nullptr);
  EXPECT_EQ(meter.upstreams(), 2u);
  one.reset();
  EXPECT_NE(UpstreamPlace::take(meter), nullptr);
  Meter unlimited({.connections = std::nullopt});
  EXPECT_NE(UpstreamPlace::take(unlimited), nullptr);
}

}  // namespace
}  // namespace caisson::egress
