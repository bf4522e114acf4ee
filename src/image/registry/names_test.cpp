#include "image/registry/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::HasSubstr;

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
