#include "api/e2b/entry.h"

#include <gtest/gtest.h>

namespace caisson::api::e2b {
namespace {

using proto::FieldReader;
using proto::FileType;
using proto::Tag;

proto::Fields file(FileType type, std::uint32_t mode) {
  proto::Fields fields;
  fields.put_u8(Tag::kFileType, static_cast<std::uint8_t>(type))
      .put_u32(Tag::kMode, mode)
      .put_u64(Tag::kSize, 12)
      .put_u32(Tag::kUid, 1000)
      .put_u32(Tag::kGid, 7)
      .put(Tag::kUserName, "user")
      .put_u64(Tag::kMtimeNs, 1'500'000'000);
  return fields;
}

std::string shown(const proto::Fields& fields, std::string_view path) {
  const Result<json::Value> entry = entry_info(FieldReader::parse(fields.bytes()).value(), path);
  return entry ? json::serialize(*entry) : "error: " + entry.error().message();
}

TEST(Entry, IsWhatTheGuestTells) {
  EXPECT_EQ(shown(file(FileType::kRegular, 0100644), "/home/user/x"),
            R"({"name":"x","type":1,"path":"/home/user/x","size":12,"mode":420,)"
            R"("permissions":"-rw-r--r--","owner":"user","group":"7","modifiedTime":1500000000})");
}

TEST(Entry, ALinkIsWhatItLeadsTo) {
  proto::Fields link = file(FileType::kSymlink, 0120777);
  link.put(Tag::kTarget, "../d").put(Tag::kResolved, "/d");
  link.put_u8(Tag::kTargetType, static_cast<std::uint8_t>(FileType::kDirectory));
  const json::Value entry = entry_info(FieldReader::parse(link.bytes()).value(), "/l").value();
  EXPECT_EQ(*entry.find("type")->as_integer(), 2);
  EXPECT_EQ(*entry.find("symlinkTarget")->as_string(), "/d");
  EXPECT_EQ(*entry.find("permissions")->as_string(), "Lrwxrwxrwx");
}

TEST(Entry, ABrokenLinkIsNothing) {
  proto::Fields link = file(FileType::kSymlink, 0120777);
  link.put(Tag::kTarget, "nowhere");
  const json::Value entry = entry_info(FieldReader::parse(link.bytes()).value(), "/l").value();
  EXPECT_EQ(*entry.find("type")->as_integer(), 0);
  EXPECT_EQ(*entry.find("symlinkTarget")->as_string(), "nowhere");
}

TEST(Entry, MetadataAreTheClientsAttributesAlone) {
  proto::Fields fields = file(FileType::kRegular, 0644);
  fields.put(Tag::kXattrName, "user.e2b.author").put(Tag::kXattrValue, "me");
  fields.put(Tag::kXattrName, "user.other").put(Tag::kXattrValue, "no");
  const json::Value entry = entry_info(FieldReader::parse(fields.bytes()).value(), "/f").value();
  EXPECT_EQ(json::serialize(*entry.find("metadata")), R"({"author":"me"})");
}

TEST(Entry, AGuestThatTellsTooLittleIsAnError) {
  proto::Fields fields;
  fields.put_u8(Tag::kFileType, 99).put_u32(Tag::kMode, 0).put_u64(Tag::kSize, 0);
  EXPECT_EQ(shown(fields, "/x"), "error: the guest told too little of /x");
}

TEST(Entry, PermissionsAreWrittenAsGoWritesThem) {
  EXPECT_EQ(permissions(FileType::kDirectory, 01777), "dtrwxrwxrwx");
  EXPECT_EQ(permissions(FileType::kRegular, 04755), "urwxr-xr-x");
  EXPECT_EQ(permissions(FileType::kCharacterDevice, 0666), "Dcrw-rw-rw-");
  EXPECT_EQ(permissions(FileType::kBlockDevice, 0660), "Drw-rw----");
  EXPECT_EQ(permissions(FileType::kFifo, 02600), "pgrw-------");
  EXPECT_EQ(permissions(FileType::kSocket, 0), "S---------");
}

}  // namespace
}  // namespace caisson::api::e2b
