#include "api/e2b/envd.h"

#include "api/e2b/data_plane_for_test.h"

namespace caisson::api::e2b {
namespace {

class Envd : public DataPlaneTest {};

constexpr const char* kNotAllowed =
    R"({"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"})";
constexpr const char* kNotFound =
    R"({"sandboxId":"abc","message":"The sandbox was not found","code":502})";

TEST_F(Envd, HealthNeedsNoToken) {
  const auto answer = ask("GET", "/health", {{"X-Access-Token", "wrong"}});
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(answer->headers.get("Access-Control-Allow-Origin"), "*");
}

TEST_F(Envd, EverythingElseNeedsTheToken) {
  for (const char* path : {"/envs", "/metrics", "/process.Process/List", "/nothing"}) {
    const auto answer = ask("POST", path, {{"X-Access-Token", "wrong"}});
    EXPECT_EQ(answer->status, 401) << path;
    EXPECT_EQ(answer->answer, kNotAllowed);
  }
}

TEST_F(Envd, ASandboxWithoutATokenAsksForNone) {
  sandbox_->view_now.access_token.clear();
  sandbox_->variables = {{"A", "b"}};
  const auto answer = ask("GET", "/envs", {{"X-Access-Token", "any"}});
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->answer, R"({"A":"b"})");
}

TEST_F(Envd, PreflightsAreAnsweredForWhateverIsAskedFor) {
  const auto answer = ask("OPTIONS", "/process.Process/Start",
                          {{"Access-Control-Request-Headers", "authorization, x-access-token"}});
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(answer->headers.get("Access-Control-Allow-Headers"), "authorization, x-access-token");
}

TEST_F(Envd, OneThatIsGoneOrEndedIsNotFound) {
  sandbox_->has_ended = true;
  const auto ended = ask("GET", "/health");
  EXPECT_EQ(ended->status, 502);
  EXPECT_EQ(ended->answer, kNotFound);
  fleet_.sandboxes.clear();
  EXPECT_EQ(ask("GET", "/health")->answer, kNotFound);
}

TEST_F(Envd, APausedOneIsResumedOnlyWhereItsMakerWantedSo) {
  sandbox_->view_now.state = fleet::State::kPaused;
  EXPECT_EQ(ask("GET", "/health")->answer, kNotFound);
  sandbox_->view_now.auto_resume = true;
  EXPECT_EQ(ask("GET", "/health")->status, 204);
  EXPECT_EQ(sandbox_->view_now.state, fleet::State::kRunning);
}

TEST_F(Envd, APausedOneIsResumedOnlyForWhoMayUseIt) {
  sandbox_->view_now.state = fleet::State::kPaused;
  sandbox_->view_now.auto_resume = true;
  sandbox_->view_now.public_traffic = false;
  sandbox_->view_now.traffic_token = "traffic";
  const http::Headers wrong = {{"X-Access-Token", "wrong"}};
  EXPECT_EQ(ask("GET", "/envs", wrong)->status, 401);
  EXPECT_EQ(ask("GET", "/files?path=a", wrong)->status, 401);
  EXPECT_EQ(ask("POST", "/files?path=a", wrong)->status, 401);
  EXPECT_EQ(ask("GET", "/", wrong, "", 8080)->status, 403);
  EXPECT_EQ(sandbox_->view_now.state, fleet::State::kPaused);
  EXPECT_EQ(ask("GET", "/envs")->status, 200);
  EXPECT_EQ(sandbox_->view_now.state, fleet::State::kRunning);
}

TEST_F(Envd, WhatIsNotThereIsSaidSo) {
  EXPECT_EQ(ask("GET", "/init")->status, 404);
  EXPECT_EQ(ask("POST", "/init")->status, 404);
  EXPECT_EQ(ask("POST", "/process.Process/Nothing")->status, 404);
  EXPECT_EQ(ask("GET", "/process.Process/List")->status, 405);
  EXPECT_EQ(ask("PUT", "/files")->status, 405);
}

TEST_F(Envd, OnlyItsEncodingsAreServed) {
  const auto unary = ask("POST", "/process.Process/List", {{"Content-Type", "text/plain"}});
  EXPECT_EQ(unary->status, 415);
  EXPECT_TRUE(unary->headers.has("Accept-Post"));
  // A stream is not a unary call.
  EXPECT_EQ(ask("POST", "/process.Process/Start", {{"Content-Type", "application/json"}})->status,
            415);
}

TEST_F(Envd, ABadTimeoutIsAnInvalidArgument) {
  const auto answer = call("/process.Process/List", "{}", {{"Connect-Timeout-Ms", "soon"}});
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(*answer->answer_json().find("code")->as_string(), "invalid_argument");
}

TEST_F(Envd, ABadMessageIsAnInvalidArgument) {
  const auto answer = call("/filesystem.Filesystem/Stat", R"({"path":7})");
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->answer, R"({"code":"invalid_argument","message":"path: a string is wanted"})");
}

TEST_F(Envd, CompressedMessagesAreNotServed) {
  const auto answer = call("/filesystem.Filesystem/Stat", "{}", {{"Content-Encoding", "gzip"}});
  EXPECT_EQ(answer->status, 501);
}

TEST_F(Envd, ASandboxThatCannotBeReachedIsUnavailable) {
  const auto answer = call("/process.Process/List", "{}");
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(ask("GET", "/metrics")->status, 502);
}

TEST_F(Envd, MetricsAreTheGuestsWithTheFleetsShareOfTheProcessors) {
  fleet_.samples_now = {{.time = {}, .cpu_used_percent = 12.5}};
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    event(at, open,
          proto::Fields()
              .put(Tag::kMetricName, "cpu_count")
              .put_u64(Tag::kMetricValue, 2)
              .put(Tag::kMetricName, "memory_total")
              .put_u64(Tag::kMetricValue, 1 << 20)
              .put(Tag::kMetricName, "memory_total")
              .put_u64(Tag::kMetricValue, 4 << 20));
    close(at, open);
  });
  const json::Value metrics = ask("GET", "/metrics")->answer_json();
  EXPECT_EQ(*metrics.find("cpu_count")->as_integer(), 2);
  EXPECT_EQ(*metrics.find("cpu_used_pct")->as_double(), 12.5);
  EXPECT_EQ(*metrics.find("mem_total_mib")->as_integer(), 4);
  EXPECT_EQ(*metrics.find("disk_used")->as_integer(), 0);
}

}  // namespace
}  // namespace caisson::api::e2b
