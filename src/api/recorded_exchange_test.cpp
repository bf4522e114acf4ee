#include "api/recorded_exchange.h"

#include <gtest/gtest.h>

#include "api/exchange_for_test.h"

namespace caisson::api {
namespace {

// Cannot begin an answer with a header "Bad".
class Picky : public FakeExchange {
 public:
  Picky() : FakeExchange("GET", "/") {}
  io::Async<Status> begin(http::ResponseHead head) override {
    if (head.headers.has("Bad")) return refuse();
    return FakeExchange::begin(std::move(head));
  }

 private:
  static io::Async<Status> refuse() { co_return fail(Error::invalid("the head is none")); }
};

io::Async<void> answer_twice(RecordedExchange& exchange) {
  const Status refused = co_await exchange.begin({.status = 200, .headers = {{"Bad", "x"}}});
  EXPECT_FALSE(refused.has_value());
  EXPECT_FALSE(exchange.begun());
  EXPECT_EQ(exchange.status(), 0);
  const Status answered = co_await exchange.respond({.status = 500}, "error");
  EXPECT_TRUE(answered.has_value());
}

TEST(RecordedExchange, AnAnswerThatCouldNotBeginLeavesRoomForAnother) {
  Picky inner;
  RecordedExchange exchange(inner);
  io::Loop loop{1};
  run(loop, answer_twice(exchange));
  EXPECT_TRUE(exchange.begun());
  EXPECT_EQ(exchange.status(), 500);
  EXPECT_EQ(exchange.bytes(), 5u);
}

}  // namespace
}  // namespace caisson::api
