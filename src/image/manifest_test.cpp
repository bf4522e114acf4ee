#include "image/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::image {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string digest(char c) {
  return "sha256:" + std::string(64, c);
}

std::string described(std::string_view type, char c, const std::string& more = "") {
  return R"({"mediaType":")" + std::string(type) + R"(","digest":")" + digest(c) +
         R"(","size":12)" + more + "}";
}

std::string manifest_with(const std::string& layers,
                          std::string_view config_type = media::kOciConfig) {
  return R"({"schemaVersion":2,"config":)" + described(config_type, 'c') + R"(,"layers":[)" +
         layers + "]}";
}

std::string index_with(const std::string& entries) {
  return R"({"schemaVersion":2,"manifests":[)" + entries + "]}";
}

std::string for_platform(char c, const std::string& os, const std::string& architecture,
                         const std::string& variant = "") {
  return described(media::kOciManifest, c,
                   R"(,"platform":{"os":")" + os + R"(","architecture":")" + architecture +
                       R"(","variant":")" + variant + R"("})");
}

Index index_of(const std::string& entries) {
  return std::get<Index>(parse_manifest(index_with(entries)).value());
}

TEST(Manifest, ReadsOciAndDocker) {
  const auto oci = parse_manifest(manifest_with(described(media::kOciLayerGzip, 'a') + "," +
                                                described(media::kOciLayerZstd, 'b')),
                                  media::kOciManifest);
  ASSERT_TRUE(oci.has_value()) << oci.error().message();
  const Manifest& manifest = std::get<Manifest>(*oci);
  EXPECT_EQ(manifest.media_type, media::kOciManifest);
  EXPECT_EQ(manifest.config.digest, std::string(64, 'c'));
  ASSERT_EQ(manifest.layers.size(), 2u);
  EXPECT_EQ(manifest.layers[1].digest, std::string(64, 'b'));
  EXPECT_EQ(manifest.layers[1].size, 12u);

  const auto docker =
      parse_manifest(manifest_with(described(media::kDockerLayerGzip, 'a'), media::kDockerConfig),
                     media::kDockerManifest);
  ASSERT_TRUE(docker.has_value()) << docker.error().message();
  EXPECT_EQ(std::get<Manifest>(*docker).media_type, media::kDockerManifest);
}

TEST(Manifest, ComesBackFromWhatItIsWrittenAs) {
  const auto read = parse_manifest(manifest_with(described(media::kOciLayer, 'a'))).value();
  const Manifest& manifest = std::get<Manifest>(read);
  const auto again = parse_manifest(encode(manifest), media::kOciManifest);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(std::get<Manifest>(*again).layers, manifest.layers);
  EXPECT_EQ(std::get<Manifest>(*again).config, manifest.config);
}

TEST(Manifest, RefusesWithKeyFoundAndAllowed) {
  const std::string layer = described(media::kOciLayer, 'a');
  struct Row {
    std::string text, key;
  };
  for (const Row& row :
       {Row{"", "image manifest"}, Row{"3", "image manifest"}, Row{"{}", "schemaVersion"},
        Row{R"({"schemaVersion":"2"})", "schemaVersion"}, Row{R"({"schemaVersion":3})", "2"},
        Row{R"({"schemaVersion":2})", "config"},
        Row{R"({"schemaVersion":2,"manifests":[],"layers":[]})", "both"},
        Row{manifest_with("3"), "layers[0]"},
        Row{manifest_with(R"({"mediaType":"x","digest":"sha256:0","size":1})"), "layers[0].digest"},
        Row{manifest_with(R"({"mediaType":"x","digest":")" + digest('a') + R"(","size":-1})"),
            "layers[0].size"},
        Row{manifest_with(described("text/plain", 'a')), "layers[0].mediaType"},
        Row{index_with("{}"), "manifests[0].digest"}}) {
    const auto parsed = parse_manifest(row.text);
    ASSERT_FALSE(parsed.has_value()) << row.text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument) << row.text;
    EXPECT_THAT(parsed.error().message(), HasSubstr(row.key)) << row.text;
  }
}

