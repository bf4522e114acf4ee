// Tests of the server whose subject is the connection: its end, what becomes of it, how many there
// are.
#include "http/server.h"
#include "http/server_for_test.h"
#include "io/race.h"

namespace caisson::http {
namespace {

// ---- the client's end
// -----------------------------------------------------------------------------

TEST_F(ServerTest, AHandlerSeesThatTheClientHasGone) {
  io::Event arrived(loop_), ended(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    arrived.notify();
    co_await exchange.wait_gone();
    EXPECT_TRUE(exchange.gone());
    const Status written = co_await exchange.respond(text_head(), "to nobody");
    EXPECT_FALSE(written.has_value());
    ended.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    loop_.post([&] { stream.reset(); });
    co_await ended.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, OnGoneCallsWhileTheHandlerWaitsForSomethingElse) {
  io::Event arrived(loop_), gone(loop_), ended(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([&] { gone.notify(); });
    arrived.notify();
    co_await gone.wait();
    EXPECT_TRUE(exchange.gone());
    ended.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    loop_.post([&] { stream.reset(); });
    co_await ended.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, WhatWasReadAheadIsTheNextRequest) {
  io::Event arrived(loop_), go_on(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([] { ADD_FAILURE() << "the client has not gone"; });
    arrived.notify();
    co_await go_on.wait();
    EXPECT_FALSE(exchange.gone());
    co_await exchange.respond(text_head(), "first");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    co_await io::send(*stream, "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    co_await io::Loop::sleep(0s);
    go_on.notify();
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_THAT(answer, HasSubstr("first"));
    EXPECT_THAT(answer, EndsWith("GET /next "));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, TheClientsEndIsSeenBehindTheNextRequest) {
  io::Event arrived(loop_), gone(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    arrived.notify();
    co_await exchange.wait_gone();
    EXPECT_TRUE(exchange.gone());
    gone.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\n");
    co_await arrived.wait();
    loop_.post([&] { stream.reset(); });
    co_await gone.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, WhoSendsOnAndOnBehindARequestIsCutOff) {
  io::Event arrived(loop_), gone(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([&] { gone.notify(); });
    arrived.notify();
    co_await gone.wait();
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    co_await io::send(*stream, std::string(20'000, 'x'));
    const std::string nothing = co_await io::read_to_end(*stream);
    EXPECT_EQ(nothing, "");
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, ABodyBehindAWatchedRequestIsReadThoughMoreIsAwaited) {
  on("/first", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([] {});
    co_await io::Loop::sleep(0s);
    co_await exchange.respond(text_head(), "first");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream,
                      "GET /first HTTP/1.1\r\nHost: x\r\n\r\n"
                      "POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody");
    const std::string answer = co_await read_until(*stream, "POST /2 body");
    EXPECT_THAT(answer, HasSubstr("first"));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, ABodyIsReadWholeThoughItWasReadAhead) {
  on("/", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([] {});
    co_await echo(exchange);
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    const std::string large(300'000, 'x');
    co_await io::send(*stream,
                      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n"
                      "Connection: close\r\n\r\n" +
                          large);
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_THAT(answer, EndsWith("\r\n\r\nPOST / " + large));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AReadAheadThatOutlivesItsRequestServesTheNext) {
  on("/", [&](Exchange& exchange) -> Async<void> {
    exchange.on_gone([] {});
    co_await io::Loop::sleep(0s);
    co_await exchange.respond(text_head(), "first");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string first = co_await read_until(*stream, "first");
    EXPECT_THAT(first, EndsWith("first"));
    co_await io::send(*stream, "GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const std::string second = co_await io::read_to_end(*stream);
    EXPECT_THAT(second, EndsWith("GET /2 "));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AClientThatTakesNothingIsCutOff) {
  limits_.write_time = 20ms;
  io::Event ended(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    co_await exchange.begin(text_head());
    const std::string piece(1 << 20, 'x');
    Status written;
    while (written.has_value()) written = co_await exchange.write(piece);
    EXPECT_TRUE(exchange.gone());
    ended.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await ended.wait();
  };
  io::run_on(loop_, body);
}

// ---- cancelled handlers
// ---------------------------------------------------------------------------

Async<void> at(io::Event& event) {
  co_await event.wait();
}

TEST_F(ServerTest, AReadThatWasCancelledLosesNothing) {
  io::Event arrived(loop_), cancel(loop_), cancelled(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    auto read = [](Exchange& from) -> Async<void> { co_await from.read_some(100); };
    arrived.notify();
    co_await io::race(read(exchange), at(cancel));
    cancelled.notify();
    co_await exchange.wait_gone();  // until bytes come
    co_await exchange.respond(text_head(), "answer");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
    co_await arrived.wait();
    loop_.post([&] { cancel.notify(); });
    co_await cancelled.wait();
    co_await io::send(*stream, std::string("body") + std::string(20'000, 'x'));
    const std::string answer = co_await read_until(*stream, "answer");
    EXPECT_THAT(answer, EndsWith("answer"));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AWriteThatWasCancelledMidwayResetsTheConnection) {
  io::Event cancel(loop_), ended(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    auto write = [](Exchange& to) -> Async<void> {
      co_await to.begin(text_head());
      const std::string piece(1 << 20, 'x');
      for (;;) co_await to.write(piece);
    };
    co_await io::race(write(exchange), at(cancel));
    EXPECT_TRUE(exchange.gone());
    const Status more = co_await exchange.write("more");
    EXPECT_FALSE(more.has_value());
    ended.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await read_until(*stream, "xxx");
    loop_.post([&] { cancel.notify(); });
    co_await ended.wait();
    const bool reset = co_await was_reset(*stream);
    EXPECT_TRUE(reset);
  };
  io::run_on(loop_, body);
}

// ---- upgrades
// -------------------------------------------------------------------------------------

TEST_F(ServerTest, AnUpgradeGivesTheBareConnection) {
  on("/", [](Exchange& exchange) -> Async<void> {
    ResponseHead head{.status = 101, .headers = {{"Upgrade", "shout"}}};
    auto upgraded = co_await exchange.upgrade(std::move(head));
    EXPECT_TRUE(upgraded.has_value());
    if (!upgraded.has_value()) co_return;
    EXPECT_EQ(upgraded->early, "early ");
    std::array<char, 16> piece;
    const auto count = co_await upgraded->stream->read(piece);
    co_await io::send(*upgraded->stream,
                      upgraded->early + std::string(piece.data(), count.value_or(0)) + "!");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream,
                      "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"
                      "early ");
    const std::string head = co_await read_until(*stream, "\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\n"
                                 "Connection: Upgrade\r\n"));
    co_await io::send(*stream, "late");
    const std::string rest = co_await io::read_to_end(*stream);
    EXPECT_EQ(rest, "early late!");
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AnUpgradeThatNobodyAskedForIsAnError) {
  on("/", [](Exchange& exchange) -> Async<void> {
    const auto upgraded = co_await exchange.upgrade({.status = 101});
    EXPECT_FALSE(upgraded.has_value());
    if (upgraded.has_value()) co_return;
    EXPECT_EQ(upgraded.error().code(), Code::kFailedPrecondition);
    co_await exchange.respond(text_head(), "plain");
  });
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              EndsWith("plain"));
}

TEST_F(ServerTest, ConnectOpensATunnel) {
  on("example.com:443", [](Exchange& exchange) -> Async<void> {
    const auto upgraded = co_await exchange.upgrade({.status = 200});
    EXPECT_TRUE(upgraded.has_value());
    if (upgraded.has_value()) co_await io::send(*upgraded->stream, "tunnel");
  });
  const std::string answer =
      answer_to("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\ntunnel"));
}

// ---- many connections
// -----------------------------------------------------------------------------

TEST_F(ServerTest, TheOldestIdleConnectionMakesRoom) {
  limits_.connections = 2;
  start();
  auto body = [&]() -> Async<void> {
    const auto oldest = co_await connect();
    co_await io::send(*oldest, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await read_until(*oldest, "GET /1 ");
    const auto newer = co_await connect();
    co_await io::send(*newer, "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await read_until(*newer, "GET /2 ");
    const std::string third =
        co_await talk("GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(third, EndsWith("GET /3 "));
    const std::string nothing = co_await io::read_to_end(*oldest);
    EXPECT_EQ(nothing, "");
    co_await io::send(*newer, "GET /4 HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string fourth = co_await read_until(*newer, "GET /4 ");
    EXPECT_THAT(fourth, EndsWith("GET /4 "));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, APartOfAHeadMakesRoomToo) {
  limits_.connections = 1;
  start();
  auto body = [&]() -> Async<void> {
    const auto slow = co_await connect();
    // What is behind the first request is read together with it.
    co_await io::send(*slow, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTT");
    co_await read_until(*slow, "GET /1 ");
    const std::string other =
        co_await talk("GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(other, EndsWith("GET /3 "));
    const std::string nothing = co_await io::read_to_end(*slow);
    EXPECT_EQ(nothing, "");
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, WithoutAnIdleConnectionToCloseItAnswers503) {
  limits_.connections = 1;
  io::Event arrived(loop_), go_on(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    arrived.notify();
    co_await go_on.wait();
    co_await exchange.respond(text_head(), "done");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto busy = co_await connect();
    co_await io::send(*busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    const std::string refused = co_await talk("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(refused, HasSubstr(R"({"code":503,"message":")"));
    go_on.notify();
    const std::string answer = co_await read_until(*busy, "done");
    EXPECT_THAT(answer, EndsWith("done"));
    EXPECT_EQ(server_->counts().connections, 1U);
    EXPECT_EQ(server_->counts().refused_total, 1U);
  };
  io::run_on(loop_, body);
}

// ---- drain
// ----------------------------------------------------------------------------------------

TEST_F(ServerTest, DrainEndsIdleConnectionsAndWaitsForRequests) {
  io::Event arrived(loop_), go_on(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    arrived.notify();
    co_await go_on.wait();
    co_await exchange.respond(text_head(), "done");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto idle = co_await connect();
    co_await io::send(*idle, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await read_until(*idle, "GET /1 ");
    const auto busy = co_await connect();
    co_await io::send(*busy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    io::Event drained(loop_);
    auto drain = [&]() -> Async<void> {
      co_await server_->drain(io::Clock::now() + 24h);
      drained.notify();
    };
    loop_.spawn(drain());
    const std::string nothing = co_await io::read_to_end(*idle);
    EXPECT_EQ(nothing, "");
    const auto refused = co_await io::connect_tcp(loop_, address_);
    EXPECT_FALSE(refused.has_value());
    go_on.notify();
    const std::string answer = co_await io::read_to_end(*busy);
    EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
    EXPECT_THAT(answer, EndsWith("done"));
    loop_.post([&] { busy->close(); });
    co_await drained.wait();
    EXPECT_EQ(server_->counts().connections, 0U);
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, DrainCutsOffWhatIsLeftAtTheTime) {
  io::Event arrived(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    arrived.notify();
    co_await exchange.wait_gone();
    EXPECT_TRUE(exchange.gone());
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    co_await server_->drain(io::Clock::now());
    const bool reset = co_await was_reset(*stream);
    EXPECT_TRUE(reset);
  };
  io::run_on(loop_, body);
}

}  // namespace
}  // namespace caisson::http
