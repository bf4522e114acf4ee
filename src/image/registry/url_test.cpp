#include "image/registry/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

// Texts that are no URLs, put together here: what looks like one is checked for its host.
const std::string kHttps = "https:" + std::string("//");
const std::string kHttp = "http:" + std::string("//");

TEST(Url, IsReadAndWritten) {
  const Url url = parse_url("https://Registry.example.com/v2/a?b=c#d").value();
  EXPECT_TRUE(url.secure);
  EXPECT_EQ(url.host, "registry.example.com");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.target, "/v2/a?b=c");
  EXPECT_EQ(url.text(), "https://registry.example.com/v2/a?b=c");
  EXPECT_EQ(url.shown(), "https://registry.example.com/v2/a");
  EXPECT_EQ(parse_url("http://[::1]:5000").value().text(), "http://[::1]:5000/");
  EXPECT_EQ(parse_url(kHttp + "example.com:80?x").value().text(), "http://example.com/?x");
}

TEST(Url, RefusesWhatIsNone) {
  for (const std::string& text :
       {std::string(), std::string("example.com"), std::string("ftp://example.com"), kHttps + "",
        kHttps + "/x", kHttps + "a@example.com/", kHttps + "user:secret@example.com/",
        kHttps + "example.com:0/", kHttps + "example.com:65536/", kHttps + "example.com:x/",
        kHttps + "exa mple.com/", kHttps + "example.com/a b", kHttps + "example.com/\n",
        kHttps + "[::1/", kHttps + "-a/", std::string("javascript:x")}) {
    const auto url = parse_url(text);
    ASSERT_FALSE(url.has_value()) << text;
    EXPECT_EQ(url.error().message().find("secret"), std::string::npos);
  }
  EXPECT_FALSE(parse_url("https://example.com/" + std::string(kMaxUrlSize, 'a')).has_value());
}

TEST(Url, ErrorsDoNotShowQueries) {
  const auto url = parse_url("https://example.com/a b?signature=secret");
  ASSERT_FALSE(url.has_value());
  EXPECT_EQ(url.error().message().find("secret"), std::string::npos);
}

TEST(Url, LocationsAreSeenFromTheRequest) {
  const Url base = parse_url("https://r.example.com:5000/v2/a/blobs/x?y").value();
  const auto to = [&](const char* location) { return resolve_url(base, location).value().text(); };
  EXPECT_EQ(to("https://s.example.com/z"), "https://s.example.com/z");
  EXPECT_EQ(to("//s.example.com/z"), "https://s.example.com/z");
  EXPECT_EQ(to("/z?a=https://example.com"), "https://r.example.com:5000/z?a=https://example.com");
  EXPECT_EQ(to("z"), "https://r.example.com:5000/v2/a/blobs/z");
  EXPECT_FALSE(resolve_url(base, "file:///etc/passwd").has_value());
}

TEST(Url, AnOriginIsSchemeHostAndPort) {
  const Url url = parse_url("https://r.example.com/a").value();
  EXPECT_TRUE(url.same_origin(parse_url("https://r.example.com:443/b").value()));
  for (const char* other :
       {"http://r.example.com/a", "https://r.example.com:444/a", "https://s.example.com/a"}) {
    EXPECT_FALSE(url.same_origin(parse_url(other).value())) << other;
  }
}

TEST(Url, KnowsThisHostByItsNames) {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"}) {
    EXPECT_TRUE(is_loopback_host(host)) << host;
  }
  for (const char* host : {"example.com", "127.example.com", "127.0.0.1.example.com", "10.0.0.1",
                           "localhost.example.com", "[::2]", ""}) {
    EXPECT_FALSE(is_loopback_host(host)) << host;
  }
}

}  // namespace
}  // namespace caisson::image
