#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using testing::HasSubstr;

constexpr const char* kBuild = "/v2/templates/t1/builds/b1";
constexpr const char* kStatus = "/templates/t1/builds/b1/status";
const std::string kHash(64, 'a');

class TemplateBuildsTest : public testing::Test, public ServiceFixture {
 protected:
  FakeExchange put(const std::string& query, std::string body) {
    FakeExchange exchange("PUT", "/templates/t1/files/" + kHash + query, {}, std::move(body));
    handle(exchange);
    return exchange;
  }
};

TEST_F(TemplateBuildsTest, AnOrderIsReadAsAWhole) {
  const FakeExchange exchange = call(
      "POST", kBuild,
      R"({"fromImage":"registry.example.com/a:1","force":true,"startCmd":"serve","readyCmd":"check",)"
      R"("fromImageRegistry":{"type":"registry","username":"u","password":"p"},)"
      R"("steps":[{"type":"RUN","args":["make"],"force":true}]})");
  EXPECT_EQ(exchange.status, 202) << exchange.answer;
  EXPECT_EQ(templates.named, "t1/b1");
  const BuildOrder& order = templates.order;
  EXPECT_EQ(order.from_image, "registry.example.com/a:1");
  EXPECT_TRUE(order.force);
  EXPECT_EQ(order.start_command, "serve");
  EXPECT_EQ(order.ready_command, "check");
  EXPECT_EQ(order.login->user, "u");
  EXPECT_EQ(order.login->secret, "p");
  ASSERT_EQ(order.steps.size(), 1u);
  EXPECT_EQ(order.steps[0].type, "RUN");
  EXPECT_TRUE(order.steps[0].force);
}

TEST_F(TemplateBuildsTest, AnOrderThatCannotBeIsRefused) {
  for (const auto& [body, status, words] :
       std::initializer_list<std::tuple<const char*, int, const char*>>{
           {"{}", 400, "neither it nor fromTemplate"},
           {R"({"fromImage":"a","fromTemplate":"b"})", 400, "one of them"},
           {R"({"fromImage":"a","steps":{}})", 400, "steps"},
           {R"({"fromImage":"a","steps":[{"type":1}]})", 400, "steps[0]"},
           {R"({"fromImage":"a","startCmd":1})", 400, "startCmd"},
           {R"({"fromImage":"a","force":"x"})", 400, "force"},
           {R"({"fromImage":"a","fromImageRegistry":{"type":"gcp"}})", 501, "fromImageRegistry"},
           {R"({"fromImage":"a","fromImageRegistry":{"type":"x"}})", 400, "\"registry\""},
           {R"({"fromImage":"a","fromImageRegistry":{"type":"registry","username":"a"}})", 400,
            "fromImageRegistry.password"}}) {
    EXPECT_THAT(refusal(call("POST", kBuild, body), status), HasSubstr(words)) << body;
  }
  templates.failure = Error::precondition("it is being built");
  EXPECT_EQ(call("POST", kBuild, R"({"fromImage":"a"})").status, 409);
}

TEST_F(TemplateBuildsTest, TooManyStepsAreAMistakeOfTheClient) {
  std::string body = R"({"fromImage":"a","steps":[{"type":"RUN","args":["x"]})";
  for (std::size_t at = 0; at < build::kMaxTemplateSteps; ++at)
    body += R"(,{"type":"RUN","args":["x"]})";
  EXPECT_THAT(refusal(call("POST", kBuild, body + "]}"), 400), HasSubstr("1001"));
}

TEST_F(TemplateBuildsTest, ItsStatusHasAPartOfTheLog) {
  db::Build& build = templates.progress_now.build;
  build.id = "b1";
  build.template_id = "t1";
  build.status = db::BuildStatus::kBuilding;
  templates.progress_now.entries = {
      {.time_ms = 1, .level = db::LogLevel::kWarn, .step = "1", .message = "hm"}};
  const FakeExchange exchange =
      call("GET", std::string(kStatus) + "?logsOffset=7&limit=9&level=info");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer,
            R"({"templateID":"t1","buildID":"b1","status":"building","logs":["hm"],)"
            R"("logEntries":[{"timestamp":"1970-01-01T00:00:00.001000Z","level":"warn",)"
            R"("message":"hm","step":"1"}]})");
  EXPECT_EQ(templates.log_query.offset, 7u);
  EXPECT_EQ(templates.log_query.limit, 9u);
  EXPECT_EQ(templates.log_query.least, db::LogLevel::kInfo);
}

