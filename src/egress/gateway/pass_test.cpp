#include "egress/gateway/pass.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "io/loop_for_test.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;

// Two connections with what is between them.
struct Middle {
  explicit Middle(io::Loop& loop) : left(io::stream_pair(loop)), right(io::stream_pair(loop)) {}
  Async<void> run() { co_await pass_both(room, *left[1], *right[0]); }
  io::Stream& one() { return *left[0]; }
  io::Stream& other() { return *right[1]; }

  PassRoom room;
  std::array<std::unique_ptr<io::Stream>, 2> left, right;
};

// Both to their ends.
template <typename One, typename Other>
void run_both(io::Loop& loop, One& one, Other& other) {
  auto whole = [&]() -> Async<void> { co_await io::both(one(), other()); };
  io::run_on(loop, whole);
}

Async<std::string> read_some(io::Stream& stream, std::size_t most) {
  std::string piece(most, '\0');
  const auto count = co_await stream.read(piece);
  piece.resize(count.value_or(0));
  co_return piece;
}

TEST(Pass, BytesGoBothWaysAndEachSideEndsByItself) {
  io::Loop loop(1);
  Middle middle(loop);
  bool over = false;
  auto between = [&]() -> Async<void> {
    co_await middle.run();
    over = true;
  };
  auto ends = [&]() -> Async<void> {
    co_await io::send(middle.one(), "to the other");
    const std::string there = co_await read_some(middle.other(), 100);
    EXPECT_EQ(there, "to the other");
    co_await middle.one().finish();
    const std::string rest = co_await io::read_to_end(middle.other());
    EXPECT_EQ(rest, "");
    EXPECT_FALSE(over);
    co_await io::send(middle.other(), "and back");
    co_await middle.other().finish();
    const std::string back = co_await io::read_to_end(middle.one());
    EXPECT_EQ(back, "and back");
  };
  run_both(loop, between, ends);
  EXPECT_TRUE(over);
}

TEST(Pass, MuchGoesThroughWhole) {
  io::Loop loop(1);
  Middle middle(loop);
  std::string much(5 * kPassPiece + 7, '\0');
  for (std::size_t i = 0; i < much.size(); ++i) much[i] = static_cast<char>(i * 7 + i / 251);
  std::string came;
  auto between = [&]() -> Async<void> { co_await middle.run(); };
  auto sender = [&]() -> Async<void> {
    co_await io::send(middle.one(), much);
    co_await middle.one().finish();
  };
  auto reader = [&]() -> Async<void> {
    came = co_await io::read_to_end(middle.other());
    co_await middle.other().finish();
  };
  auto ends = [&]() -> Async<void> { co_await io::both(sender(), reader()); };
  run_both(loop, between, ends);
  EXPECT_TRUE(came == much);
}

TEST(Pass, NothingIsHeldWhileNothingComes) {
  io::Loop loop(1);
  Middle middle(loop);
  auto between = [&]() -> Async<void> { co_await middle.run(); };
  auto ends = [&]() -> Async<void> {
    for (int i = 0; i < 3; ++i) {
      co_await io::send(middle.one(), "x");
      const std::string there = co_await read_some(middle.other(), 100);
      EXPECT_EQ(there, "x");
      EXPECT_EQ(middle.room.lent(), 0u);
    }
    middle.one().close();
    middle.other().close();
  };
  run_both(loop, between, ends);
  EXPECT_EQ(middle.room.lent(), 0u);
}

TEST(Pass, WhereOneSideBreaksTheOtherIsReset) {
  io::Loop loop(1);
  Middle middle(loop);
  bool broke = false;
  auto between = [&]() -> Async<void> { co_await middle.run(); };
  auto ends = [&]() -> Async<void> {
    middle.left[1]->close();
    char byte = 0;
    const auto count = co_await middle.other().read({&byte, 1});
    broke = count.value_or(0) == 0;
  };
  run_both(loop, between, ends);
  EXPECT_TRUE(broke);
  EXPECT_EQ(middle.room.lent(), 0u);
}

TEST(Pass, RoomIsKeptForTheNextButNotAllThatThereEverWas) {
  PassRoom room;
  char* first = nullptr;
  {
    const PassRoom::Lent lent(room);
    first = lent.bytes().data();
    EXPECT_EQ(lent.bytes().size(), kPassPiece);
  }
  const PassRoom::Lent again(room);
  EXPECT_EQ(again.bytes().data(), first);
  const PassRoom::Lent other(room);
  EXPECT_NE(other.bytes().data(), first);
  EXPECT_EQ(room.lent(), 2u);
}

}  // namespace
}  // namespace caisson::egress
