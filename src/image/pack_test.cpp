#include "image/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/sha256.h"
#include "base/sys.h"
#include "image/layer_record.h"
#include "image/rootfs_worker.h"
#include "image/worker/pack.h"
#include "image/worker/tar_writer.h"

namespace caisson::image {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- the tar writer ----

// What libarchive, which did not write it, reads.
struct Read {
  std::string path, link;
  std::uint32_t mode = 0;
  std::int64_t uid = 0, gid = 0, size = 0, seconds = 0;
  long nanoseconds = 0;
  unsigned type = 0;
};

std::vector<Read> read_tar(const std::string& tar) {
  std::vector<Read> entries;
  archive* reader = ::archive_read_new();
  ::archive_read_support_format_tar(reader);
  EXPECT_EQ(::archive_read_open_memory(reader, tar.data(), tar.size()), ARCHIVE_OK);
  archive_entry* entry = nullptr;
  while (::archive_read_next_header(reader, &entry) == ARCHIVE_OK) {
    const char* hard = ::archive_entry_hardlink(entry);
    const char* soft = ::archive_entry_symlink(entry);
    entries.push_back({.path = ::archive_entry_pathname(entry),
                       .link = hard != nullptr   ? hard
                               : soft != nullptr ? soft
                                                 : "",
                       .mode = ::archive_entry_perm(entry),
                       .uid = ::archive_entry_uid(entry),
                       .gid = ::archive_entry_gid(entry),
                       .size = ::archive_entry_size(entry),
                       .seconds = ::archive_entry_mtime(entry),
                       .nanoseconds = ::archive_entry_mtime_nsec(entry),
                       .type = ::archive_entry_filetype(entry)});
  }
  EXPECT_EQ(::archive_errno(reader), 0) << ::archive_error_string(reader);
  ::archive_read_free(reader);
  return entries;
}

TEST(TarWriter, WritesWhatOthersRead) {
  const std::string long_name = std::string(90, 'a') + "/" + std::string(200, 'b');
  const std::string odd = "n\xc3\xa4me\xff" + std::string(120, 'c');
  std::string tar = pax_header({.path = "d", .type = PaxType::kDirectory, .mode = 01777});
  tar += pax_header({.path = long_name,
                     .mode = 06755,
                     .uid = 65535,
                     .gid = 12,
                     .size = 0,
                     .modified = {1'000'000'000, 123'456'789}});
  tar += pax_header({.path = odd, .type = PaxType::kSymlink, .mode = 0777, .link = odd + odd});
  tar += pax_header({.path = "h", .type = PaxType::kHardLink, .link = long_name});
  tar += pax_header({.path = "f", .type = PaxType::kFifo, .modified = {-2, 500'000'000}});
  tar += pax_header({.path = std::string(100, 'x'), .modified = {1ll << 40, 0}});
  const std::vector<Read> read = read_tar(tar + pax_end());
  ASSERT_EQ(read.size(), 6u);
  EXPECT_EQ(read[0].path, "d/");
  EXPECT_EQ(read[0].mode, 01777u);
  EXPECT_EQ(read[0].type, static_cast<unsigned>(AE_IFDIR));
  EXPECT_EQ(read[1].path, long_name);
  EXPECT_EQ(read[1].mode, 06755u);
  EXPECT_EQ(read[1].uid, 65535);
  EXPECT_EQ(read[1].gid, 12);
  EXPECT_EQ(read[1].seconds, 1'000'000'000);
  EXPECT_EQ(read[1].nanoseconds, 123'456'789);
  EXPECT_EQ(read[2].path, odd);
  EXPECT_EQ(read[2].link, odd + odd);
  EXPECT_EQ(read[3].link, long_name);
  EXPECT_EQ(read[4].type, static_cast<unsigned>(AE_IFIFO));
  EXPECT_EQ(read[5].path, std::string(100, 'x'));
  EXPECT_EQ(read[5].seconds, 1ll << 40);
}

TEST(TarWriter, TheFirstSecondOfAllIsToldAsItIs) {
  constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
  EXPECT_THAT(pax_header({.path = "f", .modified = {kFirst, 0}}),
              HasSubstr("mtime=-9223372036854775808.000000000\n"));
  EXPECT_THAT(pax_header({.path = "f", .modified = {kFirst, 250'000'000}}),
              HasSubstr("mtime=-9223372036854775807.750000000\n"));
}

TEST(TarWriter, ALargeFilesSizeIsToldWhole) {
  const std::uint64_t size = 9ull << 30;
  const std::string tar = pax_header({.path = "big", .size = size});
  EXPECT_THAT(tar, HasSubstr("size=9663676416\n"));
  EXPECT_EQ(pax_padding(size), 0u);
  EXPECT_EQ(pax_padding(1), 511u);
  EXPECT_EQ(pax_padding(512), 0u);
}

// ---- the packer, on directories made by hand ----

class Upper : public ::testing::Test {
 protected:
  void SetUp() override {
    // Attributes of both kinds need a file system that has them.
    char name[] = "/dev/shm/caisson-pack-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    ::umask(022);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string at(const std::string& path) const { return folder_ + "/" + path; }
  void file(const std::string& path, const std::string& text) const {
    std::ofstream(at(path)) << text;
  }
  void directory(const std::string& path) const { fs::create_directories(at(path)); }
  void whiteout(const std::string& path) const {
    ASSERT_EQ(::mknod(at(path).c_str(), S_IFCHR, ::makedev(0, 0)), 0);
  }
  bool attribute(const std::string& path, const char* name) const {
    return ::setxattr(at(path).c_str(), name, "y", 1, 0) == 0;
  }
  Fd open_folder() const { return Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

  struct Packed {
    std::string tar;
    PackReport report;
    std::vector<std::string> names() const {
      std::vector<std::string> found;
      for (const Read& entry : read_tar(tar)) found.push_back(entry.path);
      return found;
    }
  };
  Result<Packed> pack_it(const LayerRecord& record = {}, std::uint64_t entries = 1000,
                         std::uint64_t bytes = 1 << 20,
                         std::function<Result<bool>(int)> ask = nullptr) const {
    const Fd top = open_folder();
    Packed packed;
    const PackInput input{.directory_fd = top.get(),
                          .record = record,
                          .ask_opaque = std::move(ask),
                          .most_entries = entries,
                          .most_bytes = bytes};
    TRY_ASSIGN(packed.report, pack(input, [&](std::string_view tar) -> Status {
                 packed.tar += tar;
                 return {};
               }));
    return packed;
  }

  std::string folder_;
};

TEST_F(Upper, AnEmptyOneIsAnEmptyTar) {
  const Packed packed = pack_it().value();
  EXPECT_EQ(packed.report.entries, 0u);
  EXPECT_EQ(packed.tar, pax_end());
}

TEST_F(Upper, EntriesComeSortedAndBeforeWhatIsInThem) {
  directory("b/c");
  file("b/c/z", "1");
  file("b/c/a", "22");
  file("b-", "");
  directory("a");
  ASSERT_EQ(::link(at("b/c/z").c_str(), at("z").c_str()), 0);
  const Packed packed = pack_it().value();
  EXPECT_THAT(packed.names(), ElementsAre("a/", "b/", "b/c/", "b/c/a", "b/c/z", "b-", "z"));
  EXPECT_EQ(packed.report.entries, 7u);
  EXPECT_EQ(packed.report.bytes, 3u);
  EXPECT_EQ(read_tar(packed.tar).back().link, "b/c/z");
}

TEST_F(Upper, WhatWasRemovedAndWhatHidesBecomesAMarker) {
  directory("d");
  whiteout("d/gone");
  directory("new");
  file("new/only", "");
  if (!attribute("new", "user.overlay.opaque")) GTEST_SKIP() << "before Linux 6.6";
  file("also", "");
  ASSERT_TRUE(attribute("also", "user.overlay.whiteout"));
  EXPECT_THAT(pack_it().value().names(),
              ElementsAre(".wh.also", "d/", "d/.wh.gone", "new/", "new/.wh..wh..opq", "new/only"));
}

TEST_F(Upper, RootsOwnAttributesAreAskedFor) {
  directory("a");
  directory("b");
  struct stat b{};
  ASSERT_EQ(::stat(at("b").c_str(), &b), 0);
  const auto ask = [&](int fd) -> Result<bool> {
    struct stat asked{};
    EXPECT_EQ(::fstat(fd, &asked), 0);
    return asked.st_ino == b.st_ino;
  };
  // The other kind is nobody's note then.
  (void)attribute("a", "user.overlay.opaque");
  EXPECT_THAT(pack_it({}, 1000, 1000, ask).value().names(),
              ElementsAre("a/", "b/", "b/.wh..wh..opq"));
}

TEST_F(Upper, SocketsAreLeftOutAndPipesAreNotOpened) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mknod(at("socket").c_str(), S_IFSOCK | 0600, 0), 0);
  ASSERT_EQ(::symlink("/etc/passwd", at("link").c_str()), 0);
  EXPECT_THAT(pack_it().value().names(), ElementsAre("link", "pipe"));
}

TEST_F(Upper, WhatIsAsItWasRecordedIsLeftOut) {
  directory("etc/deep");
  file("etc/hosts", "x");
  const auto recorded = [&](const std::string& path) {
    struct stat facts{};
    EXPECT_EQ(::lstat(at(path).c_str(), &facts), 0);
    RecordedEntry entry{
        .inode = facts.st_ino, .mode = facts.st_mode, .uid = facts.st_uid, .gid = facts.st_gid};
    if (S_ISREG(facts.st_mode)) {
      entry.size = static_cast<std::uint64_t>(facts.st_size);
      entry.mtime_s = facts.st_mtim.tv_sec;
      entry.mtime_ns = static_cast<std::uint32_t>(facts.st_mtim.tv_nsec);
    }
    return entry;
  };
  const auto record_of = [&] {
    return LayerRecord{{"", recorded("")},
                       {"etc", recorded("etc")},
                       {"etc/deep", recorded("etc/deep")},
                       {"etc/hosts", recorded("etc/hosts")}};
  };
  LayerRecord record = record_of();
  EXPECT_EQ(pack_it(record).value().report.entries, 0u);
  // Directories are told of where something below them is new.
  file("etc/deep/new", "");
  EXPECT_THAT(pack_it(record).value().names(), ElementsAre("etc/", "etc/deep/", "etc/deep/new"));
  fs::remove(at("etc/deep/new"));
  ASSERT_EQ(::chmod(at("etc/deep").c_str(), 0700), 0);
  EXPECT_THAT(pack_it(record).value().names(), ElementsAre("etc/", "etc/deep/"));
  record = record_of();
  // Another file of the same name and size, and the same time.
  struct stat facts{};
  ASSERT_EQ(::stat(at("etc/hosts").c_str(), &facts), 0);
  file("etc/other", "y");
  const timespec times[] = {facts.st_mtim, facts.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, at("etc/other").c_str(), times, 0), 0);
  fs::rename(at("etc/other"), at("etc/hosts"));
  EXPECT_THAT(pack_it(record).value().names(), ElementsAre("etc/", "etc/hosts"));
}

TEST_F(Upper, LimitsHold) {
  directory("d");
  for (int i = 0; i < 5; ++i) file("d/" + std::to_string(i), "1234");
  EXPECT_TRUE(pack_it({}, 6, 20).has_value());
  auto refused = pack_it({}, 5, 20);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  refused = pack_it({}, 6, 19);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("19 bytes"));
}

TEST_F(Upper, NamesThatMeanSomethingElseInALayerAreRefused) {
  file(".wh.x", "");
  auto refused = pack_it();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  fs::remove(at(".wh.x"));
  // Its marker would be longer than a name can be.
  whiteout(std::string(252, 'n'));
  refused = pack_it();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("251 bytes"));
  fs::remove(at(std::string(252, 'n')));
  whiteout(std::string(251, 'n'));
  EXPECT_TRUE(pack_it().has_value());
}

TEST_F(Upper, AHundredThousandDirectoriesInEachOtherAreRefusedAtOnce) {
  Fd here = open_folder();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(::mkdirat(here.get(), "d", 0700), 0);
    Fd below(::openat(here.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(below.valid());
    here = std::move(below);
  }
  const auto refused = pack_it({}, 1'000'000);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("levels"));
  // From the bottom up: nobody's stack is that deep.
  for (;;) {
    Fd above(::openat(here.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(above.valid());
    if (::unlinkat(above.get(), "d", AT_REMOVEDIR) != 0) break;
    here = std::move(above);
    struct stat now{}, top{};
    ASSERT_EQ(::fstat(here.get(), &now), 0);
    ASSERT_EQ(::stat(folder_.c_str(), &top), 0);
    if (now.st_ino == top.st_ino) break;
  }
}

// ---- through the worker ----

class PackLayer : public Upper {
 protected:
  KeptLayer kept(const LayerRecord& record = {}) const {
    KeptLayer layer;
    layer.directory = open_folder();
    layer.record = Fd(::memfd_create("record", MFD_CLOEXEC));
    const std::string bytes = encode_record(record);
    EXPECT_EQ(::write(layer.record.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    const std::string own = std::to_string(::geteuid()), group = std::to_string(::getegid());
    layer.uid_lines = "0 " + own + " 1\n";
    layer.gid_lines = "0 " + group + " 1\n";
    return layer;
  }
  static Fd empty_file() { return Fd(::memfd_create("layer", MFD_CLOEXEC)); }
};

TEST_F(PackLayer, GivesDigestsOfWhatItWrote) {
  file("x", std::string(100'000, 'x'));
  const Fd out = empty_file();
  std::uint64_t told = 0;
  const auto packed =
      pack_layer_to(out.get(), kept(), {}, [&](std::uint64_t done, std::uint64_t) { told = done; });
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  const std::string bytes = sys::read_again(out.get(), 1 << 20).value();
  EXPECT_EQ(packed->size, bytes.size());
  EXPECT_EQ(told, bytes.size());
  EXPECT_LT(bytes.size(), 10'000u);
  Sha256 hash, plain;
  hash.update(bytes);
  EXPECT_EQ(packed->digest, hash.finish());
  plain.update(pack_it().value().tar);
  EXPECT_EQ(packed->diff_id, plain.finish());
  EXPECT_EQ(packed->entries, 1u);
  EXPECT_EQ(packed->bytes, 100'000u);
}

// The other half: what takes layers apart again.
TEST_F(PackLayer, IsALayerForTheUnpacker) {
  const std::string odd = std::string("n\xc3\xa4me\xff ") + std::string(150, 'c');
  directory("d/" + odd);
  file("d/" + odd + "/f", "text");
  ASSERT_EQ(::symlink(std::string(300, 'l').c_str(), at("link").c_str()), 0);
  ASSERT_EQ(::link(at("d/" + odd + "/f").c_str(), at("hard").c_str()), 0);
  whiteout("gone");
  const Fd out = empty_file();
  const auto packed = pack_layer_to(out.get(), kept(), {}, {});
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  char name[] = "/dev/shm/caisson-rootfs-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const Fd place(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    auto worker =
        RootfsWorker::start(RootfsForm::kDirectory, place.get(), -1, mapping_of_caller(), {});
    ASSERT_TRUE(worker.has_value()) << worker.error().message();
    const LayerRef expected{
        .blob = {.media_type = kLayerMediaType, .digest = packed->digest, .size = packed->size},
        .diff_id = packed->diff_id};
    const auto applied = worker->apply(out.get(), expected);
    ASSERT_TRUE(applied.has_value()) << applied.error().message();
    EXPECT_EQ(applied->counts.entries, packed->entries);
    EXPECT_EQ(applied->whiteouts, 1u);
    const auto whole = worker->finish();
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    EXPECT_EQ(whole->entries, packed->entries - 1);
    EXPECT_EQ(whole->bytes, 4u);
  }
  fs::remove_all(name);
}

TEST_F(PackLayer, AsksWhoMayReadRootsAttributes) {
  directory("a");
  directory("b");
  if (!attribute("b", "trusted.overlay.opaque")) GTEST_SKIP() << "root alone";
  KeptLayer layer = kept();
  layer.trusted_attributes = true;
  const Fd out = empty_file();
  const auto packed = pack_layer_to(out.get(), layer, {}, {});
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(packed->entries, 3u);
  // The worker alone cannot see it.
  layer.trusted_attributes = false;
  const Fd again = empty_file();
  EXPECT_EQ(pack_layer_to(again.get(), layer, {}, {})->entries, 2u);
}

TEST_F(PackLayer, ErrorsKeepTheirCode) {
  file("x", "12345");
  const Fd out = empty_file();
  auto failed = pack_layer_to(out.get(), kept(), {.bytes = 4}, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kResourceExhausted);
  const Fd more = empty_file();
  failed = pack_layer_to(more.get(), kept(), {.time = std::chrono::milliseconds(0)}, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kDeadlineExceeded);
  KeptLayer layer = kept();
  ASSERT_EQ(::write(layer.record.get(), "x", 1), 1);
  failed = pack_layer_to(more.get(), layer, {}, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kDataLoss);
  EXPECT_FALSE(pack_layer_to(more.get(), KeptLayer(), {}, {}).has_value());
  ASSERT_EQ(::write(more.get(), "x", 1), 1);
  EXPECT_EQ(pack_layer_to(more.get(), kept(), {}, {}).error().code(), Code::kInvalidArgument);
}

TEST_F(PackLayer, ADiskThatIsFullIsSaidToBe) {
  const sys::MountOption options[] = {{"size", "64k"}};
  const auto mount = sys::make_mount("tmpfs", options, 0);
  if (!mount) GTEST_SKIP() << "root alone";
  std::string noise;
  std::uint32_t state = 1;
  for (int i = 0; i < 300'000; ++i) {
    state = state * 1664525 + 1013904223;
    noise += static_cast<char>(state >> 24);
  }
  file("noise", noise);
  const Fd out(::openat(mount->get(), "layer", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const auto failed = pack_layer_to(out.get(), kept(), {}, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kResourceExhausted);
}

TEST_F(PackLayer, GoesIntoTheStoreAndNothingOfAnEmptyOneDoes) {
  file("x", "1");
  char name[] = "/dev/shm/caisson-store-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  auto store = Store::open_at(name);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  auto packed = pack_layer(*store, kept());
  ASSERT_TRUE(packed.has_value()) << packed.error().message();
  EXPECT_EQ(packed->layer.blob.media_type, kLayerMediaType);
  EXPECT_EQ(packed->entries, 1u);
  EXPECT_TRUE(store->has_blob(packed->layer.blob.digest));
  fs::remove(at("x"));
  packed = pack_layer(*store, kept());
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->entries, 0u);
  EXPECT_EQ(packed->layer.blob.digest, "");
  file("x", "1");
  EXPECT_FALSE(pack_layer(*store, kept(), {.bytes = 0}).has_value());
  // What was begun and not kept is gone.
  EXPECT_TRUE(fs::is_empty(std::string(name) + "/tmp"));
  fs::remove_all(name);
}

}  // namespace
}  // namespace caisson::image
