#include "api/e2b/sandboxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/body.h"
#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class SandboxesTest : public testing::Test, public ServiceFixture {};

json::Value parsed(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.value_or(json::Value());
}

TEST_F(SandboxesTest, TheOldDialectIsOpenAndShortLived) {
  const FakeExchange exchange = call("POST", "/sandboxes", R"({"templateID":"base"})");
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.answer_json(),
            parsed(R"({"sandboxID":"i1","templateID":"base","alias":"base","clientID":"caisson",
                       "envdVersion":"0.6.13","domain":"example.com"})"));
  EXPECT_EQ(fleet.wanted.timeout, seconds(15));
  EXPECT_FALSE(fleet.wanted.secure);
}

TEST_F(SandboxesTest, TheNewDialectIsSecureAndLivesLonger) {
  const FakeExchange exchange = call("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(*exchange.answer_json().find("envdAccessToken"), json::Value("token-of-i1"));
  EXPECT_EQ(fleet.wanted.timeout, std::nullopt);  // the server's usual one
}

TEST_F(SandboxesTest, EverythingThatIsAskedForIsPassedOn) {
  const FakeExchange exchange = call("POST", "/sandboxes", R"({
      "templateID":"base","timeout":60,"secure":true,"autoPause":true,
      "autoResume":{"enabled":true},"metadata":{"a":"b c"},"envVars":{"X":"1"},
      "allow_internet_access":false,
      "network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}",
                 "denyOut":["0.0.0.0/0"]}})");
  ASSERT_EQ(exchange.status, 201) << exchange.answer;
  EXPECT_EQ(*exchange.answer_json().find("trafficAccessToken"), json::Value("traffic-of-i1"));
  EXPECT_EQ(fleet.wanted.timeout, seconds(60));
  EXPECT_EQ(fleet.wanted.on_timeout, fleet::NewSandbox::OnTimeout::kPause);
  EXPECT_EQ(fleet.wanted.on_timeout_keeps, fleet::Keep::kMemory);
  EXPECT_TRUE(fleet.wanted.auto_resume);
  EXPECT_EQ(fleet.wanted.metadata.at("a"), "b c");
  EXPECT_EQ(fleet.wanted.env.at("X"), "1");
  EXPECT_FALSE(fleet.wanted.public_traffic);
  EXPECT_EQ(fleet.wanted.mask_request_host, "localhost:${PORT}");
}

TEST_F(SandboxesTest, AnUnknownTemplateIsNotFound) {
  EXPECT_THAT(refusal(call("POST", "/sandboxes", R"({"templateID":"nope"})"), 404),
              HasSubstr("nope"));
}

TEST_F(SandboxesTest, AQuotaIsTooManyRequests) {
  fleet.failure = Error::exhausted("the team has 3 sandboxes; allowed are 3");
  EXPECT_EQ(refusal(call("POST", "/sandboxes", R"({"templateID":"base"})"), 429),
            "the team has 3 sandboxes; allowed are 3");
}

TEST_F(SandboxesTest, ABadBodyMakesNothing) {
  EXPECT_THAT(refusal(call("POST", "/v2/sandboxes", "{"), 400), HasSubstr("the body"));
  EXPECT_THAT(refusal(call("POST", "/v2/sandboxes", ""), 400), HasSubstr("the body is empty"));
  EXPECT_THAT(refusal(call("POST", "/v2/sandboxes", std::string(kMostBody + 1, ' ')), 413),
              HasSubstr("allowed are"));
  EXPECT_TRUE(fleet.sandboxes.empty());
}

TEST_F(SandboxesTest, OneIsShownWhole) {
  fleet.add("i1").view_now.metadata = {{"a", "b"}};
  const FakeExchange exchange = call("GET", "/sandboxes/i1");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer_json(),
            parsed(R"({"sandboxID":"i1","templateID":"base","alias":"base","clientID":"caisson",
                       "envdVersion":"0.6.13","startedAt":"2026-01-02T03:04:05.678000Z",
                       "endAt":"2026-01-02T03:09:05.678000Z","state":"running","cpuCount":1,
                       "memoryMB":512,"diskSizeMB":1024,"metadata":{"a":"b"},
                       "envdAccessToken":"token-of-i1","domain":"example.com",
                       "network":{"allowPublicTraffic":true},
                       "lifecycle":{"autoResume":false,"onTimeout":"kill"}})"));
}

