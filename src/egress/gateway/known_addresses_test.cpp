#include "egress/gateway/known_addresses.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

using namespace std::chrono_literals;
using policy::IpAddress;

const std::vector<IpAddress> kOne = {IpAddress::v4({93, 184, 10, 1})};
const std::vector<IpAddress> kTwo = {IpAddress::v4({93, 184, 10, 2})};
constexpr io::Clock::time_point kNow{1000s};

TEST(KnownAddresses, HoldAsLongAsTheAnswerSaysAndAMinuteAtMost) {
  KnownAddresses known;
  EXPECT_EQ(known.find("a.example.com", kNow), std::nullopt);
  known.keep("a.example.com", kOne, 10s, kNow);
  known.keep("b.example.com", kTwo, 24h, kNow);
  EXPECT_EQ(known.find("a.example.com", kNow + 9s), kOne);
  EXPECT_EQ(known.find("a.example.com", kNow + 10s), std::nullopt);
  EXPECT_EQ(known.find("b.example.com", kNow + 59s), kTwo);
  EXPECT_EQ(known.find("b.example.com", kNow + 60s), std::nullopt);
}

TEST(KnownAddresses, ALaterAnswerStandsInForAnEarlierOne) {
  KnownAddresses known;
  known.keep("a.example.com", kOne, 10s, kNow);
  known.keep("a.example.com", kTwo, 10s, kNow + 5s);
  EXPECT_EQ(known.find("a.example.com", kNow + 14s), kTwo);
  known.forget("a.example.com");
  EXPECT_EQ(known.find("a.example.com", kNow + 5s), std::nullopt);
}

TEST(KnownAddresses, WhatMayNotBeKeptIsNot) {
  KnownAddresses known;
  known.keep("a.example.com", kOne, 10s, kNow);
  known.keep("a.example.com", kTwo, 0s, kNow);
  EXPECT_EQ(known.find("a.example.com", kNow), std::nullopt);
  known.keep("a.example.com", {}, 10s, kNow);
  EXPECT_EQ(known.find("a.example.com", kNow), std::nullopt);
  known.keep("a.example.com", kOne, -1s, kNow);
  EXPECT_EQ(known.find("a.example.com", kNow), std::nullopt);
}

TEST(KnownAddresses, AreBoundedAndTheFirstToEndGoesFirst) {
  KnownAddresses known;
  const auto name = [](std::size_t number) { return std::to_string(number) + ".example.com"; };
  known.keep(name(0), kOne, 1s, kNow);
  known.keep(name(1), kOne, 20s, kNow);
  for (std::size_t i = 2; i < kMostKnown; ++i) known.keep(name(i), kOne, 30s, kNow);
  // One that has ended makes room.
  known.keep("x.example.com", kTwo, 30s, kNow + 2s);
  EXPECT_EQ(known.find(name(1), kNow + 2s), kOne);
  // None has: the next to end.
  known.keep("y.example.com", kTwo, 30s, kNow + 2s);
  EXPECT_EQ(known.find(name(1), kNow + 2s), std::nullopt);
  EXPECT_EQ(known.find(name(2), kNow + 2s), kOne);
  EXPECT_EQ(known.find("x.example.com", kNow + 2s), kTwo);
  EXPECT_EQ(known.find("y.example.com", kNow + 2s), kTwo);
}

}  // namespace
}  // namespace caisson::egress
