#include "api/e2b/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"
#include "egress/gateway/keys.h"
#include "egress/secrets/sealed.h"

namespace caisson::api::e2b {
namespace {

using testing::HasSubstr;
using testing::Not;

class SecretsTest : public testing::Test, public ServiceFixture {
 protected:
  // The last value, as a gateway would have it.
  std::string opened() const {
    const vault::Engine engine("key");
    policy::SecretRule rule;
    rule.name = "a";
    rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = "a"};
    rule.hosts = {"a.example.com"};
    policy::NetworkPolicy policy;
    policy.secrets = {rule};
    const std::vector<vault::GivenSecret> given = {
        {.name = "a", .kept_id = secrets.id, .kept = secrets.value}};
    const auto sealed = engine.seal(policy, given, "");
    const auto keys = engine.make_keys();
    const auto text = engine.text_for(keys->number, "{}", sealed->text);
    const auto read = egress::read_keys(keys->file->get());
    const auto entries = egress::unseal(read->sealing.bytes(), egress::split_policy(*text).sealed);
    return std::string(entries->at(0).value->bytes());
  }
};

TEST_F(SecretsTest, IsKeptAndToldWithoutItsValue) {
  const FakeExchange made = call(
      "POST", "/secrets", R"({"name":"openai","value":"the value 1","metadata":{"owner":"me"}})");
  EXPECT_EQ(made.status, 201);
  EXPECT_THAT(made.answer, Not(HasSubstr("the value")));
  EXPECT_EQ(opened(), "the value 1");
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
  EXPECT_EQ(opened(), "the value 2");
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

TEST_F(SecretsTest, ABodyIsNotReadHere) {
  // What no JSON is, and what is too long, the vault says.
  EXPECT_THAT(refusal(call("POST", "/secrets", R"({"name":"a","value":"the value")"), 400),
              HasSubstr("byte 32 of the JSON body is wrong"));
  const std::string blanks(vault::kMostSecretBody, ' ');
  EXPECT_THAT(
      refusal(call("POST", "/secrets", R"({"name":"a","value":"the value"})" + blanks), 413),
      HasSubstr("the body is too long; allowed are 131072 bytes"));
}

TEST_F(SecretsTest, AValueMustBeThere) {
  EXPECT_THAT(refusal(call("POST", "/secrets", R"({"name":"a"})"), 400),
              HasSubstr("value: found nothing"));
  EXPECT_THAT(refusal(call("POST", "/secrets", R"({"name":"a","value":7})"), 400),
              HasSubstr("value"));
  EXPECT_THAT(
      refusal(call("POST", "/secrets", R"({"name":"a","value":"the value","metadata":{"a":1}})"),
              400),
      HasSubstr("metadata"));
}

}  // namespace
}  // namespace caisson::api::e2b
