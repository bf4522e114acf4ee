// docs/openapi.yaml and docs/api.yaml have every route of the server, and no other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/documents_for_test.h"
#include "api/service_for_test.h"

namespace caisson::api {
namespace {

TEST(OpenapiTest, EveryRouteIsDocumentedAndNothingElseIs) {
  ServiceFixture fixture;
  std::set<std::string> served;
  for (const Route& route : fixture.service().routes()) {
    const auto [at, fresh] =
        served.insert(std::string(route.method) + " " + std::string(route.pattern));
    EXPECT_TRUE(fresh) << *at << " is routed twice";
  }
  for (const std::string_view path : Service::kOwnPaths) served.insert("GET " + std::string(path));
  EXPECT_THAT(documented_all().operations, testing::ContainerEq(served));
}

TEST(OpenapiTest, EveryOwnPathIsAnsweredWithoutAKey) {
  ServiceFixture fixture;
  fixture.service().set_state(Service::State::kReady);
  for (const std::string_view path : Service::kOwnPaths) {
    FakeExchange exchange("GET", path);
    fixture.handle(exchange);
    EXPECT_EQ(exchange.status, 200) << path;
  }
}

}  // namespace
}  // namespace caisson::api
