#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "http/connect.h"
#include "io/loop_for_test.h"

namespace caisson::http {
namespace {

using namespace std::chrono_literals;
using io::Async;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ResponseHead text_head(int status = 200) {
  return {.status = status, .headers = {{"Content-Type", "text/plain"}}};
}

// A server whose handlers are by path, and clients of it that speak in bytes.
class ServerTest : public ::testing::Test {
 protected:
  // Starts the server; once, before `run`.
  void start() {
    auto listener = io::listen_tcp(loop_, "127.0.0.1:0");
    VERIFY(listener.has_value());
    address_ = (*listener)->address();
    server_.emplace(loop_, limits_, [this](Exchange& exchange) { return handle(exchange); });
    server_->serve(std::move(*listener));
  }
  void on(const std::string& path, Handler handler) { handlers_[path] = std::move(handler); }

  // Answers with what came.
  static Async<void> echo(Exchange& exchange) {
    const auto body = co_await exchange.read_all(1 << 20);
    if (!body.has_value()) {
      co_await exchange.respond(text_head(400), body.error().message());
      co_return;
    }
    co_await exchange.respond(
        text_head(), exchange.request().method + " " + exchange.target().path + " " + *body);
  }
  Async<void> handle(Exchange& exchange) {
    const auto found = handlers_.find(exchange.target().path);
    if (found == handlers_.end()) return echo(exchange);
    return found->second(exchange);
  }

  Async<std::unique_ptr<io::Stream>> connect() {
    auto stream = co_await io::connect_tcp(loop_, address_);
    VERIFY(stream.has_value());
    co_return std::move(*stream);
  }
  // Sends `bytes` and gives all that comes until the end.
  Async<std::string> talk(std::string bytes) {
    const auto stream = co_await connect();
    co_await io::send(*stream, std::move(bytes));
    const std::string answer = co_await io::read_to_end(*stream);
    co_return answer;
  }
  // What comes until it ends with `end`.
  static Async<std::string> read_until(io::Stream& stream, std::string end) {
    std::string all;
    std::array<char, 1> piece;
    while (!all.ends_with(end)) {
      const auto count = co_await stream.read(piece);
      if (count.value_or(0) == 0) break;
      all += piece[0];
    }
    co_return all;
  }
  // What a server says to `bytes`, whose connection it closes.
  std::string answer_to(const std::string& bytes) {
    start();
    std::string answer;
    auto body = [&]() -> Async<void> { answer = co_await talk(bytes); };
    io::run_on(loop_, body);
    return answer;
  }

