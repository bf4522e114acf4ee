#include "egress/allow_list.h"

#include <arpa/inet.h>
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

TEST(HostPort, TakesNamesAndAddresses) {
  EXPECT_EQ(parse_host_port("Example.COM:443", 0).value(), (HostPort{"example.com", 443}));
  EXPECT_EQ(parse_host_port("example.com.", 80).value(), (HostPort{"example.com", 80}));
  EXPECT_EQ(parse_host_port("192.0.2.1:1", 0).value(), (HostPort{"192.0.2.1", 1}));
  EXPECT_EQ(parse_host_port("[2001:DB8:0:0::1]:65535", 0).value(),
            (HostPort{"2001:db8::1", 65535}));
  EXPECT_EQ(parse_host_port("xn--mnchen-3ya.example", 443).value().host, "xn--mnchen-3ya.example");
}

TEST(HostPort, RefusesEverythingElse) {
  const std::string long_label(64, 'a');
  for (const std::string& text : {std::string(""),
                                  std::string(":80"),
                                  std::string("example.com"),
                                  std::string("a:"),
                                  std::string("a:0"),
                                  std::string("a:65536"),
                                  std::string("a:80x"),
                                  std::string("a:+80"),
                                  std::string("a b:80"),
                                  std::string("a..b:80"),
                                  std::string(".a:80"),
                                  std::string("a/b:80"),
                                  std::string("user@a:80"),
                                  std::string("::1:80"),
                                  std::string("[::1:80"),
                                  std::string("[a]:80"),
                                  std::string("[192.0.2.1]:80"),
                                  std::string("[::1]80"),
                                  std::string("127.1:80"),
                                  std::string("2130706433:80"),
                                  std::string("0x7f000001:80"),
                                  std::string("0177.0.0.1:80"),
                                  std::string("1.2.3.4.5:80"),
                                  std::string("a\0b:80", 6),
                                  std::string("m\xc3\xbcnchen:80"),
                                  std::string("fe80::1%eth0:80"),
                                  std::string("[fe80::1%eth0]:80"),
                                  long_label + ":80",
                                  std::string(254, 'a') + ":80"}) {
    const auto parsed = parse_host_port(text, 0);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("allowed is HOST[:PORT]"));
  }
}

TEST(AllowList, ComparesWholeNamesAndPorts) {
  const AllowList allowed = list({"example.com", "Mirror.example.org:8080"});
  using enum AllowList::Answer;
  EXPECT_EQ(allowed.allows({"example.com", 443}), kPublic);
  EXPECT_EQ(allowed.allows({"example.com", 80}), kPublic);
  EXPECT_EQ(allowed.allows({"example.com", 22}), kNo);
  EXPECT_EQ(allowed.allows({"www.example.com", 443}), kNo);
  EXPECT_EQ(allowed.allows({"notexample.com", 443}), kNo);
  EXPECT_EQ(allowed.allows({"example.com.evil.test", 443}), kNo);
  EXPECT_EQ(allowed.allows({"mirror.example.org", 8080}), kPublic);
  EXPECT_EQ(allowed.allows({"mirror.example.org", 443}), kNo);
  EXPECT_EQ(list({}).allows({"example.com", 443}), kNo);
}

TEST(AllowList, AWildcardMeansEverythingBelow) {
  const AllowList allowed = list({"*.example.com:443"});
  using enum AllowList::Answer;
  EXPECT_EQ(allowed.allows({"a.example.com", 443}), kPublic);
  EXPECT_EQ(allowed.allows({"a.b.example.com", 443}), kPublic);
  EXPECT_EQ(allowed.allows({"example.com", 443}), kNo);
  EXPECT_EQ(allowed.allows({"aexample.com", 443}), kNo);
  EXPECT_EQ(allowed.allows({"a.example.com", 80}), kNo);
}

TEST(AllowList, OnlyWhoNamesAnAddressReachesAnyAddress) {
  const AllowList allowed = list({"127.0.0.1:8000", "localhost:9000", "[::1]:8000"});
  using enum AllowList::Answer;
  EXPECT_EQ(allowed.allows({"127.0.0.1", 8000}), kAnyAddress);
  EXPECT_EQ(allowed.allows({"::1", 8000}), kAnyAddress);
  EXPECT_EQ(allowed.allows({"localhost", 9000}), kAnyAddress);
  EXPECT_EQ(allowed.allows({"127.0.0.2", 8000}), kNo);
  EXPECT_EQ(allowed.allows({"localhost", 8000}), kNo);
  EXPECT_TRUE(allowed.names_loopback());
  EXPECT_FALSE(list({"192.0.2.1", "example.com"}).names_loopback());
}

TEST(AllowList, RefusesEntriesThatMeanNothing) {
  for (const char* text : {"", "*", "*.", "*example.com", "a.*.com", "*.127.0.0.1", "*.localhost",
                           "http://example.com", "example.com:", "example.com/path", "-:x"}) {
    const std::string entries[] = {text};
    EXPECT_FALSE(AllowList::parse(entries).has_value()) << text;
  }
}

bool is_public(const char* text) {
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(AF_INET, text, bytes.data()) == 1)
    return is_public_address(std::span(bytes).first(4));
  EXPECT_EQ(::inet_pton(AF_INET6, text, bytes.data()), 1) << text;
  return is_public_address(bytes);
}

TEST(PublicAddress, TheInternetIs) {
  for (const char* text :
       {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "172.15.255.255", "172.32.0.0", "192.167.255.255", "223.255.255.255", "2606:4700::1111",
        "2a00::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"})
    EXPECT_TRUE(is_public(text)) << text;
}

TEST(PublicAddress, WhatIsOursOrNobodysIsNot) {
  for (const char* text : {"0.0.0.0",
                           "0.1.2.3",
                           "10.0.0.1",
                           "100.64.0.1",
                           "127.0.0.1",
                           "127.255.255.255",
                           "168.63.129.16",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.0.0.1",
                           "192.0.2.1",
                           "192.168.1.1",
                           "198.18.0.1",
                           "198.19.255.255",
                           "198.51.100.1",
                           "203.0.113.1",
                           "224.0.0.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::127.0.0.1",
                           "::ffff:127.0.0.1",
                           "::ffff:10.0.0.1",
                           "64:ff9b::7f00:1",
                           "64:ff9b:1::1",
                           "100::1",
                           "2001::1",
                           "2001:db8::1",
                           "2002:7f00:1::",
                           "2002:a00:1::",
                           "fc00::1",
                           "fd12::1",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1",
                           "4000::1"})
    EXPECT_FALSE(is_public(text)) << text;
}

}  // namespace
}  // namespace caisson::egress
