#include "api/e2b/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api::e2b {
namespace {

using testing::HasSubstr;
using testing::Not;

class SecretsTest : public testing::Test, public ServiceFixture {};

TEST_F(SecretsTest, IsKeptAndToldWithoutItsValue) {
  const FakeExchange made = call(
      "POST", "/secrets", R"({"name":"openai","value":"the value 1","metadata":{"owner":"me"}})");
  EXPECT_EQ(made.status, 201);
  EXPECT_THAT(made.answer, Not(HasSubstr("the value")));
  EXPECT_EQ(secrets.value, "the value 1");
  EXPECT_EQ(made.answer, R"({"secretID":"sec_openai","name":"openai","currentVersion":1,)"
                         R"("metadata":{"owner":"me"},"createdAt":"1970-01-01T00:00:00.000000Z",)"
                         R"("updatedAt":"1970-01-01T00:00:00.000000Z"})");
  EXPECT_EQ(call("GET", "/secrets/openai").answer, made.answer);
  EXPECT_EQ(call("POST", "/secrets", R"({"name":"openai","value":"the value 1"})").status, 409);
}

TEST_F(SecretsTest, AnUpdateIsAnotherVersion) {
  std::ignore =
      call("POST", "/secrets", R"({"name":"a","value":"the value 1","metadata":{"k":"v"}})");
  const FakeExchange next = call("POST", "/secrets/a", R"({"value":"the value 2"})");
  EXPECT_EQ(next.status, 200);
  EXPECT_EQ(secrets.value, "the value 2");
  EXPECT_EQ(*next.answer_json().find("currentVersion"), json::Value(2));
  EXPECT_THAT(next.answer, HasSubstr(R"("metadata":{"k":"v"})"));
  EXPECT_THAT(call("POST", "/secrets/a", R"({"value":"the value 3","metadata":{}})").answer,
              HasSubstr(R"("metadata":{})"));
  EXPECT_EQ(call("POST", "/secrets/b", R"({"value":"the value 2"})").status, 404);
}

TEST_F(SecretsTest, AreListedInPages) {
  for (const char* name : {"a", "b"})
    std::ignore =
        call("POST", "/secrets", R"({"name":")" + std::string(name) + R"(","value":"the value"})");
  secrets.next_token = "token";
  const FakeExchange page = call("GET", "/secrets?limit=7");
  EXPECT_EQ(page.answer_json().as_array()->size(), 2u);
  EXPECT_EQ(page.headers.get("X-Next-Token"), "token");
  EXPECT_EQ(secrets.limit, 7u);
  EXPECT_FALSE(call("GET", "/secrets").headers.has("X-Next-Token"));
  EXPECT_EQ(secrets.limit, 100u);
  for (const char* limit : {"0", "1001", "x"})
    EXPECT_THAT(refusal(call("GET", "/secrets?limit=" + std::string(limit)), 400),
                HasSubstr("limit"));
}

TEST_F(SecretsTest, WhatIsRemovedIsGone) {
  std::ignore = call("POST", "/secrets", R"({"name":"a","value":"the value 1"})");
  EXPECT_EQ(call("DELETE", "/secrets/a").status, 204);
  EXPECT_EQ(call("DELETE", "/secrets/a").status, 404);
  EXPECT_EQ(call("GET", "/secrets/a").status, 404);
}

TEST_F(SecretsTest, AValueMustBeThere) {
  EXPECT_THAT(refusal(call("POST", "/secrets", R"({"name":"a"})"), 400),
              HasSubstr("value: found nothing"));
  EXPECT_THAT(refusal(call("POST", "/secrets", R"({"name":"a","value":7})"), 400),
              HasSubstr("value"));
  EXPECT_THAT(
      refusal(call("POST", "/secrets", R"({"name":"a","value":"x","metadata":{"a":1}})"), 400),
      HasSubstr("metadata"));
}

}  // namespace
}  // namespace caisson::api::e2b
