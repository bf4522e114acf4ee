#include "api/answer.h"

#include <gtest/gtest.h>

#include "api/exchange_for_test.h"

namespace caisson::api {
namespace {

TEST(AnswerTest, AJsonAnswerSaysWhatItIs) {
  FakeExchange exchange("GET", "/x");
  run(send(exchange, Answer::json(201, json::Value::array())));
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.headers.get("content-type"), "application/json");
  EXPECT_EQ(exchange.answer, "[]");
}

TEST(AnswerTest, AnEmptyAnswerHasNoContentType) {
  FakeExchange exchange("DELETE", "/x");
  run(send(exchange, Answer::empty(204)));
  EXPECT_EQ(exchange.status, 204);
  EXPECT_FALSE(exchange.headers.has("content-type"));
  EXPECT_EQ(exchange.answer, "");
}

TEST(AnswerTest, WhatTheHandlerHasSentIsNotSentAgain) {
  FakeExchange exchange("GET", "/x");
  run(send(exchange, Answer::already_sent()));
  EXPECT_FALSE(exchange.begun());
}

TEST(AnswerTest, AnErrorHasItsNumberInTheBody) {
  const Answer answer = error_answer(Error::not_found("sandbox i1 not found"), "r1");
  EXPECT_EQ(answer.head.status, 404);
  EXPECT_EQ(answer.body, R"({"code":404,"message":"sandbox i1 not found"})");
}

TEST(AnswerTest, EveryCodeHasItsStatus) {
  const std::pair<Code, int> table[] = {
      {Code::kCancelled, 499},          {Code::kUnknown, 500},
      {Code::kInvalidArgument, 400},    {Code::kDeadlineExceeded, 504},
      {Code::kNotFound, 404},           {Code::kAlreadyExists, 409},
      {Code::kPermissionDenied, 403},   {Code::kResourceExhausted, 429},
      {Code::kFailedPrecondition, 409}, {Code::kAborted, 409},
      {Code::kOutOfRange, 413},         {Code::kUnimplemented, 501},
      {Code::kInternal, 500},           {Code::kUnavailable, 503},
      {Code::kDataLoss, 500},           {Code::kUnauthenticated, 401},
  };
  for (const auto& [code, status] : table) {
    EXPECT_EQ(http_status_of(code), status) << to_string(code);
  }
}

TEST(AnswerTest, WhatIsOurFaultIsNotToldInDetail) {
  const Answer internal = error_answer(Error::internal("row 7 of keys"), "r1");
  EXPECT_EQ(internal.head.status, 500);
  EXPECT_EQ(internal.body.find("row 7"), std::string::npos);
  EXPECT_NE(internal.body.find("r1"), std::string::npos);
  // An errno that looks like the client's mistake is none.
  const Answer missing = error_answer(Error::syscall("openat2 secret", ENOENT), "r1");
  EXPECT_EQ(missing.head.status, 500);
  EXPECT_EQ(missing.body.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace caisson::api
