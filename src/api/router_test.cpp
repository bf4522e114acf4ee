#include "api/router.h"

#include <gtest/gtest.h>

namespace caisson::api {
namespace {

using Kind = Router::Match::Kind;

TEST(RouterTest, FindsARouteByMethodAndPath) {
  Router router;
  router.add("GET", "/sandboxes");
  const std::size_t wanted = router.add("POST", "/sandboxes");
  const Router::Match match = router.match("POST", {"sandboxes"});
  EXPECT_EQ(match.kind, Kind::kRoute);
  EXPECT_EQ(match.route, wanted);
  EXPECT_TRUE(match.parameters.empty());
}

TEST(RouterTest, NamesTakeOneSegmentEach) {
  Router router;
  router.add("GET", "/templates/{id}/files/{hash}");
  const Router::Match match = router.match("GET", {"templates", "a/b", "files", "00"});
  EXPECT_EQ(match.kind, Kind::kRoute);
  EXPECT_EQ(match.parameters, (std::vector<std::string>{"a/b", "00"}));
}

TEST(RouterTest, AWordGoesBeforeANameInEitherOrder) {
  Router router;
  const std::size_t by_id = router.add("GET", "/sandboxes/{id}");
  const std::size_t metrics = router.add("GET", "/sandboxes/metrics");
  const std::size_t aliases = router.add("GET", "/templates/aliases/{alias}");
  const std::size_t tags = router.add("GET", "/templates/{id}/tags");
  EXPECT_EQ(router.match("GET", {"sandboxes", "metrics"}).route, metrics);
  EXPECT_EQ(router.match("GET", {"sandboxes", "i1"}).route, by_id);
  EXPECT_EQ(router.match("GET", {"templates", "aliases", "tags"}).route, aliases);
  EXPECT_EQ(router.match("GET", {"templates", "base", "tags"}).route, tags);
}

TEST(RouterTest, AnotherMethodOfAMoreGeneralPatternIsFoundToo) {
  Router router;
  router.add("GET", "/sandboxes/metrics");
  const std::size_t kill = router.add("DELETE", "/sandboxes/{id}");
  const Router::Match match = router.match("DELETE", {"sandboxes", "metrics"});
  EXPECT_EQ(match.kind, Kind::kRoute);
  EXPECT_EQ(match.route, kill);
}

TEST(RouterTest, HeadIsAGet) {
  Router router;
  router.add("GET", "/healthz");
  EXPECT_EQ(router.match("HEAD", {"healthz"}).kind, Kind::kRoute);
}

TEST(RouterTest, AnUnknownPathIsNone) {
  Router router;
  router.add("GET", "/sandboxes/{id}");
  EXPECT_EQ(router.match("GET", {"sandbox"}).kind, Kind::kNoPath);
  EXPECT_EQ(router.match("GET", {"sandboxes", "i1", "x"}).kind, Kind::kNoPath);
  EXPECT_EQ(router.match("GET", {}).kind, Kind::kNoPath);
}

TEST(RouterTest, AnEmptySegmentFitsNoName) {
  Router router;
  router.add("GET", "/sandboxes/{id}");
  EXPECT_EQ(router.match("GET", {"sandboxes", ""}).kind, Kind::kNoPath);
}

TEST(RouterTest, AKnownPathWithAnotherMethodSaysWhichAreAllowed) {
  Router router;
  router.add("GET", "/sandboxes/{id}");
  router.add("DELETE", "/sandboxes/{id}");
  const Router::Match match = router.match("PATCH", {"sandboxes", "i1"});
  EXPECT_EQ(match.kind, Kind::kNoMethod);
  EXPECT_EQ(match.allowed, "GET, DELETE");
}

TEST(RouterTest, MethodsKnowCase) {
  Router router;
  router.add("GET", "/sandboxes");
  EXPECT_EQ(router.match("get", {"sandboxes"}).kind, Kind::kNoMethod);
}

}  // namespace
}  // namespace caisson::api