TEST(Manifest, RefusesWhatIsHandedOutAsSomethingElse) {
  std::string text = manifest_with("");
  text.insert(1, R"("mediaType":")" + std::string(media::kOciManifest) + R"(",)");
  EXPECT_TRUE(parse_manifest(text, media::kOciManifest).has_value());
  EXPECT_TRUE(parse_manifest(text, "application/json").has_value());
  const auto parsed = parse_manifest(text, media::kOciIndex);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_THAT(parsed.error().message(), HasSubstr("mediaType"));
}

TEST(Manifest, SaysWhatItDoesNotSupport) {
  struct Row {
    std::string text, type, said;
  };
  for (const Row& row :
       {Row{R"({"schemaVersion":1,"fsLayers":[]})", "", "2016"},
        Row{"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws", "schema 1"},
        Row{manifest_with(
                described("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", 'a')),
            "", "foreign"},
        Row{manifest_with(described(media::kOciLayer, 'a', R"(,"urls":["https://example.com/"])")),
            "", "elsewhere"},
        Row{manifest_with(described("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", 'a')),
            "", "encrypted"},
        Row{manifest_with("", "application/vnd.example.chart+json"), "", "no container image"},
        Row{R"({"schemaVersion":2,"mediaType":"application/vnd.example+json"})", "", "mediaType"},
        Row{manifest_with(R"({"mediaType":"x","digest":"sha512:0","size":1})"), "", "SHA-256"}}) {
    const auto parsed = parse_manifest(row.text, row.type);
    ASSERT_FALSE(parsed.has_value()) << row.text;
    EXPECT_EQ(parsed.error().code(), Code::kUnimplemented) << parsed.error().message();
    EXPECT_THAT(parsed.error().message(), HasSubstr(row.said));
  }
}

TEST(Index, TheEntryOfThePlatformIsTaken) {
  const Index index =
      index_of(for_platform('1', "linux", "arm64", "v8") + "," +
               for_platform('2', "linux", "amd64") + "," + for_platform('3', "linux", "arm", "v7"));
  const auto digest_for = [&](const Platform& platform) {
    return choose(index, platform).value().manifest.digest;
  };
  EXPECT_EQ(digest_for({"linux", "amd64", ""}), std::string(64, '2'));
  EXPECT_EQ(digest_for({"linux", "arm64", ""}), std::string(64, '1'));
  EXPECT_EQ(digest_for({"linux", "arm64", "v8"}), std::string(64, '1'));
  EXPECT_EQ(digest_for({"linux", "arm", "v7"}), std::string(64, '3'));
  EXPECT_FALSE(choose(index, {"linux", "arm64", "v9"}).has_value());
  // Which of the variants of such a machine, nobody has said.
  EXPECT_FALSE(choose(index, {"linux", "arm", ""}).has_value());
}

TEST(Index, WithoutTheWantedPlatformTheOthersAreNamed) {
  const Index index =
      index_of(for_platform('1', "linux", "s390x") + "," + for_platform('2', "windows", "amd64") +
               "," + for_platform('3', "unknown", "unknown"));
  const auto chosen = choose(index, {"linux", "amd64", ""});
  ASSERT_FALSE(chosen.has_value());
  EXPECT_EQ(chosen.error().code(), Code::kNotFound);
  EXPECT_THAT(chosen.error().message(), AllOf(HasSubstr("linux/amd64"), HasSubstr("linux/s390x"),
                                              HasSubstr("windows/amd64")));
  EXPECT_EQ(chosen.error().message().find("unknown"), std::string::npos);
  EXPECT_THAT(choose(Index(), {"linux", "amd64", ""}).error().message(), HasSubstr("nothing"));
}

TEST(Index, AnOnlyEntryNeedNotNameItsPlatform) {
  const Index one = index_of(described(media::kOciManifest, '1'));
  EXPECT_TRUE(choose(one, {"linux", "amd64", ""}).has_value());
  const Index two =
      index_of(described(media::kOciManifest, '1') + "," + described(media::kOciManifest, '2'));
  EXPECT_FALSE(choose(two, {"linux", "amd64", ""}).has_value());
}

TEST(Index, NamesComeFromAnnotations) {
  const Index index = index_of(described(
      media::kOciManifest, '1', R"(,"annotations":{"org.opencontainers.image.ref.name":"a:1"})"));
  EXPECT_EQ(index.entries[0].reference_name, "a:1");
}

TEST(Index, HasNotTooManyEntries) {
  std::string entries = described(media::kOciManifest, '1');
  for (std::size_t i = 0; i < kMaxIndexEntries; ++i) {
    entries += "," + described(media::kOciManifest, '1');
  }
  const auto parsed = parse_manifest(index_with(entries));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_THAT(parsed.error().message(), HasSubstr("at most"));
}

TEST(Platform, IsReadAsItIsWritten) {
  for (const char* text : {"linux/amd64", "linux/arm64/v8"}) {
    EXPECT_EQ(parse_platform(text).value().text(), text);
  }
  for (const char* text :
       {"", "linux", "linux/", "/amd64", "linux/a/b/c", "linux/AMD", "linux/a b"}) {
    const auto parsed = parse_platform(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error().message(), HasSubstr("OS/ARCHITECTURE"));
  }
}

TEST(Layout, ItsMarkerIsChecked) {
  EXPECT_TRUE(check_layout_marker(R"({"imageLayoutVersion":"1.0.0"})").has_value());
  for (const char* text : {"", "{}", R"({"imageLayoutVersion":"2.0.0"})", "[]"}) {
    EXPECT_FALSE(check_layout_marker(text).has_value()) << text;
  }
  EXPECT_TRUE(parse_layout_index(index_with(described(media::kOciManifest, '1'))).has_value());
  EXPECT_FALSE(parse_layout_index(manifest_with("")).has_value());
}

TEST(SavedImages, AreRead) {
  const auto images = parse_saved_images(
      R"([{"Config":"c.json","RepoTags":["a:1","b:2"],"Layers":["x/layer.tar","y/layer.tar"]},
          {"Config":"blobs/sha256/d","RepoTags":null,"Layers":[]}])");
  ASSERT_TRUE(images.has_value()) << images.error().message();
  ASSERT_EQ(images->size(), 2u);
  EXPECT_THAT((*images)[0].names, ElementsAre("a:1", "b:2"));
  EXPECT_THAT((*images)[0].layers, ElementsAre("x/layer.tar", "y/layer.tar"));
  EXPECT_TRUE((*images)[1].names.empty());
}

TEST(SavedImages, RefuseNamesOutsideOfTheArchive) {
  for (const char* text :
       {"{}", "[]", R"([{"Layers":[]}])", R"([{"Config":"/etc/passwd","Layers":[]}])",
        R"([{"Config":"../c","Layers":[]}])", R"([{"Config":"c","Layers":["a/../../b"]}])",
        R"([{"Config":"c","Layers":[""]}])", R"([{"Config":"c","Layers":"x"}])"}) {
    const auto images = parse_saved_images(text);
    ASSERT_FALSE(images.has_value()) << text;
    EXPECT_THAT(images.error().message(), HasSubstr("manifest.json"));
  }
}

TEST(LayerPacking, FollowsTheMediaType) {
  EXPECT_EQ(layer_packing(media::kOciLayer), LayerPacking::kNone);
  EXPECT_EQ(layer_packing(media::kDockerLayerGzip), LayerPacking::kGzip);
  EXPECT_EQ(layer_packing(media::kOciLayerZstd), LayerPacking::kZstd);
  EXPECT_FALSE(layer_packing("application/vnd.oci.image.layer.v1.tar+bzip2"));
}

}  // namespace
}  // namespace caisson::image
