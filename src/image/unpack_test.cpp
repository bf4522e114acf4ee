// The extractor in this process, onto a directory and under no rights but the test's own.
#include "image/worker/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>

#include "image/archive_for_test.h"
#include "image/files.h"
#include "image/worker/directory_destination.h"

namespace caisson::image {
namespace {

using ::testing::HasSubstr;
using testing::read_text;
using testing::Tar;
using testing::TemporaryDirectory;

class TextInput final : public ArchiveInput {
 public:
  explicit TextInput(std::string_view text) : rest_(text) {}
  Result<std::string_view> read() override {
    const std::string_view piece = rest_.substr(0, 10'000);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
};

class Unpack : public ::testing::Test {
 protected:
  Unpack() {
    std::filesystem::create_directories(directory_ / "outside");
    std::ofstream(directory_ / "outside/secret") << "untouched";
    root_ = open_or_make_directory(directory_ / "root").value();
  }

  // Whatever the archive was, nothing beside the root has changed.
  ~Unpack() override {
    EXPECT_EQ(read_text(directory_ / "outside/secret"), "untouched");
    EXPECT_EQ(list_directory(open_directory_at(root_.get(), "..").value().get()).value(),
              (std::vector<std::string>{"outside", "root"}));
    EXPECT_EQ(list_directory(open_or_make_directory(directory_ / "outside").value().get()).value(),
              std::vector<std::string>{"secret"});
  }

  Result<UnpackReport> unpack_bytes(std::string_view bytes) {
    TextInput input(bytes);
    DirectoryDestination destination(root_.get(), IdLayout::kSingle);
    return unpack(input, destination, limits_);
  }
  // The message of a refusal, which must blame the archive.
  std::string refusal(std::string_view bytes) {
    auto done = unpack_bytes(bytes);
    if (done.has_value()) return "it was taken";
    EXPECT_EQ(done.error().code(), Code::kInvalidArgument) << done.error().message();
    return done.error().message();
  }
  std::string root(std::string_view name) { return directory_ / ("root/" + std::string(name)); }
  bool exists(std::string_view name) {
    struct stat status = {};
    return lstat(root(name).c_str(), &status) == 0;
  }

  TemporaryDirectory directory_;
  Fd root_;
  UnpackLimits limits_;
};

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

void expect_good(Unpack&, const std::string& root) {
  EXPECT_EQ(read_text(root + "etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
  struct stat status = {}, other = {};
  ASSERT_EQ(lstat((root + "bin/su").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 04755u);
  EXPECT_EQ(status.st_mtime, 1'700'000'000);
  ASSERT_EQ(lstat((root + "bin/hard").c_str(), &other), 0);
  EXPECT_EQ(status.st_ino, other.st_ino);
  ASSERT_EQ(lstat((root + "etc").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0750u);
  EXPECT_EQ(status.st_mtime, 1'700'000'000);
  EXPECT_EQ(std::filesystem::read_symlink(root + "bin/sh"), "/bin/su");
  ASSERT_EQ(lstat((root + "run/pipe").c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
}

TEST_F(Unpack, MakesWhatTheArchiveHolds) {
  auto report = unpack_bytes(good_archive());
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->entries, 7u);
  EXPECT_EQ(report->bytes, 28u);
  expect_good(*this, root(""));
}

TEST_F(Unpack, ReadsZstd) {
  const std::string tar = good_archive();
  std::string packed(ZSTD_compressBound(tar.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), tar.data(), tar.size(), 3));
  ASSERT_TRUE(unpack_bytes(packed).has_value());
  expect_good(*this, root(""));
}

std::string gzip(std::string_view bytes) {
  z_stream stream = {};
  VERIFY(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  VERIFY(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

TEST_F(Unpack, ReadsGzip) {
  ASSERT_TRUE(unpack_bytes(gzip(good_archive())).has_value());
  expect_good(*this, root(""));
}

TEST_F(Unpack, RefusesToGoUp) {
  for (const char* name : {"../outside/secret", "a/../../outside/secret", "..", "a/..",
                           "/../outside/secret", "./../outside/x"}) {
    EXPECT_THAT(refusal(Tar().add({.name = name, .data = "evil"}).bytes()),
                HasSubstr("must not go up with '..'"))
        << name;
  }
}

TEST_F(Unpack, TakesAbsoluteNamesAsBelowTheRoot) {
  auto report = unpack_bytes(Tar().add({.name = directory_ / "outside/x", .data = "evil"}).bytes());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->absolute_names, 1u);
  EXPECT_EQ(read_text(root(directory_ / "outside/x")), "evil");
}

TEST_F(Unpack, GoesThroughNoSymbolicLink) {
  for (const std::string& target : {directory_ / "outside", std::string("../outside"),
                                    std::string("/"), std::string("."), std::string("absent")}) {
    EXPECT_THAT(refusal(Tar()
                            .add({.name = "link", .type = '2', .link = target})
                            .add({.name = "link/secret", .data = "evil"})
                            .bytes()),
                HasSubstr("symbolic link"))
        << target;
    EXPECT_THAT(refusal(Tar()
                            .add({.name = "link", .type = '2', .link = target})
                            .add({.name = "link/a/secret", .data = "evil"})
                            .bytes()),
                HasSubstr("symbolic link"))
        << target;
  }
}

TEST_F(Unpack, AFileOfALinksNameReplacesTheLink) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .type = '2', .link = "../outside/secret"})
                               .add({.name = "x", .data = "mine"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(read_text(root("x")), "mine");
}

TEST_F(Unpack, ADirectoryOfALinksNameReplacesTheLink) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .type = '2', .link = "../outside"})
                               .add({.name = "x/", .type = '5', .mode = 0755})
                               .add({.name = "x/secret", .data = "mine"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(read_text(root("x/secret")), "mine");
}

TEST_F(Unpack, HardLinksStayInside) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "../outside/secret"}).bytes()),
              HasSubstr("hard link 'x'"));
  EXPECT_THAT(
      refusal(Tar().add({.name = "x", .type = '1', .link = directory_ / "outside/secret"}).bytes()),
      HasSubstr("hard link 'x'"));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "l", .type = '2', .link = "../outside"})
                          .add({.name = "x", .type = '1', .link = "l/secret"})
                          .bytes()),
              HasSubstr("symbolic link"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "later"}).bytes()),
              HasSubstr("no earlier entry"));
  EXPECT_THAT(refusal(Tar()
                          .add({.name = "d/", .type = '5'})
                          .add({.name = "x", .type = '1', .link = "d"})
                          .bytes()),
              HasSubstr("to the directory"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '1', .link = "."}).bytes()),
              HasSubstr("root cannot be linked"));
  struct stat status = {};
  ASSERT_EQ(stat((directory_ / "outside/secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_nlink, 1u);
}

TEST_F(Unpack, WritingThroughAHardLinkToALinkStaysInside) {
  // The link itself is linked; the file of its name then replaces it.
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "l", .type = '2', .link = "../outside/secret"})
                               .add({.name = "h", .type = '1', .link = "l"})
                               .add({.name = "h", .data = "evil"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(read_text(root("h")), "evil");
}

TEST_F(Unpack, AHardLinkToItselfChangesNothing) {
  ASSERT_TRUE(unpack_bytes(Tar()
                               .add({.name = "x", .data = "one"})
                               .add({.name = "./x", .type = '1', .link = "x"})
                               .bytes())
                  .has_value());
  EXPECT_EQ(read_text(root("x")), "one");
}

TEST_F(Unpack, DropsDeviceNodes) {
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

TEST_F(Unpack, DropsAttributesAndSaysSo) {
  auto report = unpack_bytes(
      Tar().add_pax("SCHILY.xattr.user.overlay.opaque", "y").add({.name = "file"}).bytes());
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->dropped_attributes, 1u);
}

TEST_F(Unpack, TheLastOfTwoEntriesStands) {
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
  EXPECT_EQ(read_text(root("x")), "two");
  EXPECT_EQ(read_text(root("y")), "one");
  struct stat status = {};
  ASSERT_EQ(stat(root("d").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0711u);
  EXPECT_EQ(read_text(root("e")), "file");
}

TEST_F(Unpack, AFullDirectoryIsNotReplaced) {
  EXPECT_THAT(refusal(Tar().add({.name = "d/x"}).add({.name = "d", .data = "file"}).bytes()),
              HasSubstr("not empty"));
}

TEST_F(Unpack, AFileIsNoDirectory) {
  EXPECT_THAT(refusal(Tar().add({.name = "f"}).add({.name = "f/x"}).bytes()), HasSubstr("'f/x'"));
  EXPECT_THAT(refusal(Tar().add({.name = ".", .data = "x"}).bytes()),
              HasSubstr("root must be a directory"));
}

TEST_F(Unpack, RefusesNamesThatCannotBe) {
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

TEST_F(Unpack, NamesAreBytes) {
  const std::string name = "caf\xe9\n\x1b[2J";
  ASSERT_TRUE(unpack_bytes(Tar().add({.name = name, .data = "x"}).bytes()).has_value());
  EXPECT_EQ(read_text(root(name)), "x");
  const std::string broken =
                        "bad\xff\xfe"
                        "utf8",
                    unicode =
                        "gr\xc3\xbc\xc3\x9f"
                        "e";
  for (const std::string& text : {broken, unicode}) {
    auto report = unpack_bytes(Tar().add_pax("path", text).add({.name = "x", .data = "y"}).bytes());
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(read_text(root(text)), "y");
  }
}

TEST_F(Unpack, RefusesForeignIds) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .uid = 65536}).bytes()), HasSubstr("65536:0"));
  EXPECT_THAT(refusal(Tar().add({.name = "x", .gid = 70000}).bytes()), HasSubstr("0:70000"));
  EXPECT_THAT(refusal(Tar().add_pax("uid", "-1").add({.name = "x"}).bytes()),
              HasSubstr("ids 0 to"));
}

