#include "egress/gateway/h2_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/loop_for_test.h"
#include "io/race.h"

// Two sessions over a pair of sockets: a client's and a server's.
namespace caisson::egress {
namespace {

using io::Async;
using Side = H2Session::Side;

const H2Fields kRequest = {
    {":method", "POST"}, {":scheme", "https"}, {":authority", "a.example.com"}, {":path", "/x"}};
const H2Fields kOk = {{":status", "200"}};

struct Pair {
  explicit Pair(io::Loop& on) : loop(on), came(on) {
    auto ends = io::stream_pair(loop);
    client = std::make_shared<H2Session>(loop, std::move(ends[0]), Side::kClient, budget);
    server = std::make_shared<H2Session>(loop, std::move(ends[1]), Side::kServer, budget);
    loop.spawn(H2Session::run(client, nullptr, nullptr));
    auto take = [this](std::shared_ptr<H2Stream> stream) {
      streams.push_back(std::move(stream));
      came.notify();
    };
    loop.spawn(H2Session::run(server, take, [this] { return admits; }));
  }
  // The server's end of the n-th request.
  static Async<std::shared_ptr<H2Stream>> request(Pair& pair, std::size_t n) {
    const auto until = io::Clock::now() + std::chrono::seconds(10);
    while (pair.streams.size() <= n && io::Clock::now() < until)
      co_await pair.came.wait_until(until);
    VERIFY(pair.streams.size() > n);
    co_return pair.streams[n];
  }
  std::shared_ptr<H2Stream> open(H2End end = H2End::kFollows, const H2Fields& head = kRequest) {
    auto opened = client->open(head, end, H2Session::Remember::kMay);
    VERIFY(opened.has_value());
    return *opened;
  }

  io::Loop& loop;
  io::Event came;
  bool admits = true;
  const std::shared_ptr<H2Budget> budget = std::make_shared<H2Budget>();
  std::shared_ptr<H2Session> client, server;
  std::vector<std::shared_ptr<H2Stream>> streams;
};

// Until a condition that others bring about holds.
template <typename Condition>
Async<bool> holds(Condition condition) {
  const auto until = io::Clock::now() + std::chrono::seconds(10);
  while (!condition() && io::Clock::now() < until)
    co_await io::Loop::sleep(std::chrono::milliseconds(1));
  co_return condition();
}

Async<std::string> all_of(H2Stream& stream) {
  std::string all;
  for (;;) {
    const auto piece = co_await stream.read_some(1 << 16);
    if (!piece.has_value()) co_return "(" + piece.error().message() + ")";
    if (piece->empty()) co_return all;
    all += *piece;
  }
}

TEST(H2Session, PassesARequestAndItsAnswerWithWhatStandsBehindThem) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    const Status sent = co_await asked->write("hello");
    EXPECT_TRUE(sent.has_value());
    asked->end({{"x-mine", "1"}});
    const auto served = co_await Pair::request(pair, 0);
    EXPECT_EQ(served->take_head(), kRequest);
    EXPECT_FALSE(served->ended_with_head());
    const std::string came = co_await all_of(*served);
    EXPECT_EQ(came, "hello");
    EXPECT_EQ(served->trailers(), (H2Fields{{"x-mine", "1"}}));
    EXPECT_TRUE(served->send_head({{":status", "100"}}, H2End::kFollows).has_value());
    EXPECT_TRUE(served->send_head(kOk, H2End::kFollows).has_value());
    const Status answered = co_await served->write("world");
    EXPECT_TRUE(answered.has_value());
    served->end({{"grpc-status", "0"}});
    const auto head = co_await asked->read_head();
    EXPECT_EQ(head.value_or(H2Fields()), kOk);
    const std::string answer = co_await all_of(*asked);
    EXPECT_EQ(answer, "world");
    EXPECT_EQ(asked->trailers(), (H2Fields{{"grpc-status", "0"}}));
    EXPECT_FALSE(asked->broken_off() || served->broken_off());
  };
  io::run_on(loop, body);
}

TEST(H2Session, AMessageMayEndWithItsHead) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open(H2End::kEnds);
    const auto served = co_await Pair::request(pair, 0);
    EXPECT_TRUE(served->ended_with_head());
    EXPECT_TRUE(served->send_head(kOk, H2End::kEnds).has_value());
    const auto head = co_await asked->read_head();
    EXPECT_TRUE(head.has_value());
    EXPECT_TRUE(asked->ended_with_head());
    const std::string nothing = co_await all_of(*asked);
    EXPECT_EQ(nothing, "");
  };
  io::run_on(loop, body);
}