TEST_F(TemplateBuildsTest, AFailureHasItsReason) {
  db::Build& build = templates.progress_now.build;
  build.status = db::BuildStatus::kError;
  build.failure = "exit status 2";
  build.failure_step = "3";
  const json::Value body = call("GET", kStatus).answer_json();
  ASSERT_NE(body.find("reason"), nullptr);
  EXPECT_EQ(json::serialize(*body.find("reason")),
            R"({"message":"exit status 2","step":"3","logEntries":[]})");
}

TEST_F(TemplateBuildsTest, WhatCannotBeAskedForIsRefused) {
  for (const char* query : {"?logsOffset=-1", "?limit=101", "?limit=x", "?level=loud"})
    EXPECT_EQ(call("GET", std::string(kStatus) + query).status, 400) << query;
  const std::string logs = "/templates/t1/builds/b1/logs";
  for (const char* query : {"?cursor=-1", "?direction=up", "?limit=101", "?level=loud"})
    EXPECT_EQ(call("GET", logs + query).status, 400) << query;
}

TEST_F(TemplateBuildsTest, ItsLogIsReadBackwardsToo) {
  templates.progress_now.entries = {
      {.time_ms = 1, .level = db::LogLevel::kDebug, .step = "", .message = "a"}};
  const FakeExchange exchange =
      call("GET", "/templates/t1/builds/b1/logs?cursor=5&direction=backward&limit=3");
  EXPECT_EQ(
      exchange.answer,
      R"({"logs":[{"timestamp":"1970-01-01T00:00:00.001000Z","level":"debug","message":"a"}]})");
  EXPECT_EQ(templates.log_window.time_ms, 5);
  EXPECT_EQ(templates.log_window.limit, 3u);
  EXPECT_EQ(templates.log_window.direction, db::LogWindow::Direction::kBackward);
}

TEST_F(TemplateBuildsTest, FilesAreSentToAPlaceOfTheirOwn) {
  const FakeExchange exchange = call("GET", "/templates/t1/files/" + kHash);
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.answer,
            R"({"present":false,"url":"http://api.example.com/templates/t1/files/)" + kHash +
                R"(?expires=4102444800&token=token"})");
  FakeExchange proxied("GET", "/templates/t1/files/" + kHash,
                       {{"X-API-KEY", "e2b_01"}, {"X-Forwarded-Proto", "https"}});
  handle(proxied);
  EXPECT_THAT(proxied.answer, HasSubstr("\"https://api.example.com/"));
  // The URL is the right to it: no key goes along.
  EXPECT_EQ(put("?expires=4102444800&token=token", "bytes").status, 200);
  EXPECT_EQ(templates.uploaded, "bytes");
  EXPECT_EQ(templates.named, "t1/" + kHash);
}

TEST_F(TemplateBuildsTest, FilesThatAreNotToBeAreNotKept) {
  EXPECT_EQ(put("?expires=4102444800&token=other", "bytes").status, 403);
  EXPECT_EQ(put("", "bytes").status, 403);
  EXPECT_EQ(put("?expires=soon&token=token", "bytes").status, 400);
  EXPECT_EQ(put("?expires=4102444800&token=token", std::string(1001, 'x')).status, 413);
  FakeExchange broken("PUT", "/templates/t1/files/" + kHash + "?expires=4102444800&token=token", {},
                      "bytes");
  broken.read_error = Error::unavailable("the client has gone");
  handle(broken);
  EXPECT_EQ(templates.uploaded, "");
}

}  // namespace
}  // namespace caisson::api
