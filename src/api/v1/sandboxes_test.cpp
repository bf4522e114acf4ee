#include "api/v1/scene_for_test.h"

namespace caisson::api::v1 {
namespace {

using testing::HasSubstr;

using V1Sandboxes = Scene;

TEST_F(V1Sandboxes, OneIsMadeOfASpec) {
  const FakeExchange exchange = call("POST", "/v1/sandboxes", R"({
      "spec":{"image":"base","env":{"A":"b"},"limits":{"timeout":"1m","memory":"64MiB"}},
      "on_timeout":"pause","auto_resume":true,"metadata":{"c":"d"}})");
  EXPECT_EQ(exchange.status, 201) << exchange.answer;
  EXPECT_EQ(exchange.headers.get("Location"), "/v1/sandboxes/i1");
  EXPECT_EQ(exchange.answer,
            R"({"id":"i1","image":"base","state":"running",)"
            R"("started":"2026-01-02T03:04:05.678000Z","ends":"2026-01-02T03:05:05.678000Z",)"
            R"("cpus":1,"memory_mib":512,"disk_mib":1024,"metadata":{"c":"d"},)"
            R"("on_timeout":"pause","auto_resume":true})");
  EXPECT_EQ(fleet.wanted.env.at("A"), "b");
  EXPECT_THAT(fleet.wanted.spec, HasSubstr(R"("memory":"64MiB")"));
}

TEST_F(V1Sandboxes, OneWhoseClientHasGoneIsEnded) {
  for (const char* target : {"/v1/sandboxes", "/sandboxes"}) {
    FakeExchange exchange(
        "POST", target, {{"X-API-KEY", "e2b_01"}},
        target[1] == 'v' ? R"({"spec":{"image":"base"}})" : R"({"templateID":"base"})");
    exchange.gone_at = 0;
    handle(exchange);
    EXPECT_EQ(exchange.status, 503) << target;
    EXPECT_TRUE(fleet.sandboxes.empty()) << target;
  }
}

TEST_F(V1Sandboxes, WithoutABodyItIsTheUsualOne) {
  fleet.templates.emplace_back("");
  EXPECT_EQ(call("POST", "/v1/sandboxes").status, 201);
  EXPECT_FALSE(fleet.wanted.timeout.has_value());
  EXPECT_EQ(fleet.wanted.spec, "");
}

TEST_F(V1Sandboxes, AMistakeInABodyIsNamed) {
  for (const auto& [body, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"template":"base"})", "template: found an unknown key"},
           {R"({"spec":[]})", "spec: found an array"},
           {R"({"spec":{"imagee":"base"}})", "spec: imagee"},
           {R"({"spec":{"limits":{"memory":"x"}}})", "spec: limits.memory"},
           {R"({"spec":{"limits":{"timeout":"unlimited"}}})",
            "spec.limits.timeout: found unlimited"},
           {R"({"spec":{"env":{"A=":"b"}}})", "spec.env: found the name \"A=\""},
           {R"({"on_timeout":"stop"})", "on_timeout: found \"stop\""},
           {R"({"auto_resume":1})", "auto_resume: found 1"},
           {R"({"metadata":[]})", "metadata: found an array"}}) {
    EXPECT_THAT(refusal(call("POST", "/v1/sandboxes", body), 400), HasSubstr(message));
  }
}

TEST_F(V1Sandboxes, WhyNoneIsMadeIsSaid) {
  EXPECT_THAT(refusal(call("POST", "/v1/sandboxes", R"({"spec":{"image":"none"}})"), 404),
              HasSubstr("none"));
  fleet.failure = Error::exhausted("you have as many as you may have");
  refusal(call("POST", "/v1/sandboxes", R"({"spec":{"image":"base"}})"), 429);
  fleet.failure = Error::unavailable("it ended before it was used");
  refusal(call("POST", "/v1/sandboxes", R"({"spec":{"image":"base"}})"), 503);
}

TEST_F(V1Sandboxes, AListHasPages) {
  fleet.add("i1");
  fleet.next_token = "more";
  const FakeExchange exchange = call("GET", "/v1/sandboxes?limit=1&state=running&after=x");
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  EXPECT_EQ(body.find("sandboxes")->as_array()->size(), 1U);
  EXPECT_EQ(*body.find("next"), json::Value("more"));
  EXPECT_EQ(fleet.query.limit, 1U);
  EXPECT_EQ(fleet.query.after, "x");
  EXPECT_FALSE(fleet.query.paused);
  EXPECT_EQ(call("GET", "/v1/sandboxes").answer_json().find("next"), nullptr);
}

