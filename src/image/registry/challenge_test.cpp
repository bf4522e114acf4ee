#include "image/registry/challenge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace caisson::image {
namespace {

using ::testing::HasSubstr;

TEST(Challenge, IsRead) {
  const auto all = parse_challenges(
      R"(Bearer realm="https://auth.example.com/token",service="r.example.com", scope="a,b" , Basic realm="x \"y\"")");
  ASSERT_TRUE(all.has_value()) << all.error().message();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].scheme, "bearer");
  EXPECT_EQ((*all)[0].value("service"), "r.example.com");
  EXPECT_EQ((*all)[0].value("scope"), "a,b");
  EXPECT_EQ((*all)[0].value("nothing"), "");
  EXPECT_EQ((*all)[1].scheme, "basic");
  EXPECT_EQ((*all)[1].value("realm"), "x \"y\"");
}

TEST(Challenge, TakesTheOddFormsOfTheGrammar) {
  EXPECT_EQ(parse_challenges("").value().size(), 0u);
  EXPECT_EQ(parse_challenges(" , ,").value().size(), 0u);
  EXPECT_EQ(parse_challenges("Negotiate").value().at(0).scheme, "negotiate");
  EXPECT_EQ(parse_challenges("Negotiate, Basic realm=x").value().at(1).value("realm"), "x");
  EXPECT_EQ(parse_challenges("NTLM abc==, Basic realm = \"x\"").value().at(1).value("realm"), "x");
  EXPECT_EQ(parse_challenges("basic REALM=\"x\"").value().at(0).value("realm"), "x");
}

TEST(Challenge, RefusesWhatIsMalformed) {
  for (const char* text :
       {"=", "Basic realm=\"x", "Basic realm=\"a\",realm=\"b\"", "Basic realm=\"x\" y=\"z\"",
        "Basic \"x\"", "Basic realm=\"a\nb\"", "Basic realm=\"\\"}) {
    EXPECT_FALSE(parse_challenges(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_challenges(std::string(9000, 'a')).has_value());
}

Challenge bearer(const std::string& realm) {
  return {.scheme = "bearer", .values = {{"realm", realm}, {"service", "a b&c"}}};
}

TEST(TokenUrl, AsksForReadingAlone) {
  const Url registry = parse_url("https://r.example.com/v2/").value();
  const auto url = token_url(bearer("https://auth.example.com/token?x=1"), registry, "team/tool");
  ASSERT_TRUE(url.has_value()) << url.error().message();
  EXPECT_EQ(url->text(),
            "https://auth.example.com/token?x=1&service=a%20b%26c&scope=repository%3Ateam%2Ftool%"
            "3Apull");
}

TEST(TokenUrl, NeverLeavesTlsNorPointsToThisHost) {
  const Url secure = parse_url("https://r.example.com/v2/").value();
  for (const char* realm :
       {"", "nonsense", "http://auth.example.com/", "http://r.example.com/", "https://localhost/",
        "https://127.0.0.1:1/", "http://localhost/", "ftp://auth.example.com/"}) {
    const auto url = token_url(bearer(realm), secure, "a");
    ASSERT_FALSE(url.has_value()) << realm;
    EXPECT_THAT(url.error().message(), HasSubstr("realm"));
  }
  const Url local = parse_url("http://127.0.0.1:5000/v2/").value();
  EXPECT_TRUE(token_url(bearer("http://127.0.0.1:5001/"), local, "a").has_value());
  EXPECT_TRUE(token_url(bearer("https://auth.example.com/"), local, "a").has_value());
  EXPECT_FALSE(token_url(bearer("http://auth.example.com/"), local, "a").has_value());
}

TEST(Token, IsReadFromEitherKey) {
  EXPECT_EQ(parse_token(R"({"token":"abc"})").value(), "abc");
  EXPECT_EQ(parse_token(R"({"access_token":"abc","token":""})").value(), "abc");
}

TEST(Token, IsRefusedWithoutShowingIt) {
  for (const char* text : {"{}", R"({"token":""})", R"({"token":1})", R"({"token":"sec ret"})",
                           R"({"token":"sec\r\nret: x"})"}) {
    const auto token = parse_token(text);
    ASSERT_FALSE(token.has_value()) << text;
    EXPECT_EQ(token.error().message().find("sec"), std::string::npos);
  }
}

}  // namespace
}  // namespace caisson::image
