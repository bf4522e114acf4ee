// Layers, good and hostile, flattened in this process under no rights but the test's own, into both
// forms.
#include <gmock/gmock.h>
#include <zstd.h>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::Listing;
using testing::Tar;

using Unpack = testing::FlattenTest;

INSTANTIATE_TEST_SUITE_P(Forms, Unpack, testing::kBothForms, testing::name_of_form);

std::string good_archive() {
  return Tar()
      .add({.name = "./", .type = '5', .mode = 0755})
      .add({.name = "etc/", .type = '5', .mode = 0750})
      .add({.name = "etc/passwd", .data = "root:x:0:0::/root:/bin/sh\n"})
      .add({.name = "bin/su", .data = "#!", .mode = 04755})
      .add({.name = "bin/sh", .type = '2', .link = "/bin/su"})
      .add({.name = "bin/hard", .type = '1', .link = "bin/su"})
      .add({.name = "run/pipe", .type = '6'})
      .bytes();
}

// What good_archive() makes.
void expect_good(const Listing& found) {
  EXPECT_EQ(found.at("etc/passwd").contents, "root:x:0:0::/root:/bin/sh\n");
  EXPECT_EQ(found.at("bin/su").mode, S_IFREG | 04755u);
  EXPECT_EQ(found.at("bin/su").seconds, 1'700'000'000);
  EXPECT_EQ(found.at("bin/su").links, 2u);
  EXPECT_EQ(found.at("bin/su").first_name, "bin/hard");
  EXPECT_EQ(found.at("bin/hard").contents, "#!");
  EXPECT_EQ(found.at("etc").mode, S_IFDIR | 0750u);
  EXPECT_EQ(found.at("etc").seconds, 1'700'000'000);
  EXPECT_EQ(found.at("bin").mode, S_IFDIR | 0755u);  // not mentioned
  EXPECT_EQ(found.at("bin").seconds, 0);
  EXPECT_EQ(found.at("bin/sh").contents, "/bin/su");
  EXPECT_EQ(found.at("run/pipe").mode, S_IFIFO | 0644u);
}

TEST_P(Unpack, MakesWhatTheLayerHolds) {
  auto report = unpack_bytes(good_archive());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->entries, 7u);
  EXPECT_EQ(report->bytes, 28u);
  expect_good(found_);
}

TEST_P(Unpack, ReadsZstd) {
  const std::string tar = good_archive();
  std::string packed(ZSTD_compressBound(tar.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), tar.data(), tar.size(), 3));
  ASSERT_TRUE(unpack_bytes(packed).has_value());
  expect_good(found_);
}

TEST_P(Unpack, ReadsGzip) {
  ASSERT_TRUE(unpack_bytes(gzip(good_archive())).has_value());
  expect_good(found_);
}

TEST_P(Unpack, RefusesToGoUp) {
  for (const char* name : {"../outside/secret", "a/../../outside/secret", "..", "a/..",
                           "/../outside/secret", "./../outside/x"}) {
    EXPECT_THAT(refusal(Tar().add({.name = name, .data = "evil"}).bytes()),
                HasSubstr("must not go up with '..'"))
        << name;
  }
}

TEST_P(Unpack, TakesAbsoluteNamesAsBelowTheRoot) {
  auto report = unpack_bytes(Tar().add({.name = directory_ / "outside/x", .data = "evil"}).bytes());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->absolute_names, 1u);
  EXPECT_EQ(text((directory_ / "outside/x").substr(1)), "evil");
}

TEST_P(Unpack, SymbolicLinksLeadNowhereButInside) {
  const std::string own = directory_ / "outside";
  for (const auto& [target, place] : std::initializer_list<std::pair<std::string, std::string>>{
           {own, own.substr(1) + "/"},
           {"../outside", "outside/"},
           {"../../../../../../outside", "outside/"},
           {"/", ""},
           {".", ""},
           {"a/../../../b", "b/"},
           {"absent", "absent/"}}) {
    unpack_layers({Tar()
                       .add({.name = "link", .type = '2', .link = target})
                       .add({.name = "link/secret", .data = "evil"})
                       .add({.name = "link/sub/secret", .data = "evil too"})});
    EXPECT_EQ(text(place + "secret"), "evil") << target;
    EXPECT_EQ(text(place + "sub/secret"), "evil too") << target;
    EXPECT_EQ(text("link"), target);
  }
}

