#include "http/message.h"

#include <gtest/gtest.h>

namespace caisson::http {
namespace {

TEST(Headers, NamesKnowNoCaseAndTheFirstIsGiven) {
  Headers headers{{"Accept", "a"}, {"ACCEPT", "b"}};
  EXPECT_EQ(headers.get("accept"), "a");
  EXPECT_EQ(headers.joined("Accept"), "a, b");
  EXPECT_FALSE(headers.has("Accept-Encoding"));
  EXPECT_EQ(headers.joined("Other"), "");
}

TEST(Headers, SetReplacesAllOfAName) {
  Headers headers{{"A", "1"}, {"B", "2"}, {"a", "3"}};
  headers.set("A", "4");
  EXPECT_EQ(headers.joined("a"), "4");
  EXPECT_EQ(headers.all().size(), 2U);
}

struct Path {
  const char* target;
  const char* path;
  std::vector<std::string> segments;
};

TEST(Target, IsSplitBeforeItIsDecoded) {
  for (const Path& expected :
       {Path{"/", "/", {}}, Path{"/a", "/a", {"a"}}, Path{"/a/", "/a/", {"a", ""}},
        Path{"//a", "//a", {"", "a"}}, Path{"/a%2Fb/c", "/a/b/c", {"a/b", "c"}},
        Path{"/a+b%20c", "/a+b c", {"a+b c"}}, Path{"/%C3%a4", "/\xc3\xa4", {"\xc3\xa4"}},
        Path{"/../x", "/../x", {"..", "x"}}, Path{"http://example.com/a/b", "/a/b", {"a", "b"}},
        Path{"http://example.com", "/", {}}, Path{"https://example.com/?a", "/", {}}}) {
    const auto target = parse_target(expected.target);
    ASSERT_TRUE(target.has_value()) << expected.target;
    EXPECT_EQ(target->path, expected.path);
    EXPECT_EQ(target->segments, expected.segments);
  }
}

TEST(Target, QueryIsDecodedInOrder) {
  const auto target = parse_target("/?a=1&b=x+y%2B%26&a=2&&c&=d&e=f=g");
  ASSERT_TRUE(target.has_value());
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"a", "1"}, {"b", "x y+&"}, {"a", "2"}, {"c", ""}, {"", "d"}, {"e", "f=g"}};
  EXPECT_EQ(target->query, expected);
  EXPECT_EQ(target->query_value("a"), "1");
  EXPECT_EQ(target->query_value("c"), "");
  EXPECT_FALSE(target->query_value("x").has_value());
}

TEST(Target, RefusesMalformedEscapesAndZeroBytes) {
  for (const char* target :
       {"/%", "/%1", "/%zz", "/a%00", "/?%", "/?a=%0", "/?a=%00", "", "*", "x", "x:80"})
    EXPECT_FALSE(parse_target(target).has_value()) << target;
}

TEST(Reason, HasANameForWhatWeAnswer) {
  EXPECT_EQ(reason_of(404), "Not Found");
  EXPECT_EQ(reason_of(599), "");
}

}  // namespace
}  // namespace caisson::http
