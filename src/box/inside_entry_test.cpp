#include "box/inside_entry.h"

#include <gtest/gtest.h>

namespace caisson::box {
namespace {

using proto::Tag;

Result<InsideEntry> entry_of(const proto::Fields& fields) {
  return inside_entry(proto::FieldReader::parse(fields.bytes()).value());
}

TEST(InsideEntry, HasWhatTheGuestSaid) {
  const auto entry = entry_of(proto::Fields()
                                  .put_u8(Tag::kFileType, 3)
                                  .put_u32(Tag::kMode, 0104755)
                                  .put_u32(Tag::kUid, 7)
                                  .put_u64(Tag::kSize, 9)
                                  .put(Tag::kTarget, "there")
                                  .put(Tag::kName, "a/b"));
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->type, proto::FileType::kSymlink);
  EXPECT_EQ(entry->mode, 0755u);
  EXPECT_EQ(entry->all_mode, 04755u);
  EXPECT_EQ(entry->uid, 7u);
  EXPECT_EQ(entry->size, 9u);
  EXPECT_EQ(entry->target, "there");
  EXPECT_EQ(entry->name, "a/b");
}

TEST(InsideEntry, HasAKnownType) {
  EXPECT_FALSE(entry_of(proto::Fields()).has_value());
  for (const std::uint8_t type : {std::uint8_t{0}, std::uint8_t{8}}) {
    const auto entry = entry_of(proto::Fields().put_u8(Tag::kFileType, type));
    ASSERT_FALSE(entry.has_value());
    EXPECT_EQ(entry.error().code(), Code::kDataLoss);
  }
}

TEST(InsideError, NamesWhatFailedWhereTheGuestDoesNot) {
  const auto error_of = [](const proto::Fields& fields) {
    return inside_error(proto::FieldReader::parse(fields.bytes()).value(), "stat /x");
  };
  const Error told =
      error_of(proto::Fields().put_u32(Tag::kErrorCode, 5).put(Tag::kErrorMessage, "no"));
  EXPECT_EQ(told.code(), Code::kNotFound);
  EXPECT_EQ(told.message(), "inside: no");
  const Error silent = error_of(proto::Fields().put_u32(Tag::kErrorCode, 99));
  EXPECT_EQ(silent.code(), Code::kUnknown);
  EXPECT_EQ(silent.message(), "stat /x failed inside");
}

TEST(LinkStaysInside, OnlyWhatCannotLeadOut) {
  EXPECT_TRUE(link_stays_inside("a", 0));
  EXPECT_TRUE(link_stays_inside("a/b", 0));
  EXPECT_TRUE(link_stays_inside("./a", 0));
  EXPECT_TRUE(link_stays_inside("../a", 1));
  EXPECT_TRUE(link_stays_inside("../../a/b", 2));
  EXPECT_FALSE(link_stays_inside("..", 0));
  EXPECT_FALSE(link_stays_inside("../../a", 1));
  EXPECT_FALSE(link_stays_inside("a/..", 3));  // a may be a link itself
  EXPECT_FALSE(link_stays_inside("./a/../..", 3));
  EXPECT_FALSE(link_stays_inside("/etc/passwd", 9));
  EXPECT_FALSE(link_stays_inside("", 0));
  EXPECT_FALSE(link_stays_inside(std::string_view("a\0b", 3), 0));
}

TEST(IsRelativePath, OnlyNamesJoinedBySlashes) {
  EXPECT_TRUE(is_relative_path("a"));
  EXPECT_TRUE(is_relative_path("a/b c/..d"));
  for (const char* bad : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b"})
    EXPECT_FALSE(is_relative_path(bad)) << bad;
  EXPECT_FALSE(is_relative_path(std::string(256, 'x')));
  std::string deep = "x";
  for (std::size_t i = 1; i < kMostDepth; ++i) deep += "/x";
  EXPECT_TRUE(is_relative_path(deep));
  EXPECT_FALSE(is_relative_path(deep + "/x"));
}

}  // namespace
}  // namespace caisson::box
