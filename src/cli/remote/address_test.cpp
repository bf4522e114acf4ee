#include "cli/remote/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::cli {
namespace {

using Scheme = ServerAddress::Scheme;

TEST(ServerAddress, APortFollowsFromTheScheme) {
  const auto plain = parse_server_address("http://server.example.com");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->scheme, Scheme::kHttp);
  EXPECT_EQ(plain->host, "server.example.com");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->authority, "server.example.com");
  const auto secure = parse_server_address("https://server.example.com/");
  ASSERT_TRUE(secure.has_value());
  EXPECT_EQ(secure->scheme, Scheme::kHttps);
  EXPECT_EQ(secure->port, 443);
}

TEST(ServerAddress, APortMayBeGiven) {
  const auto address = parse_server_address("https://127.0.0.1:3000");
  ASSERT_TRUE(address.has_value());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 3000);
  EXPECT_EQ(address->authority, "127.0.0.1:3000");
  const auto six = parse_server_address("http://[::1]:3000");
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, 3000);
  EXPECT_EQ(six->authority, "[::1]:3000");
}

TEST(ServerAddress, WhatIsNoneIsRefused) {
  for (const char* host : {"", "/", ":80", "a:", "a:0", "a:65536", "a:x", "a/b", "a b", "u@a",
                           "[::1", "[::1]x", "a?b", "a:80:80"}) {
    const std::string url = "http://" + std::string(host);
    const auto address = parse_server_address(url);
    ASSERT_FALSE(address.has_value()) << url;
    EXPECT_THAT(address.error().message(), testing::HasSubstr("'" + url + "'"));
  }
  EXPECT_FALSE(parse_server_address("example.com").has_value());
  EXPECT_FALSE(parse_server_address("HTTP://example.com").has_value());
}

TEST(ServerAddress, LoopbackIsKnownByItsNumberOrItsOneName) {
  const auto on_loopback = [](const std::string& host) {
    return is_loopback(*parse_server_address("http://" + host));
  };
  for (const char* host : {"localhost:3000", "127.0.0.1", "127.0.0.2:80", "[::1]:3000"})
    EXPECT_TRUE(on_loopback(host)) << host;
  for (const char* host : {"server.example.com", "127.example.com", "192.0.2.1", "[2001:db8::1]",
                           "localhost.example.com"})
    EXPECT_FALSE(on_loopback(host)) << host;
}

TEST(Target, ValuesAreEscapedAndEmptyOnesLeftOut) {
  EXPECT_EQ(target_of("/v1/files", {{"path", "/a b&c=d?e%f+g\xc3\xa9"}, {"user", ""}, {"x", "1"}}),
            "/v1/files?path=/a%20b%26c%3Dd%3Fe%25f%2Bg%C3%A9&x=1");
  EXPECT_EQ(target_of("/v1", {}), "/v1");
}

}  // namespace
}  // namespace caisson::cli
