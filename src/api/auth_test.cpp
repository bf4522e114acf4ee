#include "api/auth.h"

#include <gtest/gtest.h>

#include "api/exchange_for_test.h"

namespace caisson::api {
namespace {

TEST(AuthTest, TheKeyIsInItsHeaderOrABearerToken) {
  EXPECT_EQ(*api_key_of({{"x-api-key", "e2b_00"}}), "e2b_00");
  EXPECT_EQ(*api_key_of({{"Authorization", "Bearer e2b_01"}}), "e2b_01");
  EXPECT_EQ(*api_key_of({{"Authorization", "bearer e2b_01"}}), "e2b_01");
  EXPECT_EQ(*api_key_of({{"Authorization", "Bearer e2b_01"}, {"X-API-Key", "e2b_00"}}), "e2b_00");
}

TEST(AuthTest, ARequestWithoutAKeyIsTold) {
  for (const http::Headers& headers : {http::Headers{}, http::Headers{{"X-API-KEY", ""}},
                                       http::Headers{{"Authorization", "Basic dXNlcjo="}},
                                       http::Headers{{"Authorization", "Bearer "}}}) {
    const Result<std::string> key = api_key_of(headers);
    ASSERT_FALSE(key.has_value());
    EXPECT_EQ(key.error().code(), Code::kUnauthenticated);
    EXPECT_NE(key.error().message().find("X-API-KEY"), std::string::npos);
  }
}

TEST(AuthTest, AKeyThatNoKeyCanBeIsNotLookedUp) {
  EXPECT_FALSE(api_key_of({{"X-API-KEY", std::string(257, 'a')}}).has_value());
}

class CountedKeys final : public Keys {
 public:
  int calls = 0;
  io::Async<Result<std::string>> team_of(std::string key) override {
    ++calls;
    if (!key.starts_with("good"))
      co_return fail({Code::kUnauthenticated, "the API key is not known"});
    co_return "team of " + key;
  }
};

io::Clock::time_point fake_now;

TEST(AuthTest, AGoodKeyIsLookedUpOnceAWhile) {
  CountedKeys behind;
  CachedKeys keys(behind, [] { return fake_now; });
  EXPECT_EQ(*run(keys.team_of("good")), "team of good");
  EXPECT_EQ(*run(keys.team_of("good")), "team of good");
  EXPECT_EQ(behind.calls, 1);
  fake_now += CachedKeys::kGood;
  EXPECT_EQ(*run(keys.team_of("good")), "team of good");
  EXPECT_EQ(behind.calls, 2);
}

TEST(AuthTest, ABadKeyIsLookedUpEachTime) {
  CountedKeys behind;
  CachedKeys keys(behind);
  EXPECT_EQ(run(keys.team_of("bad")).error().code(), Code::kUnauthenticated);
  EXPECT_EQ(run(keys.team_of("bad")).error().code(), Code::kUnauthenticated);
  EXPECT_EQ(behind.calls, 2);
}

TEST(AuthTest, TheCacheIsBounded) {
  CountedKeys behind;
  CachedKeys keys(behind);
  auto many = [&]() -> io::Async<void> {
    for (std::size_t index = 0; index <= CachedKeys::kMost; ++index) {
      const Result<std::string> team = co_await keys.team_of("good" + std::to_string(index));
      EXPECT_TRUE(team.has_value());
    }
  };
  run(many());
  // The last is remembered, what was before it is not.
  EXPECT_TRUE(run(keys.team_of("good" + std::to_string(CachedKeys::kMost))).has_value());
  EXPECT_EQ(behind.calls, static_cast<int>(CachedKeys::kMost) + 1);
  EXPECT_TRUE(run(keys.team_of("good0")).has_value());
  EXPECT_EQ(behind.calls, static_cast<int>(CachedKeys::kMost) + 2);
}

}  // namespace
}  // namespace caisson::api
