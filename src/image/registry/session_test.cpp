#include "image/registry/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/registry/names.h"

namespace caisson::image {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(RetryAfter, IsSecondsOrADate) {
  EXPECT_EQ(parse_retry_after("0", 0), seconds(0));
  EXPECT_EQ(parse_retry_after("120", 0), seconds(120));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50), seconds(10));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 5000), seconds(0));
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

RegistryName name_of(const char* text, const char* setting) {
  policy::Settings settings;
  settings.default_registry = setting;
  return registry_name(parse_reference(text).value(), settings).value();
}

TEST(RegistryName, ComesFromTheReferenceOrTheSetting) {
  EXPECT_EQ(name_of("r.example.com:5000/a/b:1", "").registry, "r.example.com:5000");
  EXPECT_EQ(name_of("r.example.com:5000/a/b:1", "d.example.com").repository, "a/b");
  EXPECT_EQ(name_of("tool", "d.example.com").registry, "d.example.com");
  EXPECT_EQ(name_of("tool", "d.example.com").repository, "tool");
  EXPECT_EQ(name_of("tool", "d.example.com/library").repository, "library/tool");
  EXPECT_EQ(name_of("team/tool", "d.example.com/library").repository, "team/tool");
}

TEST(RegistryName, WithoutASettingTheErrorSaysWhichToMake) {
  const auto name = registry_name(parse_reference("tool:1").value(), {});
  ASSERT_FALSE(name.has_value());
  EXPECT_THAT(name.error().message(), HasSubstr("default_registry"));
  EXPECT_THAT(name.error().message(), HasSubstr("config.yaml"));
  EXPECT_THAT(name.error().message(), HasSubstr("HOST/tool:1"));
}

TEST(MappedName, IsTheLocalImageOfASetting) {
  policy::Settings settings;
  settings.images = {{"ubuntu:22.04", "base"}, {"python", "code:1"}};
  const auto mapped = [&](const char* text) {
    return mapped_name(parse_reference(text).value(), settings).value();
  };
  EXPECT_EQ(mapped("ubuntu:22.04")->text(), "base:latest");
  EXPECT_EQ(mapped("python:latest")->text(), "code:1");
  EXPECT_FALSE(mapped("ubuntu:24.04"));
  EXPECT_EQ(local_name("python", settings).value(), "code:1");
  EXPECT_EQ(local_name("ubuntu", settings).value(), "ubuntu");
  EXPECT_EQ(local_name("sha256:0", settings).value(), "sha256:0");
  EXPECT_EQ(with_pull_hint(Error::not_found("no image"), "ubuntu").message(),
            "no image; `caisson image pull ubuntu:latest` gets it from a registry");
  EXPECT_EQ(with_pull_hint(Error::not_found("no image"), "sha256:0").message(), "no image");
  EXPECT_EQ(with_pull_hint(Error::invalid("no name"), "ubuntu").message(), "no name");
  settings.images = {{"Bad Name", "base"}};
  EXPECT_FALSE(mapped_name(parse_reference("a").value(), settings).has_value());
}

}  // namespace
}  // namespace caisson::image
