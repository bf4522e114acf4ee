#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TemplateTagsTest : public testing::Test, public ServiceFixture {};

TEST_F(TemplateTagsTest, AreGivenToABuild) {
  const FakeExchange exchange =
      call("POST", "/templates/tags", R"({"target":"tools:v1","tags":["stable","latest"]})");
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.answer, R"({"buildID":"b1","tags":["stable","latest"]})");
  EXPECT_EQ(templates.named, "tools:v1");
  EXPECT_THAT(templates.tags_given, ElementsAre("stable", "latest"));
}

TEST_F(TemplateTagsTest, AreRemoved) {
  EXPECT_EQ(call("DELETE", "/templates/tags", R"({"name":"tools","tags":["a"]})").status, 204);
  EXPECT_EQ(templates.named, "tools");
  EXPECT_THAT(templates.tags_given, ElementsAre("a"));
}

TEST_F(TemplateTagsTest, AreListed) {
  templates.tags_now = {{.tag = "a", .build_id = "b1", .set_ms = 1}};
  const FakeExchange exchange = call("GET", "/templates/t1/tags");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer,
            R"([{"tag":"a","buildID":"b1","createdAt":"1970-01-01T00:00:00.001000Z"}])");
}

TEST_F(TemplateTagsTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(refusal(call("POST", "/templates/tags", R"({"tags":["a"]})"), 400),
              HasSubstr("target"));
  EXPECT_THAT(refusal(call("POST", "/templates/tags", R"({"target":"t"})"), 400),
              HasSubstr("tags"));
  EXPECT_THAT(refusal(call("DELETE", "/templates/tags", R"({"tags":["a"]})"), 400),
              HasSubstr("name"));
  EXPECT_THAT(refusal(call("DELETE", "/templates/tags", R"({"name":"a","tags":[]})"), 400),
              HasSubstr("tags"));
}

TEST_F(TemplateTagsTest, FailuresAreToldAsTheyAre) {
  templates.failure = Error::not_found("no template");
  EXPECT_EQ(call("POST", "/templates/tags", R"({"target":"t","tags":["a"]})").status, 404);
  EXPECT_EQ(call("DELETE", "/templates/tags", R"({"name":"t","tags":["a"]})").status, 404);
  EXPECT_EQ(call("GET", "/templates/t/tags").status, 404);
}

}  // namespace
}  // namespace caisson::api
