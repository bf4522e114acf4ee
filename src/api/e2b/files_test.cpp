#include "api/e2b/files.h"

#include <gtest/gtest.h>

namespace caisson::api::e2b {
namespace {

// "first+size", "whole", or "outside".
std::string range(std::string_view header, std::uint64_t size) {
  const auto parsed = parse_range(header, size);
  if (!parsed) return "outside";
  if (!*parsed) return "whole";
  return std::to_string((*parsed)->first) + "+" + std::to_string((*parsed)->size);
}

TEST(FileRange, FirstLastAndFromTheEnd) {
  EXPECT_EQ(range("bytes=0-0", 10), "0+1");
  EXPECT_EQ(range("bytes=2-5", 10), "2+4");
  EXPECT_EQ(range("bytes=7-", 10), "7+3");
  EXPECT_EQ(range("bytes=7-100", 10), "7+3");
  EXPECT_EQ(range("bytes=-3", 10), "7+3");
  EXPECT_EQ(range("bytes=-30", 10), "0+10");
}

TEST(FileRange, WhatIsNotUnderstoodMeansTheWholeFile) {
  EXPECT_EQ(parse_range(std::nullopt, 10).value(), std::nullopt);
  for (const char* header : {"lines=1-2", "bytes=", "bytes=-", "bytes=5-2", "bytes=a-b",
                             "bytes=1-2,4-5", "bytes=99999999999999999999-", "bytes=1"})
    EXPECT_EQ(range(header, 10), "whole") << header;
}

TEST(FileRange, OutsideOfTheFileIsAnError) {
  EXPECT_EQ(range("bytes=10-", 10), "outside");
  EXPECT_EQ(range("bytes=0-", 0), "outside");
  EXPECT_EQ(range("bytes=-0", 10), "outside");
  EXPECT_EQ(range("bytes=-5", 0), "outside");
}

TEST(FileHeaders, Dates) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(FileHeaders, NamesInThePlainestForm) {
  EXPECT_EQ(inline_disposition("a b.txt"), "inline; filename=\"a b.txt\"");
  EXPECT_EQ(inline_disposition("a\"\\b"), "inline; filename=\"a\\\"\\\\b\"");
  EXPECT_EQ(inline_disposition("€\r\nX"), "inline; filename*=utf-8''%E2%82%AC%0D%0AX");
}

std::string metadata_error(const http::Headers& headers) {
  const auto metadata = metadata_headers(headers);
  return metadata ? "" : metadata.error().message();
}

TEST(FileMetadata, HeadersBecomeKeysInLowerCase) {
  const auto metadata =
      metadata_headers({{"X-Metadata-Author", "me"}, {"x-metadata-a-b", ""}, {"X-Other", "no"}});
  EXPECT_EQ(*metadata, (std::map<std::string, std::string>{{"a-b", ""}, {"author", "me"}}));
}

TEST(FileMetadata, TooLongOrNotPrintableIsRefused) {
  const std::string key(246, 'k');
  EXPECT_EQ(metadata_error({{"X-Metadata-" + key, "v"}}), "");
  EXPECT_EQ(metadata_error({{"X-Metadata-" + key + "k", "v"}}),
            "metadata: a key has 247 characters; allowed are 1 to 246");
  EXPECT_EQ(metadata_error({{"X-Metadata-", "v"}}),
            "metadata: a key has 0 characters; allowed are 1 to 246");
  EXPECT_EQ(metadata_error({{"X-Metadata-a", "\xc3\xa9"}}),
            "metadata: 'a': allowed is printable ASCII");
  EXPECT_EQ(metadata_error({{"X-Metadata-a", std::string(4095, 'v')}}), "");
  EXPECT_EQ(metadata_error({{"X-Metadata-a", std::string(4096, 'v')}}),
            "metadata: 1 keys with 4097 characters together; allowed are 64 with 4096");
}

TEST(FileMetadata, AWrittenFileHasItOnlyWhereThereIsAny) {
  EXPECT_EQ(json::serialize(written_file("/a/b", {})),
            R"({"path":"/a/b","name":"b","type":"file"})");
  EXPECT_EQ(json::serialize(written_file("/a/b", {{"k", "v"}})),
            R"({"path":"/a/b","name":"b","type":"file","metadata":{"k":"v"}})");
}

}  // namespace
}  // namespace caisson::api::e2b
