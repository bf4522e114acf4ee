#include "http/server.h"

#include "http/connect.h"
#include "http/server_for_test.h"

namespace caisson::http {
namespace {

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

TEST_F(ServerTest, SmallChunksAreOnePieceAndAFaultBehindThemIsTold) {
  on("/", [](Exchange& exchange) -> Async<void> {
    std::string seen;
    for (;;) {
      const auto piece = co_await exchange.read_some(3);
      if (!piece.has_value()) seen += "(" + piece.error().message() + ")";
      if (!piece.has_value() || piece->empty()) break;
      seen += *piece + "|";
    }
    co_await exchange.respond(text_head(), seen);
  });
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(answer_to(head + "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\nnonsense"),
              EndsWith("\r\n\r\nabc|d|(a chunk without a size)"));
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

TEST_F(ServerTest, AnAnswer304OfNoLengthNamesNoCodingAndTheConnectionStays) {
  on("/", [](Exchange& exchange) -> Async<void> {
    ResponseHead head{.status = 304};
    head.headers.add("ETag", "\"a\"");
    co_await exchange.begin(std::move(head));
    co_await exchange.end();
  });
  const std::string answer = answer_to(
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, Not(HasSubstr("Content-Length")));
  // Both, one right behind the other.
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nHTTP/1.1 304 "));
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

// What all requests hold together is bounded, and given back with their ends.
TEST_F(ServerTest, BodiesThatAreHeldAreBoundedInSum) {
  limits_.held_bytes = 10;
  io::Event may_end(loop_);
  bool ends = false;
  on("/long", [&](Exchange& exchange) -> Async<void> {
    const auto body = co_await exchange.read_all(100);
    EXPECT_TRUE(body.has_value());
    while (!ends) co_await may_end.wait();
    co_await exchange.respond(text_head(), "held");
  });
  start();
  const std::string end = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ";
  auto body = [&]() -> Async<void> {
    const auto first = co_await connect();
    co_await io::send(*first, "POST /long" + end + "6\r\n\r\n123456");
    const std::string refused = co_await talk("POST /a" + end + "5\r\n\r\n12345");
    EXPECT_THAT(refused, HasSubstr("holds as many bytes of requests as it may"));
    const std::string fits = co_await talk("POST /a" + end + "4\r\n\r\n1234");
    EXPECT_THAT(fits, EndsWith("POST /a 1234"));
    ends = true;
    may_end.notify();
    const std::string held = co_await io::read_to_end(*first);
    EXPECT_THAT(held, EndsWith("held"));
    const std::string again = co_await talk("POST /a" + end + "5\r\n\r\n12345");
    EXPECT_THAT(again, EndsWith("POST /a 12345"));
  };
  io::run_on(loop_, body);
}

TEST_F(ServerTest, WhatIsLetGoMakesRoomAtOnce) {
  limits_.held_bytes = 10;
  on("/", [](Exchange& exchange) -> Async<void> {
    EXPECT_TRUE(exchange.hold(10).has_value());
    EXPECT_EQ(exchange.hold(1).error().code(), Code::kUnavailable);
    exchange.let_go();
    EXPECT_TRUE(exchange.hold(10).has_value());
    co_await exchange.respond(text_head(), "done");
  });
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              EndsWith("done"));
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

}  // namespace
}  // namespace caisson::http