TEST_P(Unpack, SymbolicLinksThatGoRoundAreRefused) {
  for (const char* target : {"link", "./link", "/link/x", "other"}) {
    EXPECT_THAT(refusal(Tar()
                            .add({.name = "other", .type = '2', .link = "link"})
                            .add({.name = "link", .type = '2', .link = target})
                            .add({.name = "link/secret", .data = "evil"})
                            .bytes()),
                HasSubstr("more than 40 symbolic links"))
        << target;
  }
}

TEST_P(Unpack, AWayIsAsLongAsTheKernelAllows) {
  std::string target, name = "a";
  for (int i = 0; i < 1500; ++i) target += "./";
  for (int i = 0; i < 5; ++i) name += "/" + std::string(200, 'd');
  auto way = [&](const std::string& last) {
    return Tar()
        .add_pax("linkpath", target)
        .add({.name = "a", .type = '2', .link = "x"})
        .add_pax("path", name + last)
        .add({.name = "x"})
        .bytes();
  };
  EXPECT_TRUE(unpack_bytes(way("/file")).has_value());
  EXPECT_THAT(refusal(way("/" + std::string(200, 'd') + "/file")),
              HasSubstr("more than 4095 bytes"));
}

TEST_P(Unpack, SymbolicLinksMakeNothingDeeperThanIsAllowed) {
  // Each name has 201 parts, but where it leads is deeper with each entry.
  Tar tar;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "d/";
  tar.add_pax("path", deep + "x").add({.name = "x"});
  tar.add_pax("linkpath", deep + deep).add({.name = "l", .type = '2', .link = "x"});
  EXPECT_THAT(refusal(tar.add_pax("path", "l/" + deep + "x").add({.name = "x"}).bytes()),
              HasSubstr("more than 256 directories deep"));
}

TEST_P(Unpack, AFileOfALinksNameReplacesTheLink) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .type = '2', .link = "../outside/secret"})
                               .add({.name = "x", .data = "mine"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(text("x"), "mine");
}

TEST_P(Unpack, ADirectoryOfALinksNameReplacesTheLink) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .type = '2', .link = "../outside"})
                               .add({.name = "x/", .type = '5', .mode = 0755})
                               .add({.name = "x/secret", .data = "mine"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(text("x/secret"), "mine");
}

TEST_P(Unpack, HardLinksStayInside) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "../outside/secret"}).bytes()),
              HasSubstr("hard link 'x'"));
  EXPECT_THAT(
      refusal(Tar().add({.name = "x", .type = '1', .link = directory_ / "outside/secret"}).bytes()),
      HasSubstr("hard link 'x'"));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "l", .type = '2', .link = "../outside"})
                          .add({.name = "x", .type = '1', .link = "l/secret"})
                          .bytes()),
              HasSubstr("no earlier entry"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "later"}).bytes()),
              HasSubstr("no earlier entry"));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "d/", .type = '5'})
                          .add({.name = "x", .type = '1', .link = "d"})
                          .bytes()),
              HasSubstr("is a directory"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "."}).bytes()),
              HasSubstr("root cannot be linked"));
  EXPECT_THAT(
      refusal(Tar().add({.name = "d/x"}).add({.name = "d", .type = '1', .link = "d/x"}).bytes()),
      HasSubstr("would be removed by it"));
}

TEST_P(Unpack, WritingThroughAHardLinkToALinkStaysInside) {
  // The link itself is linked; the file of its name then replaces it.
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "l", .type = '2', .link = "../outside/secret"})
                               .add({.name = "h", .type = '1', .link = "l"})
                               .add({.name = "h", .data = "evil"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(text("h"), "evil");
}

TEST_P(Unpack, AHardLinkToItselfChangesNothing) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .data = "one"})
                               .add({.name = "./x", .type = '1', .link = "x"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(text("x"), "one");
}

TEST_P(Unpack, DropsDeviceNodes) {
  auto report = unpack_bytes(Tar()
                                 .add({.name = "null", .type = '3'})
                                 .add({.name = "disk", .type = '4'})
                                 .add({.name = "file"})
                                 .bytes());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->dropped_devices, 2u);
  EXPECT_FALSE(exists("null"));
  EXPECT_FALSE(exists("disk"));
}

