#include "egress/minted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const WallTime kNow = *parse_time("2026-01-02T03:04:05Z");

std::string refusal(std::string_view output) {
  const auto minted = read_minted(output, std::nullopt, kNow);
  EXPECT_FALSE(minted.has_value());
  return minted.has_value() ? "" : minted.error().message();
}

TEST(Minted, APlainOutputIsTheValueWithoutTheEndOfItsLine) {
  for (const std::string_view output : {"token-1", "token-1\n", "token-1\r\n"}) {
    const auto minted = read_minted(output, std::nullopt, kNow);
    ASSERT_TRUE(minted.has_value());
    EXPECT_EQ(minted->value.bytes(), "token-1");
    EXPECT_FALSE(minted->expires.has_value());
  }
  EXPECT_THAT(refusal("warning\ntoken-1\n"), testing::HasSubstr("a line break"));
  EXPECT_EQ(read_minted("token-1", 5000, kNow)->expires, kNow + seconds(5));
}

TEST(Minted, ADocumentSaysWhenItEnds) {
  const auto minted = read_minted(
      R"({"version":1,"value":"token-1","expires_at":"2026-01-02T04:04:05+00:00","more":[]})", 5000,
      kNow);
  ASSERT_TRUE(minted.has_value()) << minted.error().message();
  EXPECT_EQ(minted->value.bytes(), "token-1");
  EXPECT_EQ(minted->expires, kNow + seconds(3600));
  EXPECT_EQ(read_minted(R"({"version":1,"value":"token-1"})", 5000, kNow)->expires,
            kNow + seconds(5));
}

TEST(Minted, WhatIsNeitherIsRefusedWithoutAWordOfIt) {
  EXPECT_THAT(refusal(""), HasSubstr("found nothing"));
  EXPECT_THAT(refusal("\n"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal("{canary"), HasSubstr("a brace, and no JSON"));
  EXPECT_THAT(refusal(R"({"value":"canary"})"), HasSubstr("without \"version\":1"));
  EXPECT_THAT(refusal(R"({"version":2,"value":"canary"})"), HasSubstr("without \"version\":1"));
  EXPECT_THAT(refusal(R"({"version":1,"token":"canary"})"), HasSubstr("a text as \"value\""));
  EXPECT_THAT(refusal(R"({"version":1,"value":""})"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal(R"({"version":1,"value":"canary","expires_at":"soon"})"),
              HasSubstr("no time of RFC 3339"));
  EXPECT_THAT(refusal(R"({"version":1,"value":"canary","expires_at":7})"),
              HasSubstr("no time of RFC 3339"));
  EXPECT_THAT(refusal(R"({"version":1,"value":"canary","expires_at":"2026-01-02T03:04:05Z"})"),
              HasSubstr("whose time is over already"));
  EXPECT_THAT(refusal(std::string(4097, 'c')), HasSubstr("more than 4096 bytes"));
  for (const char* output : {"{canary", R"({"version":2,"value":"canary"})"})
    EXPECT_EQ(refusal(output).find("canary"), std::string::npos);
}

TEST(Minted, IsReplacedAMinuteBeforeItsEndOrATenthOfItsLife) {
  EXPECT_EQ(refresh_time(kNow, kNow + seconds(3600)), kNow + seconds(3540));
  EXPECT_EQ(refresh_time(kNow, kNow + seconds(600)), kNow + seconds(540));
  EXPECT_EQ(refresh_time(kNow, kNow + seconds(100)), kNow + seconds(90));
  EXPECT_EQ(refresh_time(kNow, kNow + seconds(1)), kNow + milliseconds(900));
}

std::string written(MintedWord word) {
  const SecretBytes bytes = encode_minted(word);
  return {bytes.data(), bytes.size()};
}

TEST(MintedWord, IsReadAsItWasWritten) {
  const auto read = decode_minted(
      written({.kind = MintedWord::Kind::kValue,
               .secret = "gh",
               .minted = {.value = SecretValue("line\nline"), .expires = kNow + milliseconds(7)}}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->secret, "gh");
  EXPECT_EQ(read->minted.value.bytes(), "line\nline");
  EXPECT_EQ(read->minted.expires, kNow + milliseconds(7));
  EXPECT_EQ(decode_minted(written({.kind = MintedWord::Kind::kNone, .secret = "gh"}))->kind,
            MintedWord::Kind::kNone);
  EXPECT_EQ(decode_minted(written({}))->kind, MintedWord::Kind::kEnd);
}

TEST(MintedWord, WhatIsNoneIsRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("x\n0\nvalue"), std::string("v"), std::string("vgh"),
        std::string("vgh\n"), std::string("vgh\n0"), std::string("vgh\nx\nvalue"),
        std::string("vgh\n-1\nvalue"), std::string("vgh\n0\n"), std::string("ngh\n0\nvalue"),
        "v" + std::string(65, 'n') + "\n0\nvalue", "vgh\n0\n" + std::string(4097, 'v')})
    EXPECT_FALSE(decode_minted(bytes).has_value()) << bytes;
  // Beyond what a clock says it does not end, for what we know.
  EXPECT_TRUE(decode_minted("vgh\n9223372036854775807\nvalue")->minted.expires.has_value());
}

}  // namespace
}  // namespace caisson::egress
