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
  for (const char* text : {"a:", "a:.", "a:-x", "a:b:c", "a:b c"}) {
    auto parsed = parse_reference(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("image tag"));
  }
  EXPECT_FALSE(parse_reference("a:" + std::string(kMaxTagSize + 1, 'a')).has_value());
}

TEST(Reference, FileNamesAreOneComponentAndComeBack) {
  const std::string digest = "@sha256:" + std::string(64, 'd');
  for (const std::string& text : {std::string("base"), std::string("a/b/c:d"),
                                  std::string("a.b/c_d:E-F"), std::string("localhost:5000/a:b"),
                                  "a/b" + digest, "registry.example.com:5000/a:b" + digest}) {
    const Reference reference = parse_reference(text).value();
    EXPECT_EQ(reference.file_name().find('/'), std::string::npos);
    EXPECT_EQ(parse_reference_file_name(reference.file_name()).value(), reference);
  }
  for (const char* name : {"base", ".new.12.12", "a%2F:b", "a%2fb"}) {
    EXPECT_FALSE(parse_reference_file_name(name).has_value()) << name;
  }
}

TEST(Reference, KnowsARegistryFromAShortName) {
  struct Row {
    const char *text, *registry, *repository, *tag;
  };
  for (const Row& row :
       {Row{"base", "", "base", "latest"}, Row{"team/base:1", "", "team/base", "1"},
        Row{"base.old:1", "", "base.old", "1"},
        Row{"localhost/base", "localhost", "base", "latest"},
        Row{"localhost:5000/base:2", "localhost:5000", "base", "2"},
        Row{"127.0.0.1:1/a/b", "127.0.0.1:1", "a/b", "latest"},
        Row{"r.example.com/team/a:x", "r.example.com", "team/a", "x"}}) {
    const Reference reference = parse_reference(row.text).value();
    EXPECT_EQ(reference.registry(), row.registry) << row.text;
    EXPECT_EQ(reference.repository(), row.repository) << row.text;
    EXPECT_EQ(reference.tag, row.tag) << row.text;
    EXPECT_EQ(parse_reference(reference.text()).value(), reference);
  }
  for (const char* text : {"a:0/b", "a:65536/b", "a:b/c", "a:/b", "a_b:1/c", "a..b/c", "a.b/",
                           ":1/a", "a:01/b", "a:1/b:2:3"}) {
    EXPECT_FALSE(parse_reference(text).has_value()) << text;
  }
}

TEST(Reference, TakesDigests) {
  const std::string digest(64, 'a');
  const Reference alone = parse_reference("r.example.com/a@sha256:" + digest).value();
  EXPECT_EQ(alone.tag, "");
  EXPECT_EQ(alone.digest, digest);
  EXPECT_EQ(alone.selector(), "sha256:" + digest);
  EXPECT_EQ(alone.text(), "r.example.com/a@sha256:" + digest);
  const Reference both = parse_reference("a:1@sha256:" + digest).value();
  EXPECT_EQ(both.text(), "a:1@sha256:" + digest);
  EXPECT_EQ(parse_reference("a:1").value().selector(), "1");
  for (const std::string& text :
       {"a@" + digest, "a@sha256:" + digest.substr(1), "a@sha512:" + digest, std::string("a@"),
        "@sha256:" + digest, "a@sha256:" + std::string(64, 'A')}) {
    EXPECT_FALSE(parse_reference(text).has_value()) << text;
  }
}

TEST(Reference, IsNeverTooLongForAFile) {
  std::string deep = "a";
  for (int i = 0; i < 63; ++i) deep += "/a";
  auto parsed = parse_reference(deep + ":" + std::string(kMaxTagSize, 't'));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_THAT(parsed.error().message(), HasSubstr("too long"));
}

TEST(Reference, PrintableQuotesEverythingElse) {
  EXPECT_EQ(printable("plain"), "plain");
  EXPECT_EQ(printable("\x1b[2J\n\xff\\"), "\\x1b[2J\\x0a\\xff\\x5c");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace caisson::image
