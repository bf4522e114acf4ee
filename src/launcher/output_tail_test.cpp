#include "launcher/output_tail.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::launcher {
namespace {

using proto::Channel;

std::string kept(const OutputTail& tail, Channel channel) {
  std::string bytes;
  for (std::uint64_t place = tail.begin(); place < tail.end();) {
    const OutputTail::Run run = tail.at(place);
    if (run.channel == channel) bytes += run.bytes;
    place += run.bytes.size();
  }
  return bytes;
}

TEST(OutputTail, MakesOnePieceOfSmallWrites) {
  OutputTail tail;
  for (int i = 0; i < 1000; ++i) tail.add(Channel::kOut, "x");
  tail.add(Channel::kErr, "e");
  tail.add(Channel::kErr, "");
  tail.add(Channel::kOut, "y");
  ASSERT_EQ(tail.pieces(), 3u);
  EXPECT_EQ(kept(tail, Channel::kOut), std::string(1000, 'x') + "y");
  EXPECT_EQ(kept(tail, Channel::kErr), "e");
}

TEST(OutputTail, KeepsTheNewestBytes) {
  OutputTail tail;
  std::string last;
  for (int i = 0; i < 100; ++i) {
    last = std::string(32 * 1024, static_cast<char>('a' + i % 26));
    tail.add(Channel::kOut, last);
  }
  const std::string bytes = kept(tail, Channel::kOut);
  EXPECT_EQ(bytes.size(), OutputTail::kMaxBytes);
  EXPECT_TRUE(bytes.ends_with(last));
  EXPECT_EQ(tail.end(), 100u * 32 * 1024);
}

TEST(OutputTail, GivesTheBytesAtAPlaceAlsoWhenAPieceIsCut) {
  OutputTail tail;
  tail.add(Channel::kOut, "abc");
  tail.add(Channel::kErr, "de");
  EXPECT_EQ(tail.at(0).bytes, "abc");
  EXPECT_EQ(tail.at(2).bytes, "c");
  EXPECT_EQ(tail.at(3).channel, Channel::kErr);
  EXPECT_EQ(tail.at(4).bytes, "e");
  tail.add(Channel::kOut, std::string(OutputTail::kMaxBytes - 4, 'x'));
  ASSERT_EQ(tail.begin(), 1u);
  EXPECT_EQ(tail.at(1).bytes, "bc");
  EXPECT_EQ(tail.at(3).bytes, "de");
}

TEST(OutputTail, IsBoundedAlsoWhereEachPieceIsOneByte) {
  OutputTail tail;
  for (int i = 0; i < 100'000; ++i) tail.add(i % 2 == 0 ? Channel::kOut : Channel::kErr, "x");
  EXPECT_LE(tail.pieces(), 16u * 1024);
  EXPECT_GE(tail.pieces(), 8u * 1024);
  EXPECT_EQ(tail.end(), 100'000u);
  EXPECT_EQ(tail.end() - tail.begin(), tail.pieces());
}

}  // namespace
}  // namespace caisson::launcher
