#include "egress/secrets/decoding.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

struct Case {
  Decoding decoding;
  std::string_view raw, text;
};

using std::string_view_literals::operator""sv;

TEST(Decoding, TakesEscapesBackAndLeavesTheRest) {
  const std::vector<Case> cases = {
      {Decoding::kNone, "a%41\\u0041", "a%41\\u0041"},
      {Decoding::kPercent, "a%41%7a%7A.", "aAzz."},
      {Decoding::kPercent, "%", "%"},
      {Decoding::kPercent, "%4", "%4"},
      {Decoding::kPercent, "%4g%41", "%4gA"},
      {Decoding::kPercent, "%%41", "%A"},
      {Decoding::kPercent, "%4%41", "%4A"},
      {Decoding::kPercent, "%2541", "%41"},
      {Decoding::kPercent, "%00", "\0"sv},
      {Decoding::kJson, R"(a\u0041\"\\\/\b\f\n\r\t)", "aA\"\\/\b\f\n\r\t"},
      {Decoding::kJson, R"(\u00e9\u20AC)", "é€"},
      {Decoding::kJson, R"(\ud83d\ude00)", "\xf0\x9f\x98\x80"},
      {Decoding::kJson, R"(\ud83d\u0041)", R"(\ud83dA)"},
      {Decoding::kJson, R"(\ud83d\n)", "\\ud83d\n"},
      {Decoding::kJson, R"(\ud83dx)", R"(\ud83dx)"},
      {Decoding::kJson, R"(\ude00)", R"(\ude00)"},
      {Decoding::kJson, R"(\ud83d\ude0)", R"(\ud83d\ude0)"},
      {Decoding::kJson, R"(\u004\u0041)", R"(\u004A)"},
      {Decoding::kJson, R"(\x\u00zz)", R"(\x\u00zz)"},
      {Decoding::kJson, R"(\\u0041)", R"(\u0041)"},
      {Decoding::kJson, "\\", "\\"},
      {Decoding::kJsonDeep, R"(\\\\u0041\\\u0042\u0043)", "ABC"},
      {Decoding::kJsonDeep, R"(\\\"a\\/b\\q\\)", R"("a/b\q\)"},
      {Decoding::kJsonDeep, R"(\\ud83d\\ude00)", "\xf0\x9f\x98\x80"},
      {Decoding::kBase64, "a-_+/", "a+/+/"},
      {Decoding::kBase64, "a \r\n\tb", "ab"},
      {Decoding::kBase64, "a      b", "a  b"},
      {Decoding::kLower, "aBC-9", "abc-9"},
      {Decoding::kWide, "a\0b\0\0\0c"sv, "abc"},
      {Decoding::kWide, "a\0\0\0\0b"sv, "a\0b"sv},
  };
  for (const Case& c : cases) EXPECT_EQ(decode(c.raw, c.decoding).text, c.text) << c.raw;
}

TEST(Decoding, MoreBackslashesThanAnyEscapeHasAreSeveral) {
  EXPECT_EQ(decode(std::string(32, '\\') + "/", Decoding::kJsonDeep).text, "/");
  EXPECT_EQ(decode(std::string(33, '\\') + "/", Decoding::kJsonDeep).text, "\\/");
}

TEST(Decoding, KnowsWhereEachByteStood) {
  const DecodedText text = decode(R"(a\u0041\u00e9b\)", Decoding::kJson);
  EXPECT_EQ(text.text,
            "aA\xc3\xa9"
            "b\\");
  EXPECT_EQ(text.begins, (std::vector<std::size_t>{0, 1, 7, 7, 13, 14}));
  EXPECT_EQ(text.ends, (std::vector<std::size_t>{1, 7, 13, 13, 14, 15}));
}

TEST(Decoding, SaysWhereAnEscapeBeganThatHasNotEnded) {
  Decoder decoder(Decoding::kPercent);
  Decoder::Output out;
  decoder.push({'a', 5, 6}, out);
  EXPECT_EQ(decoder.pending(), std::nullopt);
  decoder.push({'%', 6, 7}, out);
  decoder.push({'4', 7, 8}, out);
  EXPECT_EQ(decoder.pending(), 6u);
  decoder.push({'1', 8, 9}, out);
  EXPECT_EQ(decoder.pending(), std::nullopt);
  ASSERT_EQ(out.count, 2u);
  EXPECT_EQ(out.bytes[1].byte, 'A');
  EXPECT_EQ(out.bytes[1].begin, 6u);
  EXPECT_EQ(out.bytes[1].end, 9u);
}

TEST(Encoding, EscapesWhatAUrlHasNoPlaceFor) {
  EXPECT_EQ(percent_encode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encode("a b/&=+%\xff"), "a%20b%2F%26%3D%2B%25%FF");
}

TEST(Encoding, EscapesWhatAJsonStringHasNoPlaceFor) {
  EXPECT_EQ(json_escape("a\"\\/é"), "a\\\"\\\\/é");
  EXPECT_EQ(json_escape("\n\x1f"), "\\u000a\\u001f");
}

}  // namespace
}  // namespace caisson::egress
