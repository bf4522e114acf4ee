#include "api/e2b/snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using testing::HasSubstr;

class SnapshotsTest : public testing::Test, public ServiceFixture {
 protected:
  SnapshotsTest() { fleet.add("i1"); }
};

TEST_F(SnapshotsTest, ASnapshotHasAnIdAndPerhapsAName) {
  FakeExchange exchange = call("POST", "/sandboxes/i1/snapshots");
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.answer, R"({"snapshotID":"s1","names":[]})");
  EXPECT_EQ(snapshots.kept.at(0).image, "sha256:of-i1");
  EXPECT_EQ(snapshots.kept.at(0).sandbox, "i1");
  exchange = call("POST", "/sandboxes/i1-client/snapshots", R"({"name":"mine"})");
  EXPECT_EQ(exchange.answer, R"({"snapshotID":"slug/mine:default","names":["slug/mine"]})");
  EXPECT_EQ(snapshots.kept.at(1).sandbox, "i1");
}

TEST_F(SnapshotsTest, WhatCannotBeTakenIsAnError) {
  EXPECT_NE(refusal(call("POST", "/sandboxes/i2/snapshots"), 404), "");
  EXPECT_THAT(refusal(call("POST", "/sandboxes/i1/snapshots", R"({"name":1})"), 400),
              HasSubstr("name: found"));
  fleet.failure = Error::precondition("sandbox i1 is paused");
  EXPECT_NE(refusal(call("POST", "/sandboxes/i1/snapshots"), 409), "");
  snapshots.failure = Error(Code::kAlreadyExists, "there is a template \"mine\"");
  EXPECT_NE(refusal(call("POST", "/sandboxes/i1/snapshots", R"({"name":"mine"})"), 409), "");
}

TEST_F(SnapshotsTest, WhatCannotBeKeptIsNotTaken) {
  // What taking it would fail with.
  fleet.failure = Error::precondition("sandbox i1 is paused");
  snapshots.refusal = Error::exhausted("the team has 1 snapshots; allowed are 1");
  EXPECT_THAT(refusal(call("POST", "/sandboxes/i1/snapshots"), 429), HasSubstr("allowed are 1"));
  EXPECT_TRUE(fleet.failure.has_value());
}

TEST_F(SnapshotsTest, AreListedInPagesAndByWhatIsAsked) {
  call("POST", "/sandboxes/i1/snapshots");
  snapshots.next_token = "more";
  FakeExchange exchange = call("GET", "/snapshots?limit=1&sandboxID=i1-client&nextToken=t");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer, R"([{"snapshotID":"s1","names":[]}])");
  EXPECT_EQ(exchange.headers.get("X-Next-Token"), "more");
  EXPECT_EQ(snapshots.query.sandbox, "i1");
  EXPECT_EQ(snapshots.query.limit, 1u);
  EXPECT_EQ(snapshots.query.after, "t");
  EXPECT_EQ(snapshots.query.name, std::nullopt);
  exchange = call("GET", "/snapshots?name=mine");
  EXPECT_EQ(snapshots.query.name, "mine");
  EXPECT_FALSE(exchange.headers.get("X-Next-Token").has_value());
  for (const char* limit : {"0", "101", "x", ""})
    EXPECT_NE(refusal(call("GET", std::string("/snapshots?limit=") + limit), 400), "") << limit;
  snapshots.failure = Error::invalid("nextToken: found \"x\"");
  EXPECT_NE(refusal(call("GET", "/snapshots?nextToken=x"), 400), "");
}

TEST_F(SnapshotsTest, AreRemovedOnce) {
  call("POST", "/sandboxes/i1/snapshots", R"({"name":"mine"})");
  EXPECT_EQ(call("DELETE", "/templates/slug%2Fmine%3Adefault").status, 204);
  EXPECT_NE(refusal(call("DELETE", "/templates/slug%2Fmine%3Adefault"), 404), "");
}

TEST_F(SnapshotsTest, ForksAreSandboxesOfTheirOwn) {
  FakeExchange exchange = call("POST", "/sandboxes/i1/fork", R"({"count":2,"timeout":60})");
  EXPECT_EQ(exchange.status, 201);
  const json::Value body = exchange.answer_json();
  ASSERT_EQ(body.as_array()->size(), 2u);
  for (const json::Value& one : *body.as_array()) {
    ASSERT_NE(one.find("sandbox"), nullptr) << exchange.answer;
    EXPECT_NE(one.find("sandbox")->find("sandboxID"), nullptr);
  }
  EXPECT_EQ(fleet.timeout, std::chrono::seconds(60));
  exchange = call("POST", "/sandboxes/i1/fork");
  EXPECT_EQ(exchange.answer_json().as_array()->size(), 1u);
  EXPECT_EQ(fleet.timeout, std::chrono::seconds(300));
}

TEST_F(SnapshotsTest, AForkThatFailsIsOneOfTheList) {
  fleet.fork_failure = Error::exhausted("as many as your team may have");
  const FakeExchange exchange = call("POST", "/sandboxes/i1/fork", R"({"count":2})");
  EXPECT_EQ(exchange.status, 201);
  const json::Value body = exchange.answer_json();
  const json::Value* error = body.as_array()->at(1).find("error");
  ASSERT_NE(error, nullptr) << exchange.answer;
  EXPECT_EQ(*error->find("code"), json::Value(429));
}

TEST_F(SnapshotsTest, ForksThatCannotBeAreErrors) {
  EXPECT_NE(refusal(call("POST", "/sandboxes/i2/fork"), 404), "");
  for (const char* body : {R"({"count":0})", R"({"count":101})", R"({"timeout":0})"})
    EXPECT_NE(refusal(call("POST", "/sandboxes/i1/fork", body), 400), "") << body;
  fleet.failure = Error::precondition("sandbox i1 is paused");
  EXPECT_NE(refusal(call("POST", "/sandboxes/i1/fork"), 409), "");
}

}  // namespace
}  // namespace caisson::api
