#include "image/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::HasSubstr;

TEST(Reference, TakesNamesAndTags) {
  EXPECT_EQ(parse_reference("base").value(), (Reference{"base", "latest"}));
  EXPECT_EQ(parse_reference("base:1.0").value(), (Reference{"base", "1.0"}));
  EXPECT_EQ(parse_reference("team/py_thon-3.12:Slim_1").value(),
            (Reference{"team/py_thon-3.12", "Slim_1"}));
  EXPECT_EQ(parse_reference("0").value().text(), "0:latest");
}

TEST(Reference, RefusesWhatIsNoName) {
  for (const char* text : {"", "Base", "-base", "base-", ".", "..", "../etc", "/etc", "a//b", "a/",
                           "a/./b", "a b", "a%2fb", "ba\nse", ":tag", "host", "host:latest"}) {
    auto parsed = parse_reference(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("image name"));
  }
  EXPECT_FALSE(parse_reference(std::string(kMaxNameSize + 1, 'a')).has_value());
  EXPECT_TRUE(parse_reference(std::string(kMaxNameSize, 'a')).has_value());
}

TEST(Reference, RefusesWhatIsNoTag) {
  for (const char* text : {"a:", "a:.", "a:-x", "a:b/c", "a:b:c", "a:b c"}) {
    auto parsed = parse_reference(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("image tag"));
  }
  EXPECT_FALSE(parse_reference("a:" + std::string(kMaxTagSize + 1, 'a')).has_value());
}

TEST(Reference, FileNamesAreOneComponentAndComeBack) {
  for (const char* text : {"base", "a/b/c:d", "a.b/c_d:E-F"}) {
    const Reference reference = parse_reference(text).value();
    EXPECT_EQ(reference.file_name().find('/'), std::string::npos);
    EXPECT_EQ(parse_reference_file_name(reference.file_name()).value(), reference);
  }
  for (const char* name : {"base", ".new.12.12", "a%2F:b", "a%2fb"}) {
    EXPECT_FALSE(parse_reference_file_name(name).has_value()) << name;
  }
}

TEST(Reference, PrintableQuotesEverythingElse) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("\x1b[2J\n\xff\\"), "\\x1b[2J\\x0a\\xff\\x5c");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace caisson::image
