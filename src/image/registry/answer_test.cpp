#include "image/registry/answer.h"

#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using std::chrono::seconds;

TEST(RetryAfter, IsSecondsOrADate) {
  EXPECT_EQ(parse_retry_after("0", 0), seconds(0));
  EXPECT_EQ(parse_retry_after("120", 0), seconds(120));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50), seconds(10));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 5000), seconds(0));
  // So much that it must not be reckoned with, and a date in other ages.
  EXPECT_EQ(parse_retry_after("9223372036854775807", 0), kMostRetryAfter);
  EXPECT_EQ(parse_retry_after("Fri, 31 Dec 9999 00:01:00 GMT", 0), kMostRetryAfter);
  for (const char* text : {"", "-1", "1.5", "soon", "120 ", "Thu, 01 Jan 1970 00:01:00 CET"}) {
    EXPECT_FALSE(parse_retry_after(text, 0)) << text;
  }
}

TEST(ContentRange, SaysWhereItBegins) {
  EXPECT_EQ(parse_range_start("bytes 100-199/200"), 100u);
  EXPECT_EQ(parse_range_start("bytes 0-0/*"), 0u);
  for (const char* text : {"", "bytes */200", "bytes 1", "items 1-2/3", "bytes -2/3"}) {
    EXPECT_FALSE(parse_range_start(text)) << text;
  }
}

TEST(ErrorMessages, AreShownForPeople) {
  EXPECT_EQ(error_messages(R"({"errors":[{"code":"DENIED","message":"go away"}]})"), "go away");
  EXPECT_EQ(error_messages(R"({"errors":[{"code":"DENIED"},{"message":"\u001b[2J"}]})"),
            "DENIED, \\x1b[2J");
  for (const char* text : {"", "<html>", "[]", "{}", R"({"errors":3})", R"({"errors":[1]})"}) {
    EXPECT_EQ(error_messages(text), "") << text;
  }
}

}  // namespace
}  // namespace caisson::image
