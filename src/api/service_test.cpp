#include "api/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"

namespace caisson::api {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServiceTest : public testing::Test, public ServiceFixture {};

TEST_F(ServiceTest, ARequestWithoutAKeyIsUnauthenticated) {
  FakeExchange exchange("GET", "/sandboxes");
  handle(exchange);
  EXPECT_THAT(refusal(exchange, 401), HasSubstr("X-API-KEY"));
  EXPECT_EQ(exchange.headers.get("WWW-Authenticate"), "Bearer");
}

TEST_F(ServiceTest, AnUnknownKeyIsUnauthenticated) {
  FakeExchange exchange("GET", "/sandboxes", {{"X-API-KEY", "e2b_ff"}});
  handle(exchange);
  EXPECT_THAT(refusal(exchange, 401), HasSubstr("not known"));
}

TEST_F(ServiceTest, AnotherTeamsSandboxIsNotThere) {
  fleet.add("i1", "team-2");
  EXPECT_THAT(refusal(call("GET", "/sandboxes/i1"), 404), HasSubstr("not found"));
}

TEST_F(ServiceTest, AnUnknownPathIsNothing) {
  EXPECT_EQ(refusal(call("GET", "/nowhere"), 404), "there is nothing at this path");
}

TEST_F(ServiceTest, AGatewayReachesPortsAndNothingElse) {
  fleet.add("i1");
  const auto status_of = [this](http::Headers headers) {
    headers.add("X-API-KEY", "e2b_01");
    FakeExchange exchange("GET", "/sandboxes/i1", std::move(headers));
    run(loop, service().handle_port(exchange));
    return exchange.status;
  };
  EXPECT_EQ(status_of({{"Host", "3000-i1.example.com"}}), 204);
  EXPECT_EQ(to_sandboxes.size(), 1u);
  for (const char* host : {"api.example.com", "example.com", "127.0.0.1", "3000-i1.example.com."}) {
    EXPECT_EQ(status_of({{"Host", host}}), 421) << host;
    EXPECT_EQ(status_of({{"Host", host}, {"E2b-Sandbox-Id", "i1"}}), 421) << host;
  }
  EXPECT_EQ(status_of({{"Host", "0-i1.example.com"}}), 400);
  EXPECT_EQ(to_sandboxes.size(), 1u);
}

TEST_F(ServiceTest, AnotherMethodIsNotAllowed) {
  const FakeExchange exchange = call("PATCH", "/sandboxes/i1");
  EXPECT_THAT(refusal(exchange, 405), HasSubstr("GET, DELETE"));
  EXPECT_EQ(exchange.headers.get("Allow"), "GET, DELETE");
}

TEST_F(ServiceTest, HealthNeedsNoKey) {
  for (const char* path : {"/healthz", "/health"}) {
    FakeExchange exchange("GET", path);
    handle(exchange);
    EXPECT_EQ(exchange.status, 200) << path;
  }
}

TEST_F(ServiceTest, ReadinessFollowsTheState) {
  const std::pair<Service::State, int> table[] = {{Service::State::kStarting, 503},
                                                  {Service::State::kReady, 200},
                                                  {Service::State::kStopping, 503}};
  for (const auto& [state, status] : table) {
    service().set_state(state);
    FakeExchange exchange("GET", "/readyz");
    handle(exchange);
    EXPECT_EQ(exchange.status, status);
  }
}

TEST_F(ServiceTest, MetricsAreTextAndCountWhatWasAnswered) {
  fleet.add("i1");
  call("GET", "/sandboxes/i1");
  FakeExchange exchange("GET", "/metrics");
  handle(exchange);
  EXPECT_EQ(exchange.status, 200);
  EXPECT_THAT(exchange.answer, HasSubstr("caisson_sandboxes_running 1\n"));
  EXPECT_THAT(exchange.answer, HasSubstr("caisson_connections 7\n"));
  EXPECT_THAT(exchange.answer,
              HasSubstr("caisson_requests_total{plane=\"control\",status=\"2xx\"} 1\n"));
}

TEST_F(ServiceTest, ARequestThatNamesASandboxIsTheDataPlanes) {
  FakeExchange by_header("GET", "/metrics", {{"E2b-Sandbox-Id", "i1"}});
  handle(by_header);
  FakeExchange by_host("GET", "/x", {{"Host", "3000-i2.example.com"}});
  handle(by_host);
  EXPECT_THAT(to_sandboxes,
              testing::ElementsAre(std::pair(SandboxAddress{"i1", kEnvdPort}, "/metrics"),
                                   std::pair(SandboxAddress{"i2", 3000}, "/x")));
}

TEST_F(ServiceTest, AMalformedNameOfASandboxIsRefused) {
  FakeExchange exchange("GET", "/x", {{"E2b-Sandbox-Id", "../x"}});
  handle(exchange);
  EXPECT_THAT(refusal(exchange, 400), HasSubstr("E2b-Sandbox-Id"));
}

TEST_F(ServiceTest, ATokenNamesItsSandboxWhereNothingElseDoes) {
  fleet.add("i1");
  fleet.add("i2");
  FakeExchange exchange("POST", "/process.Process/Start", {{"X-Access-Token", "token-of-i2"}});
  handle(exchange);
  EXPECT_THAT(to_sandboxes, testing::ElementsAre(std::pair(SandboxAddress{"i2", kEnvdPort},
                                                           "/process.Process/Start")));
}

TEST_F(ServiceTest, ATokenOpensNothingOfTheControlPlane) {
  fleet.add("i1");
  FakeExchange exchange("GET", "/sandboxes/i1", {{"X-Access-Token", "token-of-i1"}});
  handle(exchange);
  EXPECT_EQ(exchange.status, 401);
}

TEST_F(ServiceTest, ARequestIsLoggedWithoutItsSecrets) {
  fleet.add("i1");
  call("GET", "/sandboxes/i1?signature=v1_secret");
  const std::string line = log();
  const Result<json::Value> value = json::parse(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(value.has_value()) << line;
  EXPECT_EQ(*value->find("request"), json::Value("request-1"));
  EXPECT_EQ(*value->find("method"), json::Value("GET"));
  EXPECT_EQ(*value->find("path"), json::Value("/sandboxes/i1"));
  EXPECT_EQ(*value->find("status"), json::Value(200));
  EXPECT_EQ(*value->find("team"), json::Value("team-1"));
  EXPECT_THAT(line, Not(HasSubstr("e2b_01")));
  EXPECT_THAT(line, Not(HasSubstr("secret")));
}

TEST_F(ServiceTest, ThePathOfAProgramInsideIsNotLogged) {
  FakeExchange exchange("GET", "/reset/secret", {{"Host", "3000-i2.example.com"}});
  handle(exchange);
  const std::string line = log();
  EXPECT_THAT(line, Not(HasSubstr("secret")));
  EXPECT_THAT(line, HasSubstr("\"sandbox\":\"i2\""));
}

TEST_F(ServiceTest, WhatIsOurFaultIsInTheLogAlone) {
  fleet.add("i1");
  fleet.failure = Error::internal("row 7 is broken");
  const FakeExchange exchange = call("DELETE", "/sandboxes/i1");
  EXPECT_THAT(refusal(exchange, 500), Not(HasSubstr("row 7")));
  EXPECT_THAT(log(), HasSubstr("row 7 is broken"));
}

}  // namespace
}  // namespace caisson::api