TEST(H2Session, TrailersMayFollowAHeadAtOnce) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open(H2End::kEnds);
    const auto served = co_await Pair::request(pair, 0);
    EXPECT_TRUE(served->send_head(kOk, H2End::kFollows).has_value());
    served->end({{"grpc-status", "5"}});
    const auto head = co_await asked->read_head();
    EXPECT_TRUE(head.has_value());
    // Both have come.
    const bool came = co_await holds([&] { return !asked->trailers().empty(); });
    EXPECT_TRUE(came);
    EXPECT_FALSE(asked->ended_with_head());
    const std::string nothing = co_await all_of(*asked);
    EXPECT_EQ(nothing, "");
    EXPECT_EQ(asked->trailers(), (H2Fields{{"grpc-status", "5"}}));
  };
  io::run_on(loop, body);
}

TEST(H2Session, ASlowReaderKeepsNothingOfWhatItHasRead) {
  io::Loop loop(1);
  Pair pair(loop);
  constexpr std::size_t kAll = 8u << 20, kPiece = 64u << 10, kMost = 3u << 20;
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open(H2End::kEnds);
    const auto served = co_await Pair::request(pair, 0);
    EXPECT_TRUE(served->send_head(kOk, H2End::kFollows).has_value());
    auto write = [&]() -> Async<void> {
      const std::string piece(kAll, 'x');
      const Status sent = co_await served->write(piece);
      EXPECT_TRUE(sent.has_value());
      served->end({});
    };
    auto read = [&]() -> Async<void> {
      std::size_t got = 0, most = 0;
      while (got < kAll - 2 * kPiece) {
        // Some is always left.
        const bool more =
            co_await holds([&] { return asked->kept() > kPiece || got + 2 * kPiece >= kAll; });
        EXPECT_TRUE(more);
        most = std::max(most, asked->kept());
        const auto piece = co_await asked->read_some(kPiece / 2);
        if (!piece.has_value() || piece->empty()) break;
        got += piece->size();
      }
      EXPECT_LT(most, kMost);
      const std::string rest = co_await all_of(*asked);
      EXPECT_EQ(got + rest.size(), kAll);
    };
    co_await io::both(write(), read());
  };
  io::run_on(loop, body);
}

TEST(H2Session, WhoeverWritesWaitsForWhoeverReads) {
  io::Loop loop(1);
  Pair pair(loop);
  const std::string large(1 << 20, 'x');
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    bool written = false;
    auto write = [&]() -> Async<void> {
      const Status sent = co_await asked->write(large);
      written = sent.has_value();
      asked->end({});
    };
    auto read = [&]() -> Async<void> {
      const auto served = co_await Pair::request(pair, 0);
      // Another goes on meanwhile: the connection has room for more than one.
      const auto other = pair.open();
      const Status sent = co_await other->write("other");
      EXPECT_TRUE(sent.has_value());
      other->end({});
      const auto other_served = co_await Pair::request(pair, 1);
      const std::string came = co_await all_of(*other_served);
      EXPECT_EQ(came, "other");
      EXPECT_FALSE(written);
      const std::string all = co_await all_of(*served);
      EXPECT_EQ(all.size(), large.size());
    };
    co_await io::both(write(), read());
    EXPECT_TRUE(written);
  };
  io::run_on(loop, body);
}

TEST(H2Session, AWriteThatIsCancelledLeavesNothingBehind) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    {
      const std::string large(1 << 20, 'x');
      auto write = [&]() -> Async<void> { co_await asked->write(large); };
      auto wait = [&]() -> Async<void> { co_await Pair::request(pair, 0); };
      co_await io::race(write(), wait());
    }
    std::string came;
    auto write = [&]() -> Async<void> {
      const Status more = co_await asked->write("after");
      EXPECT_TRUE(more.has_value());
      asked->end({});
    };
    auto read = [&]() -> Async<void> { came = co_await all_of(*pair.streams[0]); };
    co_await io::both(write(), read());
    // Some of the first, and the second.
    EXPECT_LT(came.size(), std::size_t{1} << 20);
    EXPECT_TRUE(came.ends_with("xafter") || came == "after");
  };
  io::run_on(loop, body);
}

TEST(H2Session, WhatIsNotReadGivesItsRoomBack) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    // More than the connection's window, of streams that nobody reads.
    for (std::size_t n = 0; n < 20; ++n) {
      const auto asked = pair.open();
      const std::string piece(60'000, 'x');
      const Status sent = co_await asked->write(piece);
      EXPECT_TRUE(sent.has_value());
      const auto served = co_await Pair::request(pair, n);
      served->let_go();
    }
  };
  io::run_on(loop, body);
}