TEST_F(Unpack, HoldsItsLimits) {
  limits_.entries = 2;
  EXPECT_THAT(refusal(Tar().add({.name = "a"}).add({.name = "b"}).add({.name = "c"}).bytes()),
              HasSubstr("more than 2 entries"));
  limits_.bytes = 10;
  EXPECT_THAT(
      refusal(
          Tar().add({.name = "a", .data = "123456"}).add({.name = "b", .data = "12345"}).bytes()),
      HasSubstr("larger than 10 bytes"));
}

TEST_F(Unpack, AHugeHoleCountsAsItsSize) {
  const std::string map = "1\n0\n0\n";  // GNU sparse 1.0: one block, of nothing at 0
  const std::string archive =
      Tar()
          .add({.name = "pax",
                .type = 'x',
                .data = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
                        "24 GNU.sparse.name=hole\n"
                        "43 GNU.sparse.realsize=8000000000000000000\n"})
          .add({.name = "x", .data = map + std::string(512 - map.size(), '\0')})
          .bytes();
  EXPECT_THAT(refusal(archive), HasSubstr("8000000000000000000 bytes"));
  EXPECT_FALSE(exists("hole"));
}

TEST_F(Unpack, ASizeThatTheArchiveDoesNotHoldIsDamage) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .data = "short", .size = 1 << 20}).bytes()),
              HasSubstr("damaged"));
}

