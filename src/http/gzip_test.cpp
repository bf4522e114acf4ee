#include "http/gzip.h"

#include <gtest/gtest.h>

namespace caisson::http {
namespace {

std::string zipped(std::string_view text) {
  Gzip gzip;
  std::string out = gzip.feed(text);
  return out + gzip.finish();
}

// Fed in pieces of `piece` bytes; "error: …" where it ends so.
std::string unzipped(std::string_view bytes, std::size_t piece) {
  Gunzip gunzip;
  std::string out;
  for (;;) {
    Result<std::optional<std::string>> next = gunzip.next();
    if (!next) return "error: " + next.error().message();
    if (next->has_value()) {
      EXPECT_LE((*next)->size(), kGzipPiece);
      out += **next;
      continue;
    }
    if (bytes.empty()) break;
    gunzip.feed(std::string(bytes.substr(0, piece)));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  const Status whole = gunzip.finish();
  return whole ? out : "error: " + whole.error().message();
}

TEST(Gzip, GoesBothWaysInAnyPieces) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string bytes = zipped(text);
  EXPECT_LT(bytes.size(), text.size());
  EXPECT_EQ(unzipped(bytes, bytes.size()), text);
  EXPECT_EQ(unzipped(bytes, 1000), text);
  EXPECT_EQ(unzipped(zipped("x"), 1), "x");
  EXPECT_EQ(unzipped(zipped(""), 7), "");
}

TEST(Gzip, TakesSeveralStreamsInARow) {
  EXPECT_EQ(unzipped(zipped("one ") + zipped("") + zipped("two"), 1000), "one two");
  EXPECT_EQ(unzipped(zipped("one ") + zipped("two"), 1), "one two");
}

TEST(Gzip, ABombComesOutInPieces) {
  const std::string bomb = zipped(std::string(50 << 20, '\0'));
  EXPECT_LT(bomb.size(), 400'000u);
  Gunzip gunzip;
  gunzip.feed(bomb);
  std::size_t total = 0;
  for (;;) {
    Result<std::optional<std::string>> next = gunzip.next();
    ASSERT_TRUE(next.has_value());
    if (!next->has_value()) break;
    ASSERT_LE((*next)->size(), kGzipPiece);
    total += (*next)->size();
  }
  EXPECT_EQ(total, std::size_t{50} << 20);
}

TEST(Gzip, DamageAndCutsAreErrors) {
  const std::string bytes = zipped("hello hello hello");
  std::string damaged = bytes;
  damaged[bytes.size() - 5] ^= 1;
  const char* const kDamaged = "error: the gzip stream is damaged, or is none";
  EXPECT_EQ(unzipped(damaged, 1000), kDamaged);
  EXPECT_EQ(unzipped("plain text", 1000), kDamaged);
  EXPECT_EQ(unzipped(bytes + "rest", 1000), kDamaged);
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, bytes.size() - 1})
    EXPECT_EQ(unzipped(std::string_view(bytes).substr(0, length), 1000),
              "error: the gzip stream is cut off");
}

TEST(GzipAsked, OnlyWhereNothingElseWouldDo) {
  EXPECT_EQ(coding_for(std::nullopt), Coding::kIdentity);
  EXPECT_EQ(coding_for(""), Coding::kIdentity);
  EXPECT_EQ(coding_for("gzip"), Coding::kGzip);
  EXPECT_EQ(coding_for("GZIP;q=0.5, identity"), Coding::kGzip);
  EXPECT_EQ(coding_for("gzip, deflate"), Coding::kIdentity);
  EXPECT_EQ(coding_for("gzip, deflate;q=0"), Coding::kGzip);
  EXPECT_EQ(coding_for("*"), Coding::kIdentity);
  EXPECT_EQ(coding_for("gzip;q=0"), Coding::kIdentity);
  EXPECT_EQ(coding_for("gzip, br, identity;q=0"), Coding::kGzip);
  EXPECT_EQ(coding_for("identity;q=0"), Coding::kNone);
  EXPECT_EQ(coding_for("br, *;q=0.000"), Coding::kNone);
}

}  // namespace
}  // namespace caisson::http