TEST_F(SandboxesTest, AnIdMayHaveItsClientBehindIt) {
  fleet.add("i1");
  EXPECT_EQ(call("GET", "/sandboxes/i1-6532622b").status, 200);
}

TEST_F(SandboxesTest, OneThatHasEndedIsNotShown) {
  fleet.add("i1").has_ended = true;
  EXPECT_EQ(call("GET", "/sandboxes/i1").status, 404);
}

TEST_F(SandboxesTest, KillEndsIt) {
  fleet.add("i1");
  EXPECT_EQ(call("DELETE", "/sandboxes/i1").status, 204);
  EXPECT_EQ(call("DELETE", "/sandboxes/i1").status, 404);
  EXPECT_TRUE(fleet.sandboxes.empty());
}

TEST_F(SandboxesTest, ATimeoutIsSet) {
  fleet.add("i1");
  EXPECT_EQ(call("POST", "/sandboxes/i1/timeout", R"({"timeout":20})").status, 204);
  EXPECT_EQ(fleet.timeout, seconds(20));
  EXPECT_EQ(fleet.timeout_how, fleet::Fleet::Timeout::kSet);
}

TEST_F(SandboxesTest, ATimeoutOfNothingOrLessIsAtOnce) {
  fleet.add("i1");
  EXPECT_EQ(call("POST", "/sandboxes/i1/timeout", R"({"timeout":-5})").status, 204);
  EXPECT_EQ(fleet.timeout, seconds(0));
}

TEST_F(SandboxesTest, ATimeoutMustBeANumber) {
  fleet.add("i1");
  EXPECT_EQ(refusal(call("POST", "/sandboxes/i1/timeout", "{}"), 400),
            "timeout: found nothing; allowed is a number of seconds");
  EXPECT_THAT(refusal(call("POST", "/sandboxes/i1/timeout", R"({"timeout":"5"})"), 400),
              HasSubstr("timeout: found \"5\""));
}

TEST_F(SandboxesTest, ATimeoutOfAPausedOneIsAConflict) {
  fleet.add("i1").view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/sandboxes/i1/timeout", R"({"timeout":20})").status, 409);
  EXPECT_EQ(call("POST", "/sandboxes/i2/timeout", R"({"timeout":20})").status, 404);
}

TEST_F(SandboxesTest, ARefreshOnlyExtends) {
  fleet.add("i1");
  EXPECT_EQ(call("POST", "/sandboxes/i1/refreshes", R"({"duration":3600})").status, 204);
  EXPECT_EQ(fleet.timeout, seconds(3600));
  EXPECT_EQ(fleet.timeout_how, fleet::Fleet::Timeout::kExtendOnly);
  EXPECT_EQ(call("POST", "/sandboxes/i1/refreshes").status, 204);
  EXPECT_EQ(fleet.timeout, seconds(15));
  EXPECT_THAT(refusal(call("POST", "/sandboxes/i1/refreshes", R"({"duration":3601})"), 400),
              HasSubstr("from 0 to 3600"));
  EXPECT_EQ(call("POST", "/sandboxes/i2/refreshes").status, 404);
}

TEST_F(SandboxesTest, ConnectToARunningOneIsOk) {
  fleet.add("i1");
  const FakeExchange exchange = call("POST", "/sandboxes/i1/connect", R"({"timeout":50})");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(*exchange.answer_json().find("envdAccessToken"), json::Value("token-of-i1"));
  EXPECT_EQ(fleet.timeout, seconds(50));
}

TEST_F(SandboxesTest, ConnectResumesAPausedOne) {
  fleet.add("i1").view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/sandboxes/i1/connect", R"({"timeout":50})").status, 201);
  EXPECT_EQ(fleet.resume, fleet::Resume::kWhatWasKept);
}

