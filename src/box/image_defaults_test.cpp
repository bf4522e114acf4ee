#include "box/image_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::box {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ImageDefaults defaults(const image::ImageConfig& config) {
  auto read = defaults_of(config, "made");
  EXPECT_TRUE(read.has_value()) << (read.has_value() ? "" : read.error().message());
  return read.has_value() ? *read : ImageDefaults();
}

std::string error(const image::ImageConfig& config) {
  const auto read = defaults_of(config, "made");
  if (read.has_value()) return "accepted";
  EXPECT_EQ(read.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(read.error().message(), HasSubstr("image made: its configuration's "));
  EXPECT_THAT(read.error().message(), HasSubstr("allowed is "));
  return read.error().message();
}

TEST(ImageDefaults, AnImageThatSaysNothingLeavesOurs) {
  image::ImageConfig config;
  config.labels = {{"a", "b"}};
  config.exposed_ports = {"80/tcp"};
  const ImageDefaults read = defaults(config);
  EXPECT_EQ(read.user, "");
  EXPECT_EQ(read.workdir, "");
  EXPECT_THAT(read.directories, IsEmpty());
  EXPECT_THAT(read.exposed_ports, ElementsAre("80/tcp"));
}

TEST(ImageDefaults, OneThatIsConfiguredIsRunByRootInTheTopDirectoryUnlessItSaysMore) {
  image::ImageConfig config;
  config.env = {"A=1", "B=x=y", "ALONE", "EMPTY="};
  EXPECT_EQ(defaults(config).user, "0");
  EXPECT_EQ(defaults(config).workdir, "/");
  EXPECT_EQ(defaults(config).env,
            (std::map<std::string, std::string>{{"A", "1"}, {"B", "x=y"}, {"EMPTY", ""}}));
  config.user = "web:staff";
  config.workdir = "srv/./x/../y";
  EXPECT_EQ(defaults(config).user, "web:staff");
  EXPECT_EQ(defaults(config).workdir, "/srv/y");
  EXPECT_THAT(defaults(config).directories, ElementsAre("/srv/y"));
}

TEST(ImageDefaults, VolumesAreDirectoriesEachOnce) {
  image::ImageConfig config;
  config.volumes = {"/data/", "/data", "/", "rel", "/../up"};
  config.workdir = "/data";
  EXPECT_THAT(defaults(config).directories, ElementsAre("/data", "/rel", "/up"));
}

TEST(ImageDefaults, WhatIsWrongIsNamedWithItsKey) {
  image::ImageConfig config;
  config.user = "a b";
  EXPECT_THAT(error(config), HasSubstr("User: found 'a b'"));
  config = {};
  config.env = {"=x"};
  EXPECT_THAT(error(config), HasSubstr("Env: found '=x'"));
  config = {};
  config.workdir = "/" + std::string(256, 'n');
  EXPECT_THAT(error(config), HasSubstr("WorkingDir: found '/nnn"));
  config = {};
  config.volumes = {"/\n" + std::string(256, 'n')};
  EXPECT_THAT(error(config), HasSubstr("Volumes: found '/\\x0a"));
  config = {};
  for (int i = 0; i < 65; ++i) config.volumes.push_back("/v" + std::to_string(i));
  EXPECT_THAT(error(config), HasSubstr("Volumes: found '65 directories'"));
}

TEST(ImageDefaults, PortsAreBounded) {
  image::ImageConfig config;
  config.exposed_ports.assign(1000, std::string(1000, '9') + "\x1b");
  const ImageDefaults read = defaults(config);
  EXPECT_EQ(read.exposed_ports.size(), 64u);
  EXPECT_EQ(read.exposed_ports[0].size(), 32u);
}

TEST(CommandLine, IsThatOfDockerRun) {
  ImageDefaults image;
  image.entrypoint = {"e", "1"};
  image.command = {"c", "2"};
  policy::SpecValues spec;
  EXPECT_THAT(command_line(image, spec, {}), ElementsAre("e", "1", "c", "2"));
  EXPECT_THAT(command_line(image, spec, {"x"}), ElementsAre("e", "1", "x"));
  spec.entrypoint = {"s"};
  EXPECT_THAT(command_line(image, spec, {}), ElementsAre("s"));
  EXPECT_THAT(command_line(image, spec, {"x"}), ElementsAre("s", "x"));
  spec.entrypoint.emplace();
  EXPECT_THAT(command_line(image, spec, {}), IsEmpty());
  EXPECT_THAT(command_line(image, spec, {"x"}), ElementsAre("x"));
  EXPECT_THAT(command_line({}, {}, {"x"}), ElementsAre("x"));
  EXPECT_THAT(command_line({}, {}, {}), IsEmpty());
}

}  // namespace
}  // namespace caisson::box
