// docs/openapi.yaml has every route of the server, and no other.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/service_for_test.h"
#include "base/sys.h"

namespace caisson::api {
namespace {

// "GET /path" of each operation, read by its indentation: the document is our own.
std::set<std::string> documented() {
  std::set<std::string> operations;
  const Result<std::string> text = sys::read_file(AT_FDCWD, CAISSON_OPENAPI, 1 << 20);
  EXPECT_TRUE(text.has_value());
  if (!text.has_value()) return operations;
  std::string path;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("  /") && line.ends_with(':')) path = line.substr(2, line.size() - 3);
    for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
      std::string key = "    " + std::string(method) + ":";
      for (char& c : key) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
      if (line == key) operations.insert(std::string(method) + " " + path);
    }
  }
  return operations;
}

TEST(OpenapiTest, EveryRouteIsDocumentedAndNothingElseIs) {
  ServiceFixture fixture;
  std::set<std::string> served;
  for (const Route& route : fixture.service().routes()) {
    const auto [at, fresh] =
        served.insert(std::string(route.method) + " " + std::string(route.pattern));
    EXPECT_TRUE(fresh) << *at << " is routed twice";
  }
  for (const std::string_view path : Service::kOwnPaths) served.insert("GET " + std::string(path));
  EXPECT_THAT(documented(), testing::ContainerEq(served));
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