TEST_F(SandboxesTest, TheOldConnectWantsATimeout) {
  fleet.add("i1");
  EXPECT_EQ(refusal(call("POST", "/sandboxes/i1/connect", "{}"), 400),
            "timeout: found nothing; allowed is a number of seconds");
  EXPECT_EQ(call("POST", "/sandboxes/i1/connect").status, 400);
  EXPECT_EQ(call("POST", "/sandboxes/i2/connect", R"({"timeout":1})").status, 404);
}

TEST_F(SandboxesTest, TheNewConnectNeedsNoBody) {
  fleet.add("i1").view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/v2/sandboxes/i1/connect").status, 201);
  EXPECT_EQ(fleet.timeout, seconds(300));
  EXPECT_EQ(fleet.resume, fleet::Resume::kWhatWasKept);
}

TEST_F(SandboxesTest, TheNewConnectMayRebootIt) {
  fleet.add("i1").view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/v2/sandboxes/i1/connect", R"({"memory":false})").status, 201);
  EXPECT_EQ(fleet.resume, fleet::Resume::kReboot);
}

TEST_F(SandboxesTest, ResumeIsForPausedOnes) {
  FakeServed& served = fleet.add("i1");
  EXPECT_THAT(refusal(call("POST", "/sandboxes/i1/resume", "{}"), 409), HasSubstr("running"));
  served.view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/sandboxes/i1/resume", "{}").status, 201);
  EXPECT_EQ(fleet.timeout, seconds(15));
  EXPECT_EQ(call("POST", "/sandboxes/i2/resume", "{}").status, 404);
}

TEST_F(SandboxesTest, PauseKeepsTheMemoryUnlessItIsNotWanted) {
  FakeServed& served = fleet.add("i1");
  EXPECT_EQ(call("POST", "/sandboxes/i1/pause").status, 204);
  EXPECT_EQ(fleet.keep, fleet::Keep::kMemory);
  served.view_now.state = fleet::State::kRunning;
  EXPECT_EQ(call("POST", "/sandboxes/i1/pause", R"({"memory":false})").status, 204);
  EXPECT_EQ(fleet.keep, fleet::Keep::kFiles);
}

TEST_F(SandboxesTest, ASecondPauseIsAConflict) {
  fleet.add("i1");
  EXPECT_EQ(call("POST", "/sandboxes/i1/pause").status, 204);
  EXPECT_EQ(call("POST", "/sandboxes/i1/pause").status, 409);
  EXPECT_EQ(call("POST", "/sandboxes/i2/pause").status, 404);
}

TEST_F(SandboxesTest, ANetworkThatOnlyForbidsIsHeld) {
  fleet.add("i1");
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", R"({"denyOut":["0.0.0.0/0"]})").status, 204);
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", "{}").status, 204);
  EXPECT_EQ(call("PUT", "/sandboxes/i2/network", "{}").status, 404);
}

TEST_F(SandboxesTest, ANetworkIsChangedAndToldAgain) {
  fleet.add("i1");
  const char* wanted = R"({"allowOut":["1.1.1.1"],"denyOut":["0.0.0.0/0"]})";
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", wanted).status, 204);
  EXPECT_EQ(fleet.network_now.unmatched, policy::NetworkDefault::kDeny);
  ASSERT_EQ(fleet.network_now.rules.size(), 1u);
  EXPECT_EQ(fleet.network_now.rules[0].cidrs[0], "1.1.1.1/32");
  const FakeExchange shown = call("GET", "/sandboxes/i1");
  const json::Value body = shown.answer_json();
  EXPECT_EQ(*body.find("allowInternetAccess"), json::Value(true));
  EXPECT_EQ(*body.find("network")->find("allowOut"), json::parse(R"(["1.1.1.1"])").value());
  EXPECT_EQ(*body.find("network")->find("denyOut"), json::parse(R"(["0.0.0.0/0"])").value());
  // What is left away is cleared.
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", "{}").status, 204);
  EXPECT_EQ(call("GET", "/sandboxes/i1").answer_json().find("network")->find("allowOut"), nullptr);
}