TEST_P(Unpack, DropsAttributesAndSaysSo) {
  auto report = unpack_bytes(
      Tar().add_pax("SCHILY.xattr.user.overlay.opaque", "y").add({.name = "file"}).bytes());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->dropped_attributes, 1u);
}

TEST_P(Unpack, TheLastOfTwoEntriesStands) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .data = "one", .mode = 0600})
                               .add({.name = "y", .type = '1', .link = "x"})
                               .add({.name = "x", .data = "two"})
                               .add({.name = "d/", .type = '5', .mode = 0700})
                               .add({.name = "d/", .type = '5', .mode = 0711})
                               .add({.name = "e/", .type = '5'})
                               .add({.name = "e", .data = "file"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(text("x"), "two");
  EXPECT_EQ(text("y"), "one");
  EXPECT_EQ(mode("d"), S_IFDIR | 0711u);
  EXPECT_EQ(text("e"), "file");
}

TEST_P(Unpack, ASetGidDirectoryGivesNothingToWhatIsMadeInIt) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "d", .type = '5', .mode = 02777, .gid = 50})
                               .add({.name = "d/file", .mode = 0604})
                               .add({.name = "d/sub", .type = '5', .mode = 0705})
                               .add({.name = "d/su", .mode = 06755, .uid = 7, .gid = 8})
                               .add({.name = "d/link", .type = '2', .link = "x"})
                               .add({.name = "d/pipe", .type = '6', .mode = 06622})
                               .bytes())
                  .has_value());
  EXPECT_EQ(mode("d"), S_IFDIR | 02777u);
  EXPECT_EQ(mode("d/file"), S_IFREG | 0604u);
  EXPECT_EQ(mode("d/sub"), S_IFDIR | 0705u);
  EXPECT_EQ(mode("d/su"), S_IFREG | 06755u);
  EXPECT_EQ(mode("d/pipe"), S_IFIFO | 0622u);
  if (geteuid() != 0) return;  // then all belongs to the caller
  EXPECT_EQ(found_.at("d").gid, 50u);
  for (const char* name : {"d/file", "d/sub", "d/link", "d/pipe"}) {
    EXPECT_EQ(found_.at(name).gid, 0u) << name;
  }
  EXPECT_EQ(found_.at("d/su").uid, 7u);
  EXPECT_EQ(found_.at("d/su").gid, 8u);
}

TEST_P(Unpack, AFileReplacesADirectoryWithAllThatIsInIt) {
  unpack_layers({Tar()
                     .add({.name = "d/x/y"})
                     .add({.name = "d", .data = "file"})
                     .add({.name = "e/x"})
                     .add({.name = "e", .type = '2', .link = "d"})
                     .add({.name = "e", .type = '5'})});
  EXPECT_EQ(text("d"), "file");
  EXPECT_THAT(names(), ElementsAre("d", "e"));
}

TEST_P(Unpack, AFileIsNoDirectory) {
  EXPECT_THAT(refusal(Tar().add({.name = "f"}).add({.name = "f/x"}).bytes()),
              HasSubstr("entry 'f/x': the way to it leads through 'f', which is no directory"));
  EXPECT_THAT(refusal(Tar().add({.name = ".", .data = "x"}).bytes()),
              HasSubstr("root must be a directory"));
}

TEST_P(Unpack, RefusesNamesThatCannotBe) {
  EXPECT_THAT(refusal(Tar().add_long_name(std::string(256, 'a')).add({.name = "x"}).bytes()),
              HasSubstr("256 bytes; at most 255"));
  std::string deep;
  for (int i = 0; i < 2100; ++i) deep += "a/";
  EXPECT_THAT(refusal(Tar().add_long_name(deep + "x").add({.name = "x"}).bytes()),
              HasSubstr("at most 4095"));
  EXPECT_THAT(refusal(Tar().add_long_name(deep.substr(0, 1000)).add({.name = "x"}).bytes()),
              HasSubstr("more than 256 directories deep"));
  EXPECT_THAT(refusal(Tar().add({.name = ""}).bytes()), HasSubstr("has no name"));
}

