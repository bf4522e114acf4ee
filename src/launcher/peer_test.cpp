#include "launcher/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/sys.h"

namespace caisson::launcher {
namespace {

using proto::FrameType;
using Lane = Peer::Lane;

struct Pair {
  Pair() {
    int ends[2];
    VERIFY(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    peer.emplace(Fd(ends[0]));
    other.emplace(Fd(ends[1]));
  }
  // The frames that have come at the other end, as their payloads.
  std::vector<std::string> received() {
    std::vector<std::string> payloads;
    for (;;) {
      peer->flush();
      other->receive();
      auto frame = other->next();
      if (!frame.has_value() || !frame->has_value()) return payloads;
      for (; frame.has_value() && frame->has_value(); frame = other->next())
        payloads.push_back((*frame)->payload);
    }
  }
  std::optional<Peer> peer, other;
};

TEST(PeerTest, FramesComeInTheirOrderAndUrgentOnesFirst) {
  Pair pair;
  pair.peer->send(Lane::kData, 1, FrameType::kData, 0, "one");
  pair.peer->send(Lane::kData, 1, FrameType::kData, 0, "two");
  pair.peer->send(Lane::kUrgent, 1, FrameType::kControl, 0, "now");
  EXPECT_TRUE(pair.peer->events() & POLLOUT);
  EXPECT_EQ(pair.received(), (std::vector<std::string>{"now", "one", "two"}));
  EXPECT_FALSE(pair.peer->events() & POLLOUT);
}

TEST(PeerTest, AnUrgentFrameWaitsForTheEndOfTheOneThatIsPartlyWritten) {
  Pair pair;
  const std::string large(proto::kMaxPayload, 'x');
  // Until the socket takes no more, which is in the middle of one.
  for (int i = 0; i < 20; ++i) pair.peer->send(Lane::kData, 1, FrameType::kData, 0, large);
  pair.peer->flush();
  pair.peer->send(Lane::kUrgent, 1, FrameType::kControl, 0, "now");
  const auto all = pair.received();
  ASSERT_EQ(all.size(), 21u);
  std::size_t at = 0;
  while (all[at] != "now") EXPECT_EQ(all[at++], large);
  EXPECT_LT(at, 20u);
}

TEST(PeerTest, DescriptorsComeWithTheirFrame) {
  Pair pair;
  pair.peer->send(Lane::kUrgent, 1, FrameType::kControl, 0, "before");
  std::vector<Fd> some;
  some.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  some.emplace_back(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  pair.peer->send_with(2, FrameType::kOpen, 0, "with", std::move(some));
  pair.peer->send(Lane::kUrgent, 1, FrameType::kControl, 0, "behind");
  EXPECT_EQ(pair.received(), (std::vector<std::string>{"before", "with", "behind"}));
  EXPECT_TRUE(pair.other->take_descriptor().valid());
  const Fd zero = pair.other->take_descriptor();
  char byte = 1;
  EXPECT_EQ(::read(zero.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 0);
  EXPECT_FALSE(pair.other->take_descriptor().valid());
}

TEST(PeerTest, ManySmallFramesAreBoundedByWhatTheyAre) {
  Pair pair;
  std::size_t bytes = 0;
  while (!pair.peer->broken() && bytes <= Peer::kMaxQueued) {
    pair.peer->send(Lane::kData, 1, FrameType::kData, 0, "");
    bytes += proto::kHeaderSize;
  }
  EXPECT_TRUE(pair.peer->broken());
  EXPECT_GT(bytes, Peer::kMaxQueued - proto::kHeaderSize);
}

TEST(PeerTest, WhoReadsNothingGetsSoManyDescriptorsAndNoMore) {
  Pair pair;
  for (std::size_t i = 0; i < Peer::kMaxHanded; ++i) {
    std::vector<Fd> one;
    one.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    pair.peer->send_with(2, FrameType::kOpen, 0, "", std::move(one));
    ASSERT_FALSE(pair.peer->broken());
  }
  pair.peer->send_with(2, FrameType::kOpen, 0, "", {});
  EXPECT_TRUE(pair.peer->broken());
}

TEST(PeerTest, WhatWasSentMakesRoom) {
  Pair pair;
  const std::string large(proto::kMaxPayload, 'x');
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 900; ++i) pair.peer->send(Lane::kData, 1, FrameType::kData, 0, large);
    EXPECT_EQ(pair.received().size(), 900u);
  }
  EXPECT_FALSE(pair.peer->broken());
}

}  // namespace
}  // namespace caisson::launcher