TEST_F(SandboxesTest, AProxyIsShownUntilAnUpdateLeavesItAway) {
  fleet.add("i1");
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network",
                 R"({"egressProxy":{"address":"proxy.example.com:1080","username":"u"}})")
                .status,
            204);
  EXPECT_EQ(*call("GET", "/sandboxes/i1").answer_json().find("network")->find("egressProxy"),
            json::parse(R"({"address":"proxy.example.com:1080","username":"u"})").value());
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", "{}").status, 204);
  EXPECT_EQ(call("GET", "/sandboxes/i1").answer_json().find("network")->find("egressProxy"),
            nullptr);
}

TEST_F(SandboxesTest, ANetworkThatCannotBeHeldIsRefused) {
  fleet.add("i1");
  EXPECT_THAT(refusal(call("PUT", "/sandboxes/i1/network", R"({"denyOut":["example.com"]})"), 400),
              HasSubstr("denyOut[0]: found \"example.com\""));
}

TEST_F(SandboxesTest, TheNetworkOfAPausedOneIsAConflict) {
  fleet.add("i1").view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("PUT", "/sandboxes/i1/network", "{}").status, 409);
}

TEST_F(SandboxesTest, MetricsAreSamplesOfATime) {
  fleet.add("i1");
  fleet::Sample sample;
  sample.time = FakeFleet::start();
  sample.cpu_used_percent = 12.5;
  sample.cpus = 2;
  sample.memory_used = 1;
  sample.memory_total = 2;
  sample.memory_cache = 3;
  sample.disk_used = 4;
  sample.disk_total = 5;
  fleet.samples_now = {sample};
  const FakeExchange exchange =
      call("GET", "/sandboxes/i1/metrics?start=1767323000&end=1767324000");
  EXPECT_EQ(exchange.answer_json(),
            parsed(R"([{"timestamp":"2026-01-02T03:04:05.678000Z","timestampUnix":1767323045,
                        "cpuCount":2,"cpuUsedPct":12.5,"memUsed":1,"memTotal":2,"memCache":3,
                        "diskUsed":4,"diskTotal":5}])"));
  EXPECT_EQ(fleet.samples_from, fleet::WallClock::time_point(seconds(1767323000)));
  EXPECT_EQ(fleet.samples_to, fleet::WallClock::time_point(seconds(1767324000)));
}

TEST_F(SandboxesTest, MetricsOfABadTimeAreRefused) {
  fleet.add("i1");
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1/metrics?start=x"), 400), HasSubstr("start"));
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1/metrics?end=-1"), 400), HasSubstr("end"));
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1/metrics?end=99999999999"), 400), HasSubstr("end"));
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1/metrics?start=2&end=1"), 400), HasSubstr("start"));
  EXPECT_EQ(call("GET", "/sandboxes/i2/metrics").status, 404);
}

TEST_F(SandboxesTest, MetricsOfManyLeaveOutWhoIsNotThere) {
  fleet.add("i1");
  fleet.samples_now.resize(2);
  const FakeExchange exchange = call("GET", "/sandboxes/metrics?sandbox_ids=i1,i2");
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  EXPECT_NE(body.find("sandboxes")->find("i1"), nullptr);
  EXPECT_EQ(body.find("sandboxes")->find("i2"), nullptr);
}

TEST_F(SandboxesTest, MetricsOfManyAreBounded) {
  EXPECT_EQ(call("GET", "/sandboxes/metrics").status, 400);
  std::string ids = "i1";
  for (int index = 0; index < 100; ++index) ids += ",i1";
  EXPECT_THAT(refusal(call("GET", "/sandboxes/metrics?sandbox_ids=" + ids), 400),
              HasSubstr("at most 100"));
}

TEST_F(SandboxesTest, WhatIsNotHereSaysSo) {
  fleet.add("i1");
  for (const auto& [method, path] : {std::pair("GET", "/volumes"), std::pair("POST", "/templates"),
                                     std::pair("GET", "/teams")}) {
    EXPECT_NE(refusal(call(method, path), 501), "") << path;
  }
}

}  // namespace
}  // namespace caisson::api