TEST_P(Unpack, NamesAreBytes) {
  const std::string name = "caf\xe9\n\x1b[2J";
  ASSERT_TRUE(unpack_bytes(Tar().add({.name = name, .data = "x"}).bytes()).has_value());
  EXPECT_EQ(text(name), "x");
  const std::string broken =
                        "bad\xff\xfe"
                        "utf8",
                    unicode =
                        "gr\xc3\xbc\xc3\x9f"
                        "e";
  for (const std::string& bytes : {broken, unicode}) {
    auto report =
        unpack_bytes(Tar().add_pax("path", bytes).add({.name = "x", .data = "y"}).bytes());
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(text(bytes), "y");
  }
}

TEST_P(Unpack, RefusesForeignIds) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .uid = 65536}).bytes()), HasSubstr("65536:0"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .gid = 70000}).bytes()), HasSubstr("0:70000"));
  EXPECT_THAT(refusal(Tar().add_pax("uid", "-1").add({.name = "x"}).bytes()),
              HasSubstr("ids 0 to"));
}

TEST_P(Unpack, HoldsItsLimits) {
  limits_.entries = 2;
  EXPECT_THAT(refusal(Tar().add({.name = "a"}).add({.name = "b"}).add({.name = "c"}).bytes()),
              HasSubstr("more than 2 entries"));
  limits_.bytes = 10;
  EXPECT_THAT(
      refusal(
          Tar().add({.name = "a", .data = "123456"}).add({.name = "b", .data = "12345"}).bytes()),
      HasSubstr("larger than 10 bytes"));
}

TEST_P(Unpack, AHugeHoleCountsAsItsSize) {
  EXPECT_THAT(refusal(Tar().add_hole("hole", 8'000'000'000'000'000'000).bytes()),
              HasSubstr("8000000000000000000 bytes"));
}

TEST_P(Unpack, ASizeThatTheArchiveDoesNotHoldIsDamage) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .data = "short", .size = 1 << 20}).bytes()),
              HasSubstr("damaged"));
}

TEST_P(Unpack, HoldsTheRatio) {
  // 128 MiB of zeros pack to about 130 KB with gzip.
  std::string data(128 << 20, '\0');
  const std::string archive = gzip(Tar().add({.name = "zeros", .data = std::move(data)}).bytes());
  limits_.ratio = 100;
  EXPECT_THAT(refusal(archive), HasSubstr("more than 100 times its size"));
}

TEST_P(Unpack, SeesTruncation) {
  const std::string whole = Tar()
                                .add({.name = "a", .data = std::string(100'000, 'x')})
                                .add({.name = "b", .data = std::string(100'000, 'y')})
                                .bytes();
  for (std::size_t size : {1ul, 100ul, 511ul, 600ul, 60'000ul, 150'000ul}) {
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("damaged")) << size;
  }
  const std::string packed = gzip(whole);
  EXPECT_THAT(refusal(packed.substr(0, packed.size() / 2)), HasSubstr("damaged"));
}

TEST_P(Unpack, RefusesWhatIsNoArchive) {
  EXPECT_THAT(refusal(std::string(10'000, 'x')), HasSubstr("no tar file"));
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(1000, 'x')), HasSubstr("no tar file"));
}

TEST_P(Unpack, AnEmptyLayerChangesNothing) {
  unpack_layers({Tar().add({.name = "x"}), Tar(), Tar()});
  EXPECT_THAT(names(), ElementsAre("x"));
  unpack_layers({Tar()});
  EXPECT_THAT(names(), ElementsAre());
}

TEST_P(Unpack, RefusesBadLinks) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '2', .link = ""}).bytes()),
              HasSubstr("target has 0 bytes"));
}

class FailingInput final : public ArchiveInput {
 public:
  Result<std::string_view> read() override { return fail(Error::unavailable("the wire is cut")); }
};

TEST_P(Unpack, PassesOnTheInputsError) {
  FailingInput input;
  Uncompressed tar(input, limits_.ratio);
  CountingSink sink;
  auto done = read_layer(tar, sink, limits_, {});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code(), Code::kUnavailable);
  EXPECT_EQ(done.error().message(), "the wire is cut");
}

}  // namespace
}  // namespace caisson::image
