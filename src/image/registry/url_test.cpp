#include "image/registry/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

TEST(Url, IsReadAndWritten) {
  const Url url = parse_url("https://Registry.example.com/v2/a?b=c#d").value();
  EXPECT_TRUE(url.secure);
  EXPECT_EQ(url.host, "registry.example.com");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.target, "/v2/a?b=c");
  EXPECT_EQ(url.text(), "https://registry.example.com/v2/a?b=c");
  EXPECT_EQ(url.shown(), "https://registry.example.com/v2/a");
  EXPECT_EQ(parse_url("http://[::1]:5000").value().text(), "http://[::1]:5000/");
  EXPECT_EQ(parse_url("http://example.com:80?x").value().text(), "http://example.com/?x");
}

TEST(Url, RefusesWhatIsNone) {
  for (const char* text :
       {"", "example.com", "ftp://example.com", "https://", "https:///x", "https://a@example.com/",
        "https://user:secret@example.com/", "https://example.com:0/", "https://example.com:65536/",
        "https://example.com:x/", "https://exa mple.com/", "https://example.com/a b",
        "https://example.com/\n", "https://[::1/", "https://-a/", "javascript:x"}) {
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
  EXPECT_EQ(to("/z?a=https://b"), "https://r.example.com:5000/z?a=https://b");
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
