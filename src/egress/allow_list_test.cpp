#include "egress/allow_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

using ::testing::HasSubstr;

AllowList list(std::vector<std::string> entries) {
  auto parsed = AllowList::parse(entries);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed.value_or(AllowList{});
}

AllowList::Answer answer(const AllowList& allowed, std::string_view host, std::uint16_t port) {
  return allowed.allows({policy::canonical_host(host).value(), port});
}

TEST(AllowList, ComparesWholeNamesAndPorts) {
  const AllowList allowed = list({"example.com", "Mirror.example.org:8080"});
  using enum AllowList::Answer;
  EXPECT_EQ(answer(allowed, "example.com", 443), kPublic);
  EXPECT_EQ(answer(allowed, "example.com", 80), kPublic);
  EXPECT_EQ(answer(allowed, "example.com", 22), kNo);
  EXPECT_EQ(answer(allowed, "www.example.com", 443), kNo);
  EXPECT_EQ(answer(allowed, "notexample.com", 443), kNo);
  EXPECT_EQ(answer(allowed, "example.com.evil.test", 443), kNo);
  EXPECT_EQ(answer(allowed, "mirror.example.org", 8080), kPublic);
  EXPECT_EQ(answer(allowed, "mirror.example.org", 443), kNo);
  EXPECT_EQ(answer(list({}), "example.com", 443), kNo);
}

TEST(AllowList, AWildcardMeansEverythingBelow) {
  const AllowList allowed = list({"*.example.com:443"});
  using enum AllowList::Answer;
  EXPECT_EQ(answer(allowed, "a.example.com", 443), kPublic);
  EXPECT_EQ(answer(allowed, "a.b.example.com", 443), kPublic);
  EXPECT_EQ(answer(allowed, "example.com", 443), kNo);
  EXPECT_EQ(answer(allowed, "aexample.com", 443), kNo);
  EXPECT_EQ(answer(allowed, "a.example.com", 80), kNo);
}

TEST(AllowList, OnlyWhoNamesAnAddressReachesAnyAddress) {
  const AllowList allowed = list({"127.0.0.1:8000", "localhost:9000", "[::1]:8000"});
  using enum AllowList::Answer;
  EXPECT_EQ(answer(allowed, "127.0.0.1", 8000), kAnyAddress);
  EXPECT_EQ(answer(allowed, "[::1]", 8000), kAnyAddress);
  EXPECT_EQ(answer(allowed, "localhost", 9000), kAnyAddress);
  EXPECT_EQ(answer(allowed, "127.0.0.2", 8000), kNo);
  EXPECT_EQ(answer(allowed, "localhost", 8000), kNo);
  EXPECT_TRUE(allowed.names_loopback());
  EXPECT_TRUE(list({"127.1.2.3"}).names_loopback());
  EXPECT_TRUE(list({"[::ffff:127.0.0.1]"}).names_loopback());
  EXPECT_FALSE(list({"192.0.2.1", "example.com"}).names_loopback());
}

TEST(AllowList, NeedsNoPublicSuffixes) {
  const AllowList allowed = list({"*.com", "*.internal", "intranet"});
  EXPECT_EQ(answer(allowed, "a.com", 443), AllowList::Answer::kPublic);
  EXPECT_EQ(answer(allowed, "a.b.internal", 443), AllowList::Answer::kPublic);
  EXPECT_EQ(answer(allowed, "intranet", 443), AllowList::Answer::kPublic);
}

TEST(AllowList, RefusesEntriesThatMeanNothing) {
  for (const char* text : {"", "*", "*.", "*example.com", "a.*.com", "*.127.0.0.1", "*.localhost",
                           "http://example.com", "example.com:", "example.com/path", "-:x"}) {
    const std::string entries[] = {text};
    EXPECT_FALSE(AllowList::parse(entries).has_value()) << text;
  }
  const auto refusal = [](std::string entry) {
    return AllowList::parse(std::span(&entry, 1)).error().message();
  };
  EXPECT_THAT(refusal("a b:80"), HasSubstr("allowed is HOST[:PORT]"));
  EXPECT_THAT(refusal("*.a b"), HasSubstr("behind the wildcard of \"*.a b\""));
  EXPECT_THAT(refusal("*.[::1]"), HasSubstr("there are no names below that"));
}

}  // namespace
}  // namespace caisson::egress