TEST_F(V1Sandboxes, ABadListIsRefused) {
  EXPECT_EQ(call("GET", "/v1/sandboxes?limit=0").status, 400);
  EXPECT_EQ(call("GET", "/v1/sandboxes?limit=x").status, 400);
  EXPECT_EQ(call("GET", "/v1/sandboxes?state=dead").status, 400);
}

TEST_F(V1Sandboxes, OneIsShownAndEnded) {
  fleet.add("i1");
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1").status, 200);
  EXPECT_EQ(call("DELETE", "/v1/sandboxes/i1").status, 204);
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1").status, 404);
  EXPECT_EQ(call("DELETE", "/v1/sandboxes/i1").status, 404);
}

TEST_F(V1Sandboxes, AnotherTeamsIsNotThere) {
  fleet.add("i1", "team-2");
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1").status, 404);
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1/usage").status, 404);
}

TEST_F(V1Sandboxes, ItsDeadlineIsSet) {
  sandbox();
  EXPECT_EQ(call("PUT", "/v1/sandboxes/i1/deadline", R"({"seconds":60})").status, 200);
  EXPECT_EQ(fleet.timeout, std::chrono::seconds(60));
  EXPECT_EQ(fleet.timeout_how, fleet::Fleet::Timeout::kSet);
  for (const char* body : {"{}", R"({"seconds":0})", R"({"seconds":1,"x":1})"})
    refusal(call("PUT", "/v1/sandboxes/i1/deadline", body), 400);
}

TEST_F(V1Sandboxes, ItsNetworkIsChanged) {
  sandbox();
  EXPECT_EQ(call("PUT", "/v1/sandboxes/i1/network",
                 R"({"network":{"rules":[{"hosts":["api.example.com"]}]}})")
                .status,
            200);
  ASSERT_EQ(fleet.network_now.rules.size(), 1u);
  EXPECT_EQ(fleet.network_now.rules[0].hosts[0], "api.example.com");
  EXPECT_EQ(call("PUT", "/v1/sandboxes/i1/network", R"({"network":"deny"})").status, 200);
  EXPECT_TRUE(fleet.network_now.rules.empty());
  for (const char* body :
       {"{}", R"({"network":7})", R"({"network":{"rules":[{}]}})", R"({"network":"deny","x":1})"})
    refusal(call("PUT", "/v1/sandboxes/i1/network", body), 400);
  fleet.failure = Error::precondition("the sandbox was made without a network");
  refusal(call("PUT", "/v1/sandboxes/i1/network", R"({"network":"deny"})"), 409);
}

TEST_F(V1Sandboxes, OneIsPausedAndResumed) {
  sandbox();
  const FakeExchange paused = call("POST", "/v1/sandboxes/i1/pause");
  EXPECT_EQ(paused.status, 200);
  EXPECT_EQ(*paused.answer_json().find("state"), json::Value("paused"));
  EXPECT_EQ(call("POST", "/v1/sandboxes/i1/pause").status, 200) << "it is so already";
  refusal(call("POST", "/v1/sandboxes/i1/resume", R"({"seconds":0})"), 400);
  const FakeExchange resumed = call("POST", "/v1/sandboxes/i1/resume", R"({"seconds":5})");
  EXPECT_EQ(*resumed.answer_json().find("state"), json::Value("running"));
  EXPECT_EQ(fleet.timeout, std::chrono::seconds(5));
  EXPECT_EQ(call("POST", "/v1/sandboxes/i1/resume").status, 200) << "it is so already";
}

TEST_F(V1Sandboxes, WhatCannotBePausedOrResumedSaysWhy) {
  sandbox();
  fleet.failure = Error::precondition("this host cannot hold it");
  EXPECT_THAT(refusal(call("POST", "/v1/sandboxes/i1/pause"), 409), HasSubstr("host"));
  sandbox().view_now.state = fleet::State::kPaused;
  fleet.failure = Error::exhausted("you have as many as you may have");
  refusal(call("POST", "/v1/sandboxes/i1/resume"), 429);
  fleet.failure = Error::precondition("it is being ended");
  refusal(call("POST", "/v1/sandboxes/i1/resume"), 409);
}

}  // namespace
}  // namespace caisson::api::v1
