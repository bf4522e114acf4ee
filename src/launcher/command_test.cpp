#include "launcher/command.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::launcher {
namespace {

using proto::Channel;

std::string kept(const OutputTail& tail, Channel channel) {
  std::string bytes;
  for (const OutputTail::Piece& piece : tail.pieces())
    if (piece.channel == channel) bytes += piece.bytes;
  return bytes;
}

TEST(OutputTail, MakesOnePieceOfSmallWrites) {
  OutputTail tail;
  for (int i = 0; i < 1000; ++i) tail.add(Channel::kOut, "x");
  tail.add(Channel::kErr, "e");
  tail.add(Channel::kErr, "");
  tail.add(Channel::kOut, "y");
  ASSERT_EQ(tail.pieces().size(), 3u);
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
}

TEST(OutputTail, IsBoundedAlsoWhereEachPieceIsOneByte) {
  OutputTail tail;
  for (int i = 0; i < 100'000; ++i) tail.add(i % 2 == 0 ? Channel::kOut : Channel::kErr, "x");
  EXPECT_LE(tail.pieces().size(), 16u * 1024);
  EXPECT_GE(tail.pieces().size(), 8u * 1024);
}

}  // namespace
}  // namespace caisson::launcher
