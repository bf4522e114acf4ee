#include "api/e2b/logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using fleet::Event;
using fleet::EventQuery;
using std::chrono::milliseconds;
using testing::HasSubstr;

class LogsTest : public testing::Test, public ServiceFixture {
 protected:
  void SetUp() override {
    FakeServed& served = fleet.add("i1");
    served.noted = {{.time = FakeFleet::start(),
                     .level = Event::Level::kWarn,
                     .message = "process ended",
                     .fields = {{"pid", "7"}}}};
  }
};

TEST_F(LogsTest, TheOldFormHasEachEntryAsALineToo) {
  const FakeExchange exchange = call("GET", "/sandboxes/i1/logs");
  EXPECT_EQ(exchange.status, 200);
  const json::Value line =
      json::parse(R"({"pid":"7","logger":"caisson","level":"warn","message":"process ended"})")
          .value();
  const json::Value body = exchange.answer_json();
  const json::Value& entry = body.find("logs")->as_array()->at(0);
  EXPECT_EQ(*entry.find("timestamp"), json::Value("2026-01-02T03:04:05.678000Z"));
  EXPECT_EQ(json::parse(*entry.find("line")->as_string()).value(), line);
  EXPECT_EQ(body.find("logEntries")->as_array()->size(), 1u);
}

TEST_F(LogsTest, TheNewFormHasEntries) {
  const FakeExchange exchange = call("GET", "/v2/sandboxes/i1/logs");
  EXPECT_EQ(exchange.answer_json(),
            json::parse(R"({"logs":[{"timestamp":"2026-01-02T03:04:05.678000Z","level":"warn",
                            "message":"process ended","fields":{"pid":"7"}}]})")
                .value());
}

TEST_F(LogsTest, EveryParameterIsPassedOn) {
  call("GET", "/sandboxes/i1/logs?start=1000&limit=5");
  EXPECT_EQ(fleet.event_query.from, fleet::WallClock::time_point(milliseconds(1000)));
  EXPECT_EQ(fleet.event_query.limit, 5u);
  call("GET", "/sandboxes/i1/logs?limit=100000");
  EXPECT_EQ(fleet.event_query.limit, 1000u);
  call("GET",
       "/v2/sandboxes/i1-client/logs?cursor=2000&limit=7&direction=backward&level=warn&search=x");
  EXPECT_EQ(fleet.event_query.from, std::nullopt);
  EXPECT_EQ(fleet.event_query.to, fleet::WallClock::time_point(milliseconds(2000)));
  EXPECT_EQ(fleet.event_query.limit, 7u);
  EXPECT_EQ(fleet.event_query.order, EventQuery::Order::kNewestFirst);
  EXPECT_EQ(fleet.event_query.least, Event::Level::kWarn);
  EXPECT_EQ(fleet.event_query.text, "x");
  call("GET", "/v2/sandboxes/i1/logs?cursor=2000&direction=forward");
  EXPECT_EQ(fleet.event_query.from, fleet::WallClock::time_point(milliseconds(2000)));
  EXPECT_EQ(fleet.event_query.to, std::nullopt);
}

TEST_F(LogsTest, AWrongParameterIsNamed) {
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1/logs?start=now"), 400), HasSubstr("start"));
  for (const char* query : {"cursor=-1", "limit=1001", "direction=up", "level=loud"}) {
    const FakeExchange exchange = call("GET", std::string("/v2/sandboxes/i1/logs?") + query);
    EXPECT_THAT(refusal(exchange, 400),
                HasSubstr(std::string(query).substr(0, std::string(query).find('='))));
  }
  const std::string longer(257, 'x');
  EXPECT_THAT(refusal(call("GET", "/v2/sandboxes/i1/logs?search=" + longer), 400),
              HasSubstr("search: found 257 bytes"));
}

TEST_F(LogsTest, OfAnotherTeamsSandboxThereIsNone) {
  fleet.add("i2", "team-2");
  EXPECT_THAT(refusal(call("GET", "/v2/sandboxes/i2/logs"), 404), HasSubstr("not found"));
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i3/logs"), 404), HasSubstr("not found"));
}

}  // namespace
}  // namespace caisson::api