TEST_F(Unpack, HoldsTheRatio) {
  // 128 MiB of zeros pack to about 130 KB with gzip.
  std::string data(128 << 20, '\0');
  const std::string archive = gzip(Tar().add({.name = "zeros", .data = std::move(data)}).bytes());
  limits_.ratio = 100;
  EXPECT_THAT(refusal(archive), HasSubstr("more than 100 times its size"));
}

TEST_F(Unpack, SeesTruncation) {
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

TEST_F(Unpack, RefusesWhatIsNoArchive) {
  EXPECT_THAT(refusal(std::string(10'000, 'x')), HasSubstr("no tar file"));
  EXPECT_THAT(refusal(std::string(10'240, '\0')), HasSubstr("no entries"));
  EXPECT_THAT(refusal("PK\x03\x04" + std::string(1000, 'x')), HasSubstr("no tar file"));
}

TEST_F(Unpack, RefusesUnknownKindsAndBadLinks) {
  EXPECT_THAT(refusal(Tar().add({.name = "x", .type = '2', .link = ""}).bytes()),
              HasSubstr("target has 0 bytes"));
}

class FailingInput final : public ArchiveInput {
 public:
  Result<std::string_view> read() override { return fail(Error::unavailable("the wire is cut")); }
};

TEST_F(Unpack, PassesOnTheInputsError) {
  FailingInput input;
  DirectoryDestination destination(root_.get(), IdLayout::kSingle);
  auto done = unpack(input, destination, limits_);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code(), Code::kUnavailable);
  EXPECT_EQ(done.error().message(), "the wire is cut");
}

}  // namespace
}  // namespace caisson::image
