#include "image/registry/fetch_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

TEST(FetchProtocol, RequestsComeBack) {
  FetchRequest request = {.id = 7,
                          .url = "https://r.example.com/v2/",
                          .headers = {"Accept: a, b", "Range: bytes=1-"},
                          .form = std::nullopt,
                          .limit = 1ull << 40,
                          .seconds = 30,
                          .outside_only = true};
  const auto again = decode_request(request.encode());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->encode(), request.encode());
  EXPECT_EQ(again->headers, request.headers);
  EXPECT_TRUE(again->outside_only);
  request.form = "a=b&c=d";
  EXPECT_EQ(decode_request(request.encode())->form, "a=b&c=d");
  EXPECT_EQ(decode_request(encode_cancel(9))->id, 9u);
  EXPECT_EQ(decode_request(encode_cancel(9))->url, "");
}

TEST(FetchProtocol, AHeaderCannotBecomeTwo) {
  FetchRequest request = {.id = 1, .url = "https://r.example.com/", .headers = {"A: b\r\nC: d"}};
  const auto again = decode_request(request.encode());
  ASSERT_TRUE(again.has_value());
  ASSERT_EQ(again->headers.size(), 1u);
  EXPECT_EQ(again->headers[0], "A: b  C: d");
}

TEST(FetchProtocol, AnswersComeBack) {
  const FetchHead head = {.id = 3,
                          .status = 401,
                          .headers = {{"www-authenticate", "Basic realm=\"x\""},
                                      {"www-authenticate", "Bearer realm=\"y\""},
                                      {"content-type", "text/plain"}}};
  const auto message = decode_fetch_message(head.encode());
  ASSERT_TRUE(message.has_value());
  ASSERT_TRUE(message->head.has_value());
  EXPECT_EQ(message->head->headers, head.headers);
  EXPECT_EQ(message->head->header("www-authenticate"), "Basic realm=\"x\"");
  EXPECT_EQ(message->head->header("location"), "");
  const FetchResult result = {.id = 3, .end = FetchEnd::kTooLarge, .text = "too much\nof it"};
  const auto end = decode_fetch_message(result.encode());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->result->end, FetchEnd::kTooLarge);
  EXPECT_EQ(end->result->text, "too much of it");
}

TEST(FetchProtocol, RefusesWhatAWorkerShouldNotSay) {
  for (const char* text :
       {"", "\n", "head", "head 1", "head 1\n", "head x\nstatus 200\n", "head 1\nstatus 99\n",
        "head 1\nstatus 600\n", "head 1\nstatus 200\nset-cookie x\n", "end 1\n", "end 1\nhappy \n",
        "end 1\ndone \nmore \n", "get 1\nurl x\n", "head 1\nstatus 200\nlocation a\rb\n"}) {
    EXPECT_FALSE(decode_fetch_message(text).has_value()) << text;
  }
  EXPECT_FALSE(decode_fetch_message("end 1\nother " + std::string(kMaxFetchMessage, 'x') + "\n")
                   .has_value());
  for (const char* text : {"", "get 1\n", "get 1\nlimit 3\n", "get 1\nurl x\nform a\n",
                           "post 1\nurl x\n", "get 1\nurl x\nlimit -1\n", "get 1\nodd x\n"}) {
    EXPECT_FALSE(decode_request(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace caisson::image
