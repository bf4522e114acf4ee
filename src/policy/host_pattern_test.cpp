#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/host_name.h"

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view host) {
  const auto parsed = HostPattern::parse(pattern);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  const auto canonical = canonical_host(host);
  EXPECT_TRUE(canonical.has_value()) << canonical.error().message();
  return parsed && canonical && parsed->matches(*canonical);
}

std::string refusal(std::string_view pattern) {
  const auto parsed = HostPattern::parse(pattern);
  return parsed ? "taken as " + parsed->text() : parsed.error().message();
}

TEST(HostPattern, ANameIsThatNameAlone) {
  EXPECT_TRUE(matches("allowed.test", "allowed.test"));
  EXPECT_TRUE(matches("Allowed.TEST.", "ALLOWED.test"));
  EXPECT_TRUE(
      matches("b\xc3\xbc"
              "cher.test",
              "xn--bcher-kva.test"));
  EXPECT_TRUE(matches("com", "com"));  // nobody asks for its names
  for (const std::string_view host : {"a.allowed.test", "notallowed.test", "xallowed.test",
                                      "allowed-test", "allowed.test.evil.test", "test"})
    EXPECT_FALSE(matches("allowed.test", host)) << host;
}

TEST(HostPattern, AnAddressIsThatAddressAlone) {
  EXPECT_TRUE(matches("192.0.2.1", "192.0.2.1"));
  EXPECT_TRUE(matches("192.0.2.1", "[::ffff:192.0.2.1]"));
  EXPECT_TRUE(matches("[2001:db8::1]", "[2001:DB8:0::1]"));
  EXPECT_FALSE(matches("192.0.2.1", "192.0.2.2"));
  EXPECT_FALSE(matches("192.0.2.1", "[::c000:201]"));
  EXPECT_TRUE(HostPattern::parse("192.0.2.1")->is_address());
  EXPECT_FALSE(HostPattern::parse("allowed.test")->is_address());
}

TEST(HostPattern, OneStarIsEveryNameBelow) {
  EXPECT_TRUE(matches("*.allowed.test", "a.allowed.test"));
  EXPECT_TRUE(matches("*.allowed.test", "a.b.allowed.test"));
  EXPECT_TRUE(matches("*.ALLOWED.test.", "a.allowed.test"));
  EXPECT_TRUE(
      matches("*.b\xc3\xbc"
              "cher.test",
              "a.xn--bcher-kva.test"));
  for (const std::string_view host : {"allowed.test", "xallowed.test", "a.xallowed.test",
                                      "a.allowed.test.evil.test", "test", "192.0.2.1", "[::1]"})
    EXPECT_FALSE(matches("*.allowed.test", host)) << host;
}

TEST(HostPattern, TwoStarsAreTheNameAsWell) {
  for (const std::string_view host : {"allowed.test", "a.allowed.test", "a.b.allowed.test"})
    EXPECT_TRUE(matches("**.allowed.test", host)) << host;
  for (const std::string_view host : {"xallowed.test", "allowed.test.evil.test", "test"})
    EXPECT_FALSE(matches("**.allowed.test", host)) << host;
}

TEST(HostPattern, IsNotEveryHost) {
  for (const std::string_view pattern : {"*", "**"})
    EXPECT_THAT(refusal(pattern), HasSubstr("would be every host; allowed is the hosts that are "
                                            "meant, or for every host of the Internet `default: "
                                            "allow-public`"));
}

TEST(HostPattern, HasItsStarAsTheWholeFirstLabelAlone) {
  for (const std::string_view pattern :
       {"a*.allowed.test", "*a.allowed.test", "a.*.test", "allowed.*", "*.*.test", "*.**.test",
        "***.allowed.test", "**a.test", "*allowed.test", "a**.test", "allowed.test*", "**.*"})
    EXPECT_THAT(refusal(pattern), HasSubstr("has a '*' that is not the whole first label"))
        << pattern;
}

TEST(HostPattern, IsBelowANameAlone) {
  for (const std::string_view pattern : {"*.", "**.", "*..test", "*.a b.test", "*.allowed.test:443",
                                         "*.xn--a.test", "*.127.1", "*.::1"})
    EXPECT_THAT(refusal(pattern), HasSubstr("behind the wildcard of \"")) << pattern;
  for (const std::string_view pattern : {"*.127.0.0.1", "**.192.0.2.1", "*.[::1]"})
    EXPECT_THAT(refusal(pattern), HasSubstr("no names are below an address")) << pattern;
  EXPECT_THAT(refusal("a/b"), HasSubstr("is no host"));
}

TEST(HostPattern, IsNotEverythingBelowAPublicSuffix) {
  for (const std::string_view base :
       {"com", "test", "co.uk", "CO.UK.", "ck", "example.ck", "kawasaki.jp", "example.kawasaki.jp",
        "\xe5\x85\xac\xe5\x8f\xb8.cn", "xn--55qx5d.cn", "unknown-suffix"}) {
    for (const std::string_view stars : {"*.", "**."}) {
      const std::string pattern = std::string(stars) + std::string(base);
      EXPECT_THAT(refusal(pattern), HasSubstr("would be names of strangers")) << pattern;
    }
  }
  EXPECT_THAT(refusal("*.co.uk"),
              HasSubstr("anybody can have one below \"co.uk\", a public suffix; allowed is"));
  // An exception of the list, and names below suffixes.
  for (const std::string_view pattern : {"*.www.ck", "*.example.com", "*.example.co.uk",
                                         "**.project.github.io", "*.github.io", "*.amazonaws.com"})
    EXPECT_EQ(refusal(pattern), "taken as " + std::string(pattern));
}

TEST(HostPattern, SaysWhatItIs) {
  for (const auto& [text, expected, exact] :
       std::initializer_list<std::tuple<std::string_view, std::string_view, bool>>{
           {"Allowed.Test.", "allowed.test", true},
           {"*.Allowed.Test", "*.allowed.test", false},
           {"**.B\xc3\xbc"
            "cher.test",
            "**.xn--bcher-kva.test", false},
           {"[2001:DB8::1]", "[2001:db8::1]", true}}) {
    const auto pattern = HostPattern::parse(text);
    ASSERT_TRUE(pattern.has_value()) << text;
    EXPECT_EQ(pattern->text(), expected);
    EXPECT_EQ(pattern->is_exact(), exact);
    EXPECT_EQ(HostPattern::parse(pattern->text()).value(), *pattern);
  }
  EXPECT_EQ(HostPattern::parse("*.allowed.test")->host().name, "allowed.test");
  EXPECT_NE(HostPattern::parse("*.allowed.test").value(),
            HostPattern::parse("**.allowed.test").value());
}

}  // namespace
}  // namespace caisson::policy