TEST(H2Session, BodiesThatNobodyTakesHaveABoundOfAllTogether) {
  io::Loop loop(1);
  Pair pair(loop);
  pair.budget->most = 100'000;
  auto body = [&]() -> Async<void> {
    const std::string piece(60'000, 'x');
    const auto first = pair.open(), second = pair.open();
    const Status sent = co_await first->write(piece);
    EXPECT_TRUE(sent.has_value());
    const auto served = co_await Pair::request(pair, 0);
    const auto other = co_await Pair::request(pair, 1);
    auto write = [&]() -> Async<void> { co_await second->write(piece); };
    co_await io::both(write(), other->wait_broken());
    const auto lost = co_await other->read_some(1);
    EXPECT_EQ(lost.has_value() ? "" : lost.error().message(),
              "too many bytes of bodies wait to be taken");
    EXPECT_LE(pair.budget->held, 60'000u);
    first->end({});
    const std::string all = co_await all_of(*served);
    EXPECT_EQ(all, piece);
    EXPECT_EQ(pair.budget->held, 0u);
  };
  io::run_on(loop, body);
}

TEST(H2Session, AnAnswerMayComeBeforeTheRequestIsWhole) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    const auto served = co_await Pair::request(pair, 0);
    EXPECT_TRUE(served->send_head(kOk, H2End::kFollows).has_value());
    const Status sent = co_await served->write("enough");
    EXPECT_TRUE(sent.has_value());
    served->end({});
    served->let_go();
    const std::string answer = co_await all_of(*asked);
    EXPECT_EQ(answer, "enough");
    co_await asked->wait_broken();
    const Status more = co_await asked->write("more");
    EXPECT_FALSE(more.has_value());
  };
  io::run_on(loop, body);
}

TEST(H2Session, AResetIsSeenAtTheOtherEnd) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    const auto served = co_await Pair::request(pair, 0);
    asked->reset(H2Code::kCancel);
    co_await served->wait_broken();
    const auto piece = co_await served->read_some(10);
    EXPECT_FALSE(piece.has_value());
    EXPECT_FALSE(served->send_head(kOk, H2End::kFollows).has_value());
    const auto other = pair.open();
    const auto other_served = co_await Pair::request(pair, 1);
    other_served->reset(H2Code::kInternalError);
    const auto head = co_await other->read_head();
    EXPECT_FALSE(head.has_value());
    EXPECT_FALSE(other->unprocessed());
  };
  io::run_on(loop, body);
}

TEST(H2Session, WhatIsNotAdmittedWasNotProcessed) {
  io::Loop loop(1);
  Pair pair(loop);
  pair.admits = false;
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open();
    const auto head = co_await asked->read_head();
    EXPECT_FALSE(head.has_value());
    EXPECT_TRUE(asked->unprocessed());
    EXPECT_TRUE(pair.streams.empty());
  };
  io::run_on(loop, body);
}

TEST(H2Session, StreamsThatAreBrokenOffTooFastEndIt) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    std::size_t count = 0;
    while (!pair.server->ended() && count < 2000) {
      auto asked = pair.client->open(kRequest, H2End::kFollows, H2Session::Remember::kMay);
      if (!asked.has_value()) break;
      ++count;
      co_await Pair::request(pair, pair.streams.size());
      (*asked)->reset(H2Code::kCancel);
    }
    EXPECT_GE(count, 200u);
    EXPECT_LT(count, 500u);
    const bool ended = co_await holds([&] { return !pair.client->may_open(); });
    EXPECT_TRUE(ended);
  };
  // Where it has ended no request comes any more.
  auto whole = [&]() -> Async<void> {
    co_await io::race(body(), [](Pair& of) -> Async<void> {
      co_await holds([&] { return of.client->ended(); });
    }(pair));
  };
  io::run_on(loop, whole);
  EXPECT_TRUE(pair.streams.size() >= 200 && pair.streams.size() < 500) << pair.streams.size();
}

TEST(H2Session, AHeadThatIsTooLargeIsNotWhole) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    H2Fields many = kRequest, long_ones = kRequest;
    for (int n = 0; n < 200; ++n) many.emplace_back("x", "1");
    for (int n = 0; n < 70; ++n) long_ones.emplace_back("x", std::string(1000, 'x'));
    const auto first = pair.open(H2End::kEnds, many), second = pair.open(H2End::kEnds, long_ones);
    const auto one = co_await Pair::request(pair, 0);
    const auto other = co_await Pair::request(pair, 1);
    EXPECT_TRUE(one->head_too_large() && one->take_head().size() == H2Session::kMostFields);
    EXPECT_TRUE(other->head_too_large() && other->take_head().size() < 70);
    H2Fields answer = kOk;
    for (int n = 0; n < 200; ++n) answer.emplace_back("x", "1");
    EXPECT_TRUE(one->send_head(answer, H2End::kEnds).has_value());
    const auto head = co_await first->read_head();
    EXPECT_EQ(head.has_value() ? "" : head.error().message(),
              "its head has more than 64 KiB or 200 fields");
  };
  io::run_on(loop, body);
}

