#include "base/encoding.h"

#include <gtest/gtest.h>

namespace caisson {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const std::string_view text : {"", "abc", "\x7f", "\xc2\x80", "é", "\xed\x9f\xbf",
                                      "\xee\x80\x80", "😀", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, StopsAtTheFirstBadByte) {
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xe2\x82g", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_prefix("ab" + std::string(bad)), 2u) << base64_encode(bad);
  }
}

TEST(Base64, RoundTripsEveryLength) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    const auto back = base64_decode(base64_encode(bytes));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(base64_encode("fo"), "Zm8=");
  EXPECT_EQ(base64_encode("f"), "Zg==");
}

TEST(Base64, RefusesWhatItWouldNotWrite) {
  for (const std::string_view text :
       {"Zg", "Zg=", "Zg=a", "Z===", "====", "Zh==", "Zm9=", "Zm 8", "Zg==Zg==", "Zm8\n"}) {
    EXPECT_FALSE(base64_decode(text)) << text;
  }
}

TEST(Base64Url, HasOneTextForEachValue) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    const std::string text = base64url_encode(bytes);
    EXPECT_EQ(text.find_first_of("+/="), text.npos);
    EXPECT_EQ(base64url_decode(text), bytes);
    bytes += static_cast<char>(i * 37);
  }
  EXPECT_EQ(base64url_encode("\xfb\xff\xfe"), "-__-");
  for (const std::string_view text : {"Zg==", "+//+", "Z", "Zh", "Zm 8", "Zm8="})
    EXPECT_FALSE(base64url_decode(text)) << text;
}

TEST(Hex, HasTwoDigitsAByte) {
  EXPECT_EQ(hex_encode(""), "");
  EXPECT_EQ(hex_encode(std::string_view("\0\x0f\xa5\xff", 4)), "000fa5ff");
}

}  // namespace
}  // namespace caisson
