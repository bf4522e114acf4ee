#include "http/passage.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "http/server_for_test.h"

namespace caisson::http {
namespace {

constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

// Capitals for all but the last byte of what came so far, which is held back until more comes.
PassageOptions::ChangeBody in_capitals() {
  return [held = std::string()](std::string piece) mutable -> Result<std::string> {
    const bool ended = piece.empty();
    held += piece;
    if (held.find('!') != std::string::npos) return fail(Error::invalid("an exclamation"));
    std::string out = held.substr(0, ended ? held.size() : held.size() - 1);
    held.erase(0, out.size());
    for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return out;
  };
}

class PassageTest : public ServerTest {
 protected:
  struct Came {
    std::string request, answer;  // at the server, and at the client
    Status status;
  };
  // Sends a request through a passage to a server that reads all of it and then says `reply`.
  Came pass(std::string request, PassageOptions options, std::string reply = std::string(kAnswer)) {
    Came came;
    auto ends = io::stream_pair(loop_);
    const std::unique_ptr<io::Stream> upstream = std::move(ends[0]), far = std::move(ends[1]);
    auto handler = [&](Exchange& exchange) -> Async<void> {
      options.head = exchange.request();
      options.head.target = "/x";
      Passage passage(exchange, *upstream, std::move(options));
      came.status = co_await passage.run();
      free_ = passage.upstream_is_free();
      upstream->close();
      if (came.status.has_value()) co_return;
      if (exchange.begun()) {
        exchange.abort();
        co_return;
      }
      co_await exchange.respond(text_head(502), "broken");
    };
    on("/x", handler);
    auto serve = [&]() -> Async<void> {
      std::array<char, 4096> piece;
      // All that the passage sends before it waits for the answer.
      while (!came.request.ends_with(last_)) {
        const auto count = co_await far->read(piece);
        if (count.value_or(0) == 0) co_return;
        came.request.append(piece.data(), *count);
      }
      co_await io::send(*far, reply);
    };
    start();
    auto body = [&]() -> Async<void> {
      loop_.spawn(serve());
      came.answer = co_await talk(std::move(request));
    };
    io::run_on(loop_, body);
    return came;
  }

  bool free_ = false;
  std::string last_ = "\r\n\r\n";  // with what the request ends
};

std::string post(std::string_view framing, std::string_view body) {
  return "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + std::string(framing) +
         "\r\n\r\n" + std::string(body);
}

TEST_F(PassageTest, ARequestAndItsAnswerPassAsTheyAre) {
  last_ = "abc";
  const Came came = pass(post("Content-Length: 3", "abc"), {});
  EXPECT_THAT(came.request, EndsWith("\r\n\r\nabc"));
  EXPECT_THAT(came.answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(came.answer, EndsWith("\r\n\r\nhello"));
}

struct Freed {
  std::string_view method, reply;
  bool free = false;
};

class PassageFreesTest : public PassageTest, public ::testing::WithParamInterface<Freed> {};

TEST_P(PassageFreesTest, AConnectionWhoseMessagesEndedBeforeItDid) {
  const std::string request =
      std::string(GetParam().method) + " /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  const Came came = pass(request, {}, std::string(GetParam().reply));
  EXPECT_TRUE(came.status.has_value());
  EXPECT_EQ(free_, GetParam().free) << GetParam().reply;
}

INSTANTIATE_TEST_SUITE_P(
    Passage, PassageFreesTest,
    ::testing::Values(
        Freed{"GET", kAnswer, true},
        Freed{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
              true},
        Freed{"GET", "HTTP/1.1 204 No Content\r\n\r\n", true},
        Freed{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true},
        // What is behind the answer is nobody's.
        Freed{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n"},
        Freed{"GET", "HTTP/1.1 204 No Content\r\n\r\nx"},
        Freed{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"},
        Freed{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx"},
        Freed{"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
        Freed{"GET", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"}));

TEST_F(PassageTest, BodiesChangeOnTheirWay) {
  last_ = "ABC";
  const Came came = pass(post("Content-Length: 3", "abc"),
                         {.change_body = in_capitals(), .change_answer_body = in_capitals()});
  EXPECT_THAT(came.request, EndsWith("\r\n\r\nABC"));
  EXPECT_THAT(came.answer, EndsWith("\r\n\r\nHELLO"));
}

TEST_F(PassageTest, ABodyInChunksChangesToo) {
  last_ = "0\r\n\r\n";
  const Came came = pass(post("Transfer-Encoding: chunked", "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
                         {.change_body = in_capitals()});
  EXPECT_THAT(came.request, HasSubstr("AB"));
  EXPECT_THAT(came.request, EndsWith("\r\nC\r\n0\r\n\r\n"));
}

TEST_F(PassageTest, WhatWasReadBeforeIsSentFirst) {
  last_ = "earlyABC";
  Came came =
      pass(post("Content-Length: 3", "abc"), {.early_body = "early", .change_body = in_capitals()});
  EXPECT_THAT(came.request, EndsWith("\r\n\r\nearlyABC"));
}

TEST_F(PassageTest, WhatWasReadBeforeMayBeAll) {
  last_ = "early";
  const Came came = pass("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                         {.early_body = "early",
                          .early_read = PassageOptions::Read::kAll,
                          .change_body = in_capitals()});
  EXPECT_THAT(came.request, EndsWith("\r\n\r\nearly"));
}

TEST_F(PassageTest, AChangeThatFailsEndsBoth) {
  last_ = "(never)";
  const Came request = pass(post("Content-Length: 4", "abc!"), {.change_body = in_capitals()});
  EXPECT_FALSE(request.status.has_value());
  EXPECT_THAT(request.request, Not(HasSubstr("ABC")));
  EXPECT_THAT(request.answer, StartsWith("HTTP/1.1 502"));
}

TEST_F(PassageTest, AnAnswerThatFailsIsNeverTakenForWhole) {
  const Came came =
      pass("GET /x HTTP/1.1\r\nHost: a\r\n\r\n", {.change_answer_body = in_capitals()},
           "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!");
  EXPECT_FALSE(came.status.has_value());
  EXPECT_THAT(came.answer, Not(HasSubstr("HELLO")));
}

TEST_F(PassageTest, AHeadThatIsRefusedNeverBegins) {
  const Came came = pass(
      "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
      {.on_answer = [](ResponseHead&) -> Status { return fail(Error::invalid("not this one")); }});
  EXPECT_EQ(came.status.error().message(), "not this one");
  EXPECT_THAT(came.answer, StartsWith("HTTP/1.1 502"));
}

}  // namespace
}  // namespace caisson::http