TEST(H2Session, InterimAnswersHaveABound) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair.open(H2End::kEnds);
    const auto served = co_await Pair::request(pair, 0);
    for (int n = 0; n < 17; ++n) (void)served->send_head({{":status", "100"}}, H2End::kFollows);
    const auto head = co_await asked->read_head();
    EXPECT_FALSE(head.has_value());
  };
  io::run_on(loop, body);
}

TEST(H2Session, AHundredRequestsAreUnderWayAndNoMore) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    std::vector<std::shared_ptr<H2Stream>> opened;
    while (pair.client->may_open()) opened.push_back(pair.open());
    EXPECT_EQ(opened.size(), H2Session::kMostStreams);
    EXPECT_FALSE(pair.client->open(kRequest, H2End::kEnds, H2Session::Remember::kMay).has_value());
    co_await Pair::request(pair, 99);
    opened[0]->let_go();
    const bool may = co_await holds([&] { return pair.client->may_open(); });
    EXPECT_TRUE(may);
  };
  io::run_on(loop, body);
}

TEST(H2Session, ItsEndEndsItsStreamsWhichMayOutliveIt) {
  io::Loop loop(1);
  auto pair = std::make_unique<Pair>(loop);
  auto body = [&]() -> Async<void> {
    const auto asked = pair->open();
    const auto served = co_await Pair::request(*pair, 0);
    pair->server->close();
    co_await asked->wait_broken();
    co_await served->wait_broken();
    const auto piece = co_await asked->read_some(1);
    EXPECT_EQ(piece.has_value() ? "" : piece.error().message(), "the connection has ended");
    const bool ended = co_await holds([&] { return pair->client->ended(); });
    EXPECT_TRUE(ended);
    pair.reset();
    const Status sent = co_await served->write("x");
    EXPECT_FALSE(sent.has_value());
    asked->reset(H2Code::kCancel);
    served->let_go();
  };
  io::run_on(loop, body);
}

TEST(H2Session, SaysGoodbyeAndTakesNoMore) {
  io::Loop loop(1);
  Pair pair(loop);
  auto body = [&]() -> Async<void> {
    EXPECT_TRUE(pair.server->idle_since().has_value());
    const auto asked = pair.open();
    co_await Pair::request(pair, 0);
    EXPECT_FALSE(pair.server->idle_since().has_value());
    pair.server->say_goodbye();
    const auto head = co_await asked->read_head();
    EXPECT_FALSE(head.has_value());
    EXPECT_FALSE(pair.client->may_open());
  };
  io::run_on(loop, body);
}

// What a server of ours does with bytes that are no HTTP/2, and with those that a peer may not
// send.
TEST(H2Session, WhatIsNoHttp2EndsIt) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string bad[] = {
      "GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n", preface + "nonsense and more of it",
      // HEADERS whose block is no HPACK; DATA on a stream that is none; SETTINGS of a wrong length.
      preface + settings + std::string("\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff", 13),
      preface + settings + std::string("\0\0\1\0\0\0\0\0\1x", 10),
      preface + settings + std::string("\0\0\1\4\0\0\0\0\0x", 10),
      // A push, and a window that overflows.
      preface + settings + std::string("\0\0\4\5\4\0\0\0\1\0\0\0\2", 13),
      preface + settings + std::string("\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff", 13)};
  for (const std::string& bytes : bad) {
    io::Loop loop(1);
    auto ends = io::stream_pair(loop);
    const auto server = std::make_shared<H2Session>(loop, std::move(ends[1]), Side::kServer,
                                                    std::make_shared<H2Budget>());
    bool asked = false;
    auto body = [&]() -> Async<void> {
      auto serve = [&]() -> Async<void> {
        co_await H2Session::run(server, [&](const auto&) { asked = true; }, nullptr);
      };
      auto speak = [&]() -> Async<void> {
        co_await io::send(*ends[0], bytes);
        co_await io::read_to_end(*ends[0]);
        ends[0]->close();
      };
      co_await io::both(serve(), speak());
      EXPECT_TRUE(server->ended());
    };
    io::run_on(loop, body);
    EXPECT_FALSE(asked) << bytes;
  }
}

}  // namespace
}  // namespace caisson::egress
