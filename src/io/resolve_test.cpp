#include "io/resolve.h"

#include <gmock/gmock.h>

#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::string>> resolved(std::string host) {
  Loop loop(1);
  Result<std::vector<std::string>> found = fail(Error::internal("not run"));
  auto body = [&]() -> Async<void> { found = co_await resolve(loop, std::move(host), 80); };
  run_on(loop, body);
  return found;
}

TEST(Resolve, NumbersStandForThemselves) {
  EXPECT_THAT(resolved("127.0.0.1").value(), ElementsAre("127.0.0.1:80"));
  EXPECT_THAT(resolved("::1").value(), ElementsAre("[::1]:80"));
}

TEST(Resolve, NamesAreLookedUp) {
  EXPECT_THAT(resolved("localhost").value(), ::testing::Contains("127.0.0.1:80"));
}

TEST(Resolve, WhatIsNotKnownIsNamed) {
  const auto found = resolved("nobody.invalid");
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), HasSubstr("'nobody.invalid'"));
}

}  // namespace
}  // namespace caisson::io