  io::Loop loop_{1};
  Limits limits_;
  std::map<std::string, Handler> handlers_;
  std::string address_;
  std::optional<Server> server_;
};

TEST_F(ServerTest, AnswersARequest) {
  const std::string answer =
      answer_to("GET /a%20b?c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 9\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Request-Id: "));
  EXPECT_THAT(answer, HasSubstr(" GMT\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nGET /a b "));
}

TEST_F(ServerTest, KeepsTheConnectionAndAnswersPipelinedRequestsInOrder) {
  const std::string answer = answer_to(
      "POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\none"
      "POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
      "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::size_t first = answer.find("POST /1 one"), second = answer.find("POST /2 two"),
                    third = answer.find("GET /3 ");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
  EXPECT_EQ(server_->counts().requests_total, 3U);
}

TEST_F(ServerTest, ToHttp10TheConnectionStaysOnlyIfAsked) {
  EXPECT_THAT(answer_to("GET /a HTTP/1.0\r\n\r\n"), HasSubstr("\r\nConnection: close\r\n"));
}

TEST_F(ServerTest, KeepsAConnectionOfHttp10ThatAsksForIt) {
  const std::string answer = answer_to(
      "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
      "GET /b HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: keep-alive\r\n"));
  EXPECT_THAT(answer, EndsWith("GET /b "));
}

TEST_F(ServerTest, TheAnswerToHeadHasNoBody) {
  const std::string answer = answer_to("HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 8\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(ServerTest, AnAnswer204HasNeitherLengthNorBody) {
  on("/", [](Exchange& exchange) -> Async<void> {
    co_await exchange.respond({.status = 204}, "dropped");
  });
  const std::string answer = answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Content-Length")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

Async<void> three_pieces(Exchange& exchange) {
  co_await exchange.begin(text_head());
  co_await exchange.write("one");
  co_await exchange.write("");
  co_await exchange.write("two, which is longer");
  co_await exchange.end();
}

TEST_F(ServerTest, AnAnswerInPiecesIsChunked) {
  on("/", three_pieces);
  const std::string answer = answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n3\r\none\r\n14\r\ntwo, which is longer\r\n0\r\n\r\n"));
}

TEST_F(ServerTest, AnAnswerInPiecesEndsWithTheConnectionForHttp10) {
  on("/", three_pieces);
  const std::string answer = answer_to("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nonetwo, which is longer"));
}

TEST_F(ServerTest, AnAnswerInPiecesWithALengthIsNotChunked) {
  on("/", [](Exchange& exchange) -> Async<void> {
    ResponseHead head = text_head();
    head.headers.add("Content-Length", "6");
    co_await exchange.begin(std::move(head));
    co_await exchange.write("one");
    co_await exchange.write("two");
    co_await exchange.end();
  });
  const std::string answer = answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nonetwo"));
}

// Reads until the end or a reset; says which.
Async<bool> was_reset(io::Stream& stream) {
  std::array<char, 4096> piece;
  for (;;) {
    const auto count = co_await stream.read(piece);
    if (!count.has_value()) co_return true;
    if (*count == 0) co_return false;
  }
}

class BrokenAnswer : public ServerTest {
 protected:
  bool reset_by(Handler handler) {
    on("/", std::move(handler));
    start();
    bool reset = false;
    auto body = [&]() -> Async<void> {
      const auto stream = co_await connect();
      co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
      reset = co_await was_reset(*stream);
    };
    io::run_on(loop_, body);
    return reset;
  }
};

TEST_F(BrokenAnswer, OneThatIsNotEndedResetsTheConnection) {
  EXPECT_TRUE(reset_by([](Exchange& exchange) -> Async<void> {
    co_await exchange.begin(text_head());
    co_await exchange.write("a part");
  }));
}

TEST_F(BrokenAnswer, OneThatIsShorterThanItsLengthResetsTheConnection) {
  EXPECT_TRUE(reset_by([](Exchange& exchange) -> Async<void> {
    ResponseHead head = text_head();
    head.headers.add("Content-Length", "10");
    co_await exchange.begin(std::move(head));
    co_await exchange.write("a part");
    const Status ended = co_await exchange.end();
    EXPECT_FALSE(ended.has_value());
  }));
}

TEST_F(BrokenAnswer, OneThatIsLongerThanItsLengthResetsTheConnection) {
  EXPECT_TRUE(reset_by([](Exchange& exchange) -> Async<void> {
    ResponseHead head = text_head();
    head.headers.add("Content-Length", "2");
    co_await exchange.begin(std::move(head));
    const Status written = co_await exchange.write("more");
    EXPECT_FALSE(written.has_value());
  }));
}

TEST_F(BrokenAnswer, AbortResetsTheConnection) {
  EXPECT_TRUE(reset_by([](Exchange& exchange) -> Async<void> {
    co_await exchange.begin(text_head());
    exchange.abort();
    EXPECT_TRUE(exchange.gone());
    const Status written = co_await exchange.write("late");
    EXPECT_FALSE(written.has_value());
  }));
}

TEST_F(ServerTest, AHandlerThatAnswersNothingMeans500) {
  on("/", [](Exchange&) -> Async<void> { co_return; });
  const std::string answer = answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 Internal Server Error\r\n"));
  EXPECT_THAT(answer, EndsWith(R"({"code":500,"message":"the request was not answered"})"));
}

TEST_F(ServerTest, AHeadThatCannotBeWrittenIsAnErrorBeforeAnythingIsSent) {
  on("/", [](Exchange& exchange) -> Async<void> {
    ResponseHead head = text_head();
    head.headers.add("X-Bad", "a\r\nInjected: b");
    const Status status = co_await exchange.respond(std::move(head), "");
    EXPECT_FALSE(status.has_value());
    EXPECT_FALSE(exchange.begun());
    co_await exchange.respond(text_head(), "good");
  });
  const std::string answer = answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Injected")));
  EXPECT_THAT(answer, EndsWith("good"));
}

TEST_F(ServerTest, AnswersTwiceIsAnError) {
  on("/", [](Exchange& exchange) -> Async<void> {
    co_await exchange.respond(text_head(), "once");
    const Status again = co_await exchange.respond(text_head(), "twice");
    EXPECT_FALSE(again.has_value());
    const Status begun = co_await exchange.begin(text_head());
    EXPECT_FALSE(begun.has_value());
    const Status written = co_await exchange.write("x");
    EXPECT_FALSE(written.has_value());
    const Status ended = co_await exchange.end();
    EXPECT_FALSE(ended.has_value());
  });
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              EndsWith("\r\n\r\nonce"));
}

// ---- what is refused
// ------------------------------------------------------------------------------

struct Refused {
  const char* request;
  int status;
};

class ServerRefuses : public ServerTest, public ::testing::WithParamInterface<Refused> {};

TEST_P(ServerRefuses, WithJsonAndTheEndOfTheConnection) {
  limits_.head_bytes = 1000;
  const std::string answer = answer_to(GetParam().request);
  const std::string status = std::to_string(GetParam().status);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status + " "));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n{\"code\":" + status + ",\"message\":\""));
  EXPECT_EQ(server_->counts().refused_total, 1U);
}

