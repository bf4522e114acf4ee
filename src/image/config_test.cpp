#include "image/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kDiffId(64, 'd');

std::string config_with(const std::string& run) {
  return R"({"os":"linux","architecture":"amd64","config":)" + run +
         R"(,"rootfs":{"type":"layers","diff_ids":["sha256:)" + kDiffId + R"("]}})";
}

TEST(ImageConfig, ReadsWhatAnImageSays) {
  const auto config = parse_image_config(config_with(R"({
    "User":"app:staff","WorkingDir":"/srv","Entrypoint":["/bin/app","-v"],"Cmd":["serve"],
    "Env":["PATH=/bin","EMPTY="],"Volumes":{"/data":{}},"ExposedPorts":{"80/tcp":{},"53/udp":{}},
    "Labels":{"a":"b"},"StopSignal":"SIGINT","Shell":["/bin/sh","-c"],"OnBuild":["RUN x"],
    "SomethingNew":[1,2]})"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->user, "app:staff");
  EXPECT_EQ(config->workdir, "/srv");
  EXPECT_THAT(config->entrypoint, ElementsAre("/bin/app", "-v"));
  EXPECT_THAT(config->cmd, ElementsAre("serve"));
  EXPECT_THAT(config->env, ElementsAre("PATH=/bin", "EMPTY="));
  EXPECT_THAT(config->volumes, ElementsAre("/data"));
  EXPECT_THAT(config->exposed_ports, ElementsAre("80/tcp", "53/udp"));
  EXPECT_EQ(config->labels.at("a"), "b");
  EXPECT_EQ(config->stop_signal, "SIGINT");
  EXPECT_THAT(config->shell, ElementsAre("/bin/sh", "-c"));
  EXPECT_THAT(config->on_build, ElementsAre("RUN x"));
  EXPECT_THAT(config->diff_ids, ElementsAre(kDiffId));
}

TEST(ImageConfig, TakesNullForWhatIsAbsent) {
  const auto config = parse_image_config(
      config_with(R"({"Entrypoint":null,"Cmd":null,"Env":null,"Volumes":null,"Labels":null})"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_TRUE(config->entrypoint.empty());
  EXPECT_TRUE(parse_image_config(config_with("null")).has_value());
}

TEST(ImageConfig, RefusesWithKeyFoundAndAllowed) {
  struct Row {
    std::string text, key;
  };
  for (const Row& row :
       {Row{"", "image configuration"}, Row{"[]", "image configuration"}, Row{"{}", "os"},
        Row{R"({"os":"linux"})", "architecture"}, Row{R"({"os":1})", "os"},
        Row{R"({"os":"linux","architecture":"amd64"})", "rootfs.type"},
        Row{R"({"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["x"]}})",
            "rootfs.diff_ids[0]"},
        Row{config_with("[]"), "config"}, Row{config_with(R"({"Cmd":"sh"})"), "config.Cmd"},
        Row{config_with(R"({"Cmd":[1]})"), "config.Cmd[0]"},
        Row{config_with(R"({"Cmd":[null]})"), "config.Cmd[0]"},
        Row{config_with(R"({"Env":["a\u0000b"]})"), "config.Env[0]"},
        Row{config_with(R"({"User":7})"), "config.User"},
        Row{config_with(R"({"Volumes":["/x"]})"), "config.Volumes"},
        Row{config_with(R"({"Labels":{"a":1}})"), "config.Labels.a"}}) {
    const auto config = parse_image_config(row.text);
    ASSERT_FALSE(config.has_value()) << row.text;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument) << row.text;
    EXPECT_THAT(config.error().message(), HasSubstr(row.key)) << row.text;
  }
}

// Time in proportion to the text: a quadratic reader would not end within a test's time limit.
TEST(ImageConfig, ReadsAndWritesVeryManyKeys) {
  std::string labels, ports;
  for (int i = 0; i < 90'000; ++i) {
    const std::string comma = i == 0 ? "" : ",";
    labels += comma + "\"k" + std::to_string(i) + "\":\"\"";
    ports += comma + "\"" + std::to_string(i) + "\":{}";
  }
  const auto config = parse_image_config(
      config_with("{\"Labels\":{" + labels + "},\"ExposedPorts\":{" + ports + "}}"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->labels.size(), 90'000u);
  const auto again = parse_image_config(encode(*config));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->labels, config->labels);
  EXPECT_EQ(again->exposed_ports, config->exposed_ports);
}

TEST(ImageConfig, WritesARepeatedKeyOnce) {
  ImageConfig config;
  config.os = "linux";
  config.architecture = "amd64";
  config.volumes = {"/b", "/a", "/b"};
  EXPECT_THAT(parse_image_config(encode(config)).value().volumes, ElementsAre("/b", "/a"));
}

TEST(ImageConfig, RefusesOtherDigests) {
  const auto config = parse_image_config(
      R"({"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["sha512:00"]}})");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), Code::kUnimplemented);
}

TEST(ImageConfig, RefusesTooManyLayers) {
  std::string ids = "\"sha256:" + kDiffId + "\"";
  for (std::size_t i = 0; i < kMaxLayers; ++i) ids += ",\"sha256:" + kDiffId + "\"";
  const auto config =
      parse_image_config(R"({"os":"linux","architecture":"amd64","rootfs":{"type":"layers",)"
                         R"("diff_ids":[)" +
                         ids + "]}}");
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(config.error().message(), HasSubstr("at most"));
}

TEST(ImageConfig, WrittenAndReadIsTheSame) {
  ImageConfig config;
  config.architecture = "arm64";
  config.variant = "v8";
  config.created = "2026-01-01T00:00:00Z";
  config.author = "somebody";
  config.entrypoint = {"/bin/sh"};
  config.cmd = {"-c", "echo \"x\"\n"};
  config.env = {"A=1"};
  config.user = "1000:1000";
  config.workdir = "/w";
  config.volumes = {"/data"};
  config.exposed_ports = {"1/tcp"};
  config.labels = {{"k", "v"}};
  config.stop_signal = "SIGTERM";
  config.shell = {"/bin/sh", "-c"};
  config.on_build = {"RUN y"};
  config.diff_ids = {kDiffId, kDiffId};
  config.history = {{.created = "2026-01-01T00:00:00Z", .created_by = "RUN x"},
                    {.comment = "nothing", .empty_layer = true}};
  const auto again = parse_image_config(encode(config));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, config);
  EXPECT_EQ(encode(*again), encode(config));
}

}  // namespace
}  // namespace caisson::image
