#include "api/e2b/list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using testing::HasSubstr;

class ListTest : public testing::Test, public ServiceFixture {};

std::vector<std::string> ids(const FakeExchange& exchange) {
  std::vector<std::string> ids;
  const json::Value body = exchange.answer_json();
  EXPECT_NE(body.as_array(), nullptr) << exchange.answer;
  if (body.as_array() == nullptr) return ids;
  for (const json::Value& item : *body.as_array())
    ids.push_back(*item.find("sandboxID")->as_string());
  return ids;
}

TEST_F(ListTest, MetadataIsEscapedTwice) {
  const auto metadata = e2b::parse_metadata_query("user=alice&app=a%2520b&k%253D=%2526&plus=a%2Bb");
  ASSERT_TRUE(metadata.has_value());
  EXPECT_EQ(*metadata, (std::map<std::string, std::string>{
                           {"user", "alice"}, {"app", "a b"}, {"k=", "&"}, {"plus", "a+b"}}));
}

TEST_F(ListTest, MetadataMayBeEmptyOrWithoutAValue) {
  EXPECT_TRUE(e2b::parse_metadata_query("")->empty());
  EXPECT_EQ(e2b::parse_metadata_query("a&&b=")->size(), 2U);
}

TEST_F(ListTest, MalformedMetadataIsRefused) {
  EXPECT_FALSE(e2b::parse_metadata_query("a=%zz").has_value());
  EXPECT_FALSE(e2b::parse_metadata_query("a=%2").has_value());
  EXPECT_FALSE(e2b::parse_metadata_query("%25zz=a").has_value());
  std::string many;
  for (int index = 0; index < 65; ++index) many += "k" + std::to_string(index) + "=v&";
  EXPECT_FALSE(e2b::parse_metadata_query(many).has_value());
}

TEST_F(ListTest, TheOldListHasWhatRuns) {
  fleet.add("i1");
  fleet.add("i2").view_now.state = fleet::State::kPaused;
  fleet.add("i3", "team-2");
  const FakeExchange exchange = call("GET", "/sandboxes?metadata=a%3Db");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_THAT(ids(exchange), testing::ElementsAre("i1"));
  EXPECT_EQ(fleet.query.metadata.at("a"), "b");
}

TEST_F(ListTest, TheOldListHasAllPages) {
  fleet.add("i1");
  fleet.next_token = "second";
  EXPECT_EQ(ids(call("GET", "/sandboxes")).size(), 2U);  // the fake shows the same page again
  EXPECT_EQ(fleet.query.after, "second");
}

TEST_F(ListTest, TheNewListHasBothStatesAndTheirCount) {
  fleet.add("i1");
  fleet.add("i2").view_now.state = fleet::State::kPaused;
  fleet.next_token = "next";
  const FakeExchange exchange = call("GET", "/v2/sandboxes");
  EXPECT_THAT(ids(exchange), testing::ElementsAre("i1", "i2"));
  EXPECT_EQ(exchange.headers.get("X-Next-Token"), "next");
  EXPECT_EQ(exchange.headers.get("X-Total-Running"), "1");
  EXPECT_EQ(fleet.query.limit, 100U);
  EXPECT_FALSE(fleet.query.ascending);
}

TEST_F(ListTest, TheLastPageHasNoToken) {
  EXPECT_FALSE(call("GET", "/v2/sandboxes").headers.has("X-Next-Token"));
}

TEST_F(ListTest, EveryFilterIsPassedOn) {
  const FakeExchange exchange =
      call("GET",
           "/v2/sandboxes?state=paused&limit=7&order=asc&template=base&nextToken=abc"
           "&startedAfter=2026-01-02T03%3A04%3A05.678Z&metadata=a%3Db");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_FALSE(fleet.query.running);
  EXPECT_TRUE(fleet.query.paused);
  EXPECT_EQ(fleet.query.limit, 7U);
  EXPECT_TRUE(fleet.query.ascending);
  EXPECT_EQ(fleet.query.template_name, "base");
  EXPECT_EQ(fleet.query.after, "abc");
  EXPECT_EQ(fleet.query.started_after, FakeFleet::start());
  EXPECT_EQ(fleet.query.metadata.at("a"), "b");
}

TEST_F(ListTest, StatesMayBeAListOrRepeated) {
  for (const char* query : {"state=running,paused", "state=running&state=paused", "state="}) {
    EXPECT_EQ(call("GET", std::string("/v2/sandboxes?") + query).status, 200);
    EXPECT_TRUE(fleet.query.running && fleet.query.paused) << query;
  }
}

TEST_F(ListTest, BadParametersAreNamed) {
  for (const auto& [query, name] :
       {std::pair("state=dead", "state"), std::pair("limit=0", "limit"),
        std::pair("limit=101", "limit"), std::pair("limit=1x", "limit"),
        std::pair("order=up", "order"), std::pair("startedAfter=today", "startedAfter"),
        std::pair("metadata=%25", "metadata")}) {
    EXPECT_THAT(refusal(call("GET", std::string("/v2/sandboxes?") + query), 400),
                testing::StartsWith(name));
  }
}

TEST_F(ListTest, ABadTokenIsRefused) {
  fleet.failure = Error::invalid("nextToken: found \"x\"; allowed is one of an earlier page");
  EXPECT_THAT(refusal(call("GET", "/v2/sandboxes?nextToken=x"), 400), HasSubstr("nextToken"));
  fleet.failure = Error::invalid("broken");
  EXPECT_EQ(call("GET", "/sandboxes").status, 400);
}

}  // namespace
}  // namespace caisson::api