const std::string kLongHead = "GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(2000, 'x');

INSTANTIATE_TEST_SUITE_P(
    Requests, ServerRefuses,
    ::testing::Values(
        Refused{"GET / HTTP/1.1\r\n\r\n", 400}, Refused{"GET / HTTP/1.1\nHost: x\n\n", 400},
        Refused{"nonsense\r\n\r\n", 400},
        Refused{"GET /%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400},
        Refused{"GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417},
        Refused{kLongHead.c_str(), 431},
        Refused{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
        Refused{"PRI * HTTP/2.0\r\n\r\n", 505}));

TEST_F(ServerTest, ARefusalIsNotLostThoughTheClientSendsOn) {
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "nonsense\r\n\r\n" + std::string(60'000, 'x'));
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer, EndsWith("}"));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AHeadThatDoesNotEndInTimeMeans408) {
  limits_.head_time = 0s;
  EXPECT_THAT(answer_to("GET / HTTP"), StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerTest, AnIdleConnectionEndsWithoutAWord) {
  limits_.idle_time = 20ms;
  EXPECT_EQ(answer_to(""), "");
}

// ---- bodies
// ---------------------------------------------------------------------------------------

TEST_F(ServerTest, SendsContinueOnlyWhenTheBodyIsWanted) {
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream,
                      "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
                      "Connection: close\r\n\r\n");
    const std::string interim = co_await read_until(*stream, "\r\n\r\n");
    EXPECT_EQ(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    co_await io::send(*stream, "body");
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_THAT(answer, EndsWith("POST /a body"));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, AnExpectedBodyThatIsNotWantedEndsTheConnection) {
  on("/",
     [](Exchange& exchange) -> Async<void> { co_await exchange.respond(text_head(403), "no"); });
  const std::string answer =
      answer_to("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
}

TEST_F(ServerTest, AShortBodyThatNobodyReadIsDroppedAndTheConnectionStays) {
  on("/",
     [](Exchange& exchange) -> Async<void> { co_await exchange.respond(text_head(), "unread"); });
  const std::string answer = answer_to(
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + std::string(60'000, 'x') +
      "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, EndsWith("GET /next "));
}

TEST_F(ServerTest, ALongBodyThatNobodyReadEndsTheConnection) {
  on("/",
     [](Exchange& exchange) -> Async<void> { co_await exchange.respond(text_head(), "unread"); });
  const std::string answer =
      answer_to("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("unread"));
}

TEST_F(ServerTest, ABodyIsReadInPiecesOfAtMostTheSizeAskedFor) {
  on("/", [](Exchange& exchange) -> Async<void> {
    EXPECT_EQ(exchange.body_length(), std::optional<std::uint64_t>(10));
    std::string sizes;
    for (;;) {
      const auto piece = co_await exchange.read_some(4);
      EXPECT_TRUE(piece.has_value());
      if (!piece.has_value() || piece->empty()) break;
      sizes += std::to_string(piece->size()) + " ";
    }
    co_await exchange.respond(text_head(), sizes);
  });
  EXPECT_THAT(answer_to("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n"
                        "\r\n0123456789"),
              EndsWith("\r\n\r\n4 4 2 "));
}

TEST_F(ServerTest, ReadAllRefusesWhatIsTooLong) {
  on("/", [](Exchange& exchange) -> Async<void> {
    const auto body = co_await exchange.read_all(3);
    EXPECT_FALSE(body.has_value());
    if (body.has_value()) co_return;
    EXPECT_EQ(body.error().code(), Code::kResourceExhausted);
    co_await exchange.respond(text_head(413), error_json(body.error()));
  });
  EXPECT_THAT(answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                        "Connection: close\r\n\r\n4\r\nfour\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(ServerTest, AMalformedBodyIsAnErrorAndEndsTheConnection) {
  const std::string answer = answer_to(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"
      "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("smuggled")));
}

TEST_F(ServerTest, ABodyThatBreaksOffIsAnError) {
  io::Event ended(loop_);
  on("/", [&](Exchange& exchange) -> Async<void> {
    const auto body = co_await exchange.read_all(100);
    EXPECT_FALSE(body.has_value());
    EXPECT_TRUE(exchange.gone());
    ended.notify();
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
    co_await stream->finish();
    co_await ended.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, ABodyWithoutProgressIsAnError) {
  limits_.body_time = 20ms;
  const std::string answer =
      answer_to("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
}

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
    co_await exchange.wait_gone();  // returns since bytes came
    EXPECT_FALSE(exchange.gone());
    co_await exchange.respond(text_head(), "first");
  });
  start();
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    co_await io::send(*stream, "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_THAT(answer, HasSubstr("first"));
    EXPECT_THAT(answer, EndsWith("GET /next "));
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
