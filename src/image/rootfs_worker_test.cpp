// Sessions with the real, confined worker: both forms, digests, limits, what hostile layers leave,
// and the image as Debian's tools and the kernel see it.
#include "image/rootfs_worker.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <zstd.h>

#include <chrono>
#include <fstream>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/archive_for_test.h"
#include "image/files.h"
#include "image/flatten_for_test.h"
#include "image/worker_report.h"

namespace caisson::image {
namespace {

using testing::ErofsReader;
using ::testing::HasSubstr;
using testing::list_tree;
using testing::Listing;
using testing::memory_file;
using testing::Tar;
using testing::TemporaryDirectory;

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

class Session : public ::testing::TestWithParam<RootfsForm> {
 protected:
  Session() { begin(); }

  void begin() {
    place_ = std::make_unique<TemporaryDirectory>();
    directory_ = open_or_make_directory(place_->path()).value();
    auto started =
        RootfsWorker::start(GetParam(), directory_.get(), -1, mapping_of_caller(), limits_);
    VERIFY(started.has_value());
    worker_ = std::make_unique<RootfsWorker>(std::move(*started));
  }
  Result<LayerReport> apply(const std::string& bytes, const LayerRef& expected = {}) {
    const Fd layer = memory_file(bytes);
    return worker_->apply(layer.get(), expected);
  }
  Listing listing() {
    if (GetParam() == RootfsForm::kErofs) {
      return ErofsReader(testing::read_whole(*place_ / "rootfs.erofs")).list();
    }
    const IdMapping ids = mapping_of_caller();
    return list_tree(*place_ / "rootfs", ids.layout == IdLayout::kShifted ? ids.uid_base : 0);
  }

  UnpackLimits limits_;
  std::unique_ptr<TemporaryDirectory> place_;
  Fd directory_;
  std::unique_ptr<RootfsWorker> worker_;
};

INSTANTIATE_TEST_SUITE_P(Forms, Session, testing::kBothForms, testing::name_of_form);

TEST_P(Session, AppliesLayersAndMoreAfterTheEnd) {
  const std::string first = Tar()
                                .add({.name = "a", .data = "one", .uid = 7})
                                .add({.name = "b", .data = std::string(9000, 'b')})
                                .bytes();
  const std::string second = testing::gzip(Tar().add({.name = ".wh.a"}).add({.name = "c"}).bytes());
  auto report = apply(first, {.blob = {.digest = sha256(first)}, .diff_id = sha256(first)});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->counts.entries, 2u);
  EXPECT_EQ(report->layer.diff_id, sha256(first));
  EXPECT_EQ(worker_->finish()->entries, 2u);
  EXPECT_EQ(listing().at("a").contents, "one");
  if (mapping_of_caller().layout == IdLayout::kShifted) {
    EXPECT_EQ(listing().at("a").uid, 7u);
  }
  std::uint64_t last = 0, total = 0;
  const Fd layer = memory_file(second);
  report = worker_->apply(layer.get(), {}, [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  });
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->whiteouts, 1u);
  EXPECT_EQ(report->layer.blob.digest, sha256(second));
  EXPECT_EQ(last, second.size());
  EXPECT_EQ(total, second.size());
  auto whole = worker_->finish();
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->entries, 2u);
  const Listing found = listing();
  EXPECT_EQ(found.size(), 3u);
  EXPECT_EQ(found.at("b").contents, std::string(9000, 'b'));
}

TEST_P(Session, OtherBytesThanExpectedAreDataLossWithBothDigests) {
  const std::string tar = Tar().add({.name = "a", .data = "one"}).bytes();
  const std::string packed = testing::gzip(tar), other(64, '5');
  auto report = apply(packed, {.blob = {.digest = other}, .diff_id = {}});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kDataLoss);
  EXPECT_EQ(report.error().message(),
            "the layer should have the SHA-256 " + other + " and has " + sha256(packed));
  begin();
  report = apply(packed, {.blob = {.digest = sha256(packed)}, .diff_id = other});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kDataLoss);
  EXPECT_EQ(report.error().message(), "the layer's uncompressed tar should have the SHA-256 " +
                                          other + " and has " + sha256(tar));
}

TEST_P(Session, BytesBehindTheArchiveBelongToTheDigests) {
  const std::string tar = Tar().add({.name = "a"}).bytes() + std::string(300'000, '\0') + "rest";
  auto report = apply(tar);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->layer.diff_id, sha256(tar));
  const std::string packed = testing::gzip(tar) + std::string(200'000, 'g');
  report = apply(packed);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->layer.diff_id, sha256(tar));
  EXPECT_EQ(report->layer.blob.digest, sha256(packed));
  // Nothing is left in the stream that the next layer would begin with.
  ASSERT_TRUE(apply(Tar().add({.name = "b"}).bytes()).has_value());
}

TEST_P(Session, HostileLayersAreRefusedAndLeaveNothingOutside) {
  const std::string outside = *place_ / "outside";
  std::ofstream(outside) << "untouched";
  const std::string layers[] = {
      Tar().add({.name = "../outside", .data = "evil"}).bytes(),
      Tar().add({.name = "x", .type = '1', .link = "../outside"}).bytes(),
      Tar().add({.name = "x", .type = '1', .link = outside}).bytes(),
      Tar().add({.name = ".wh.."}).bytes(),
      Tar().add({.name = "x", .uid = 99'999}).bytes(),
      Tar().add({.name = "x", .data = "short", .size = 1 << 30}).unfinished(),
      Tar().add_long_name(std::string(4096, 'n')).add({.name = "x"}).bytes(),
      std::string(4096, 'x'),
      std::string("\x28\xb5\x2f\xfd", 4) + std::string(1000, '\1'),
      std::string("\x1f\x8b\x08", 3) + std::string(1000, '\1'),
  };
  for (const std::string& bytes : layers) {
    // Not begin(): the place stays.
    auto started =
        RootfsWorker::start(GetParam(), directory_.get(), -1, mapping_of_caller(), limits_);
    if (!started.has_value()) {
      ASSERT_TRUE(remove_tree_at(directory_.get(), "rootfs").has_value());
      ASSERT_TRUE(remove_tree_at(directory_.get(), "rootfs.erofs").has_value());
      started = RootfsWorker::start(GetParam(), directory_.get(), -1, mapping_of_caller(), limits_);
    }
    ASSERT_TRUE(started.has_value()) << started.error().message();
    worker_ = std::make_unique<RootfsWorker>(std::move(*started));
    auto report = apply(bytes);
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code(), Code::kInvalidArgument) << report.error().message();
    EXPECT_EQ(testing::read_text(outside), "untouched");
  }
}

TEST_P(Session, AHoleOfFourGigabytesCostsNothing) {
  const std::string map = "1\n4294967295\n1\n";
  std::string block = map + std::string(512 - map.size(), '\0') + "x";
  const std::string archive = Tar()
                                  .add({.name = "pax",
                                        .type = 'x',
                                        .data = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
                                                "24 GNU.sparse.name=hole\n"
                                                "34 GNU.sparse.realsize=4294967296\n"})
                                  .add({.name = "x", .data = block})
                                  .bytes();
  auto report = apply(archive);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->counts.bytes, 1ull << 32);
  ASSERT_TRUE(worker_->finish().has_value());
  struct stat status = {};
  const char* name = GetParam() == RootfsForm::kErofs ? "rootfs.erofs" : "rootfs/hole";
  ASSERT_EQ(fstatat(directory_.get(), name, &status, 0), 0);
  EXPECT_GE(status.st_size, 1ll << 32);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
}

TEST_P(Session, ZerosBecomeHolesAndGoneFilesAreGivenBack) {
  if (GetParam() != RootfsForm::kErofs) return;  // a directory's file system sees to that
  const std::string data(8 << 20, 'd');
  ASSERT_TRUE(apply(Tar()
                        .add({.name = "zeros", .data = std::string(8 << 20, '\0')})
                        .add({.name = "a", .data = data})
                        .add({.name = "b", .type = '1', .link = "a"})
                        .bytes())
                  .has_value());
  ASSERT_TRUE(worker_->finish().has_value());
  auto used = [&] {
    struct stat status = {};
    EXPECT_EQ(fstatat(directory_.get(), "rootfs.erofs", &status, 0), 0);
    return status.st_blocks * 512;
  };
  EXPECT_GE(used(), 8 << 20);
  EXPECT_LT(used(), 9 << 20);
  ASSERT_TRUE(apply(Tar().add({.name = ".wh.a"}).bytes()).has_value());
  EXPECT_EQ(worker_->finish()->bytes, 16u << 20);
  EXPECT_GE(used(), 8 << 20);  // "b" has it still
  ASSERT_TRUE(apply(Tar().add({.name = ".wh.b"}).bytes()).has_value());
  EXPECT_EQ(worker_->finish()->bytes, 8u << 20);
  EXPECT_LT(used(), 1 << 20);
}

// Ten million headers of empty files as zstd frames; the last fifth of the names is repeated.
Fd ten_million_entries() {
  constexpr unsigned kTotal = 10'000'000, kDistinct = 2'100'000, kFrame = 100'000;
  Fd file(memfd_create("entries", MFD_CLOEXEC));
  VERIFY(file.valid());
  const std::string header = Tar().add({.name = "f0000000"}).unfinished();
  std::string frame(kFrame * header.size(), '\0'), packed(ZSTD_compressBound(frame.size()), '\0');
  std::size_t size = 0;
  for (unsigned first = 0; first < kTotal; first += kFrame) {
    for (unsigned i = 0; i < kFrame && first < kDistinct; ++i) {
      char* at = frame.data() + i * header.size();
      std::memcpy(at, header.data(), header.size());
      std::snprintf(at + 1, 8, "%07u", first + i);
      unsigned sum = 8 * ' ';
      for (std::size_t k = 0; k < 512; ++k) {
        if (k < 148 || k >= 156) sum += static_cast<unsigned char>(at[k]);
      }
      std::snprintf(at + 148, 8, "%06o", sum);
    }
    if (first < kDistinct) {
      size = ZSTD_compress(packed.data(), packed.size(), frame.data(), frame.size(), 1);
    }
    VERIFY(write(file.get(), packed.data(), size) == static_cast<ssize_t>(size));
  }
  return file;
}

long milliseconds_of(const rusage& usage) {
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

TEST_P(Session, TenMillionEntriesAreRefusedInLittleMemory) {
  const Fd layer = ten_million_entries();
  rusage before = {};
  getrusage(RUSAGE_CHILDREN, &before);
  const auto start = std::chrono::steady_clock::now();
  auto report = worker_->apply(layer.get(), {});
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kInvalidArgument) << report.error().message();
  EXPECT_THAT(report.error().message(), HasSubstr("more than 2000000 entries"));
  const std::uint64_t memory = worker_->end();
  rusage used = {};
  getrusage(RUSAGE_CHILDREN, &used);
  std::printf("refused after %lld ms, %ld ms of them a processor's, with %llu bytes of memory\n",
              static_cast<long long>(took.count()), milliseconds_of(used) - milliseconds_of(before),
              static_cast<unsigned long long>(memory));
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
  EXPECT_LT(memory, 100'000'000u);
  EXPECT_GT(memory, 1'000'000u);  // else it was not measured
#endif
  if (GetParam() == RootfsForm::kDirectory) {
    // The beginning, which was made before anybody knew; the caller removes it.
    const auto made = std::distance(std::filesystem::directory_iterator(*place_ / "rootfs"), {});
    EXPECT_LE(made, 100'000);
  }
}

// More than a directory takes before it knows the whole layer: the second reading goes on where the
// first only counted.
std::string large_layer() {
  return Tar()
      .add({.name = "a", .data = "before"})
      .add({.name = "d/b", .type = '1', .link = "a"})
      .add_hole("hole", 5ull << 30)
      .add({.name = "a", .data = "after"})
      .add({.name = "c", .data = std::string(300'000, 'c')})
      .bytes();
}

TEST_P(Session, ALargeLayerIsMadeWholeAndOnce) {
  const std::string bytes = large_layer();
  const Fd layer = memory_file(bytes);
  std::uint64_t last = 0;
  auto report = worker_->apply(layer.get(), {}, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, bytes.size());
    last = done;
  });
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(last, bytes.size());
  EXPECT_EQ(report->counts.entries, 5u);
  EXPECT_EQ(report->layer.diff_id, sha256(bytes));
  EXPECT_EQ(report->layer.blob.digest, sha256(bytes));
  EXPECT_EQ(worker_->finish()->entries, 5u);
  if (GetParam() == RootfsForm::kErofs) return;  // it would be read whole
  EXPECT_EQ(testing::read_text(*place_ / "rootfs/a"), "after");
  EXPECT_EQ(testing::read_text(*place_ / "rootfs/d/b"), "before");
  EXPECT_EQ(testing::read_text(*place_ / "rootfs/c"), std::string(300'000, 'c'));
  EXPECT_EQ(std::filesystem::file_size(*place_ / "rootfs/hole"), 5ull << 30);
}

TEST_P(Session, ALargeLayerThatChangesBetweenItsReadingsIsDataLoss) {
  if (GetParam() == RootfsForm::kErofs) return;  // it reads once
  const std::string bytes = large_layer();
  const Fd layer = memory_file(bytes);
  auto report = worker_->apply(layer.get(), {}, [&](std::uint64_t, std::uint64_t) {
    // Whatever is read after the first piece, which is less than the whole.
    VERIFY(pwrite(layer.get(), "x", 1, 600) == 1);
  });
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kDataLoss) << report.error().message();
}

TEST_P(Session, TheTimeLimitEndsIt) {
  // A million and a half directories and files take longer than that on any machine.
  Tar tar;
  for (int i = 0; i < 5000; ++i) tar.add({.name = "d" + std::to_string(i) + "/f"});
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += tar.unfinished();
  limits_.time = std::chrono::milliseconds(40);
  const Fd other = open_or_make_directory(*place_ / "other").value();
  const Fd layer = memory_file(bytes);
  auto report = [&]() -> Result<LayerReport> {
    TRY_ASSIGN(RootfsWorker worker,
               RootfsWorker::start(GetParam(), other.get(), -1, mapping_of_caller(), limits_));
    return worker.apply(layer.get(), {});
  }();
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kDeadlineExceeded) << report.error().message();
}

// The value of a line of /proc/…/status.
std::string status_of(const std::string& process, const std::string& key) {
  const std::string text = testing::read_text("/proc/" + process + "/status");
  const std::size_t at = text.find("\n" + key + ":\t");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size() + 3;
  return text.substr(begin, text.find('\n', begin) - begin);
}

// The last child that the process's first thread has made, in text.
std::string child_of(const std::string& process) {
  std::string children = testing::read_text("/proc/" + process + "/task/" + process + "/children");
  if (!children.empty()) children.pop_back();
  const std::size_t space = children.rfind(' ');
  return space == std::string::npos ? children : children.substr(space + 1);
}

TEST_P(Session, EveryThreadThatReadsALayerIsConfined) {
  ASSERT_TRUE(apply(Tar().add({.name = "a"}).bytes()).has_value());
  const std::string inner = child_of(child_of(std::to_string(getpid())));
  const std::vector<std::string> threads = testing::entries_of("/proc/" + inner + "/task");
  ASSERT_EQ(threads.size(), 2u) << inner;
  for (const std::string& thread : threads) {
    const std::string process = inner + "/task/" + thread;
    EXPECT_EQ(status_of(process, "NoNewPrivs"), "1");
    EXPECT_EQ(status_of(process, "CapBnd"), std::string(16, '0'));
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
    EXPECT_EQ(status_of(process, "Seccomp"), "2");
#endif
    // The right to give files away is the one's that makes them.
    if (thread != inner || GetParam() == RootfsForm::kErofs) {
      EXPECT_EQ(status_of(process, "CapEff"), std::string(16, '0'));
    }
  }
}

TEST_P(Session, WhatItMakesMustNotBeThereYet) {
  auto second = RootfsWorker::start(GetParam(), directory_.get(), -1, mapping_of_caller(), limits_);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message(), HasSubstr("File exists"));
}

TEST_P(Session, LayersAreRegularFilesOfALimitedSize) {
  const Fd folder = open_or_make_directory(place_->path()).value();
  EXPECT_THAT(worker_->apply(folder.get(), {}).error().message(), HasSubstr("no regular file"));
  limits_.archive = 100;
  begin();
  EXPECT_THAT(apply(Tar().add({.name = "a"}).bytes()).error().message(),
              HasSubstr("at most 100 are allowed"));
}

// What a build that runs as root mounts must be what the directory form holds.
TEST(ErofsImage, IsWhatTheKernelAndDebiansToolsTakeItFor) {
  Tar lower, upper;
  for (int i = 0; i < 400; ++i) {
    const std::string number = std::to_string(i);
    lower.add({.name = "dir" + std::to_string(i % 7) + "/" + std::string(i % 90 + 1u, 'n') + number,
               .data = std::string(static_cast<std::size_t>(i) * 37 % 6000, 'x'),
               .mode = static_cast<unsigned>(0600 + i % 64),
               .uid = static_cast<std::uint64_t>(i) * 160});
    lower.add({.name = "many/" + number, .type = i % 3 == 0 ? '5' : '2', .link = "t" + number});
  }
  lower.add({.name = "su", .data = "#!", .mode = 06755});
  lower.add({.name = "pipe", .type = '6'});
  lower.add_pax("linkpath", std::string(4090, 'l')).add({.name = "long", .type = '2', .link = "x"});
  for (int i = 0; i < 200; ++i) upper.add({.name = "many/.wh." + std::to_string(i)});
  upper.add({.name = "hard", .type = '1', .link = "su"});
  upper.add({.name = "dir3/.wh..wh..opq"}).add({.name = "dir3/fresh"});
  TemporaryDirectory place("/var/tmp");  // what lies in memory cannot be mounted as it is
  const Fd directory = open_or_make_directory(place.path()).value();
  for (RootfsForm form : {RootfsForm::kDirectory, RootfsForm::kErofs}) {
    RootfsWorker worker =
        RootfsWorker::start(form, directory.get(), -1, mapping_of_caller(), {}).value();
    for (const Tar& tar : {lower, upper}) {
      const Fd layer = memory_file(tar.bytes());
      auto applied = worker.apply(layer.get(), {});
      ASSERT_TRUE(applied.has_value()) << applied.error().message();
    }
    ASSERT_TRUE(worker.finish().has_value());
  }
  if (access("/usr/bin/fsck.erofs", X_OK) == 0) {
    EXPECT_EQ(std::system(("/usr/bin/fsck.erofs " + (place / "rootfs.erofs")).c_str()), 0);
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const std::string image = place / "rootfs.erofs";
  const sys::MountOption options[] = {{"source", image.c_str()}};
  auto tree = sys::make_mount("erofs", options, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
  if (!tree.has_value()) GTEST_SKIP() << "file-backed mounts: " << tree.error().message();
  const Listing expected = list_tree(place / "rootfs", mapping_of_caller().uid_base);
  const Listing mounted = list_tree("/proc/self/fd/" + std::to_string(tree->get()) + "/.");
  EXPECT_EQ(mounted.size(), expected.size());
  for (const auto& [name, file] : expected) {
    auto found = mounted.find(name);
    ASSERT_NE(found, mounted.end()) << name;
    EXPECT_TRUE(found->second == file)
        << testing::describe({{name, file}}) << testing::describe({{name, found->second}});
  }
}

TEST(LayerReport, ComesBackAndRefusesRubbish) {
  LayerCounts counts{.counts = {1, 2, 3, 4, 5}, .whiteouts = 6, .diff_id = std::string(64, 'a')};
  const std::string text = counts.encode();
  const LayerCounts back = LayerCounts::decode(text).value();
  EXPECT_EQ(back.counts.absolute_names, 5u);
  EXPECT_EQ(back.whiteouts, 6u);
  EXPECT_EQ(back.diff_id, counts.diff_id);
  for (const std::string& bad : {std::string(), text + "7\n", text.substr(1), text.substr(0, 70),
                                 std::string(64, 'A') + text.substr(64)}) {
    EXPECT_FALSE(LayerCounts::decode(bad).has_value()) << bad;
  }
  EXPECT_EQ(decode_rootfs_report(encode_rootfs_report({1, 2, 3}))->size, 3u);
  EXPECT_FALSE(decode_rootfs_report("1\n2\n").has_value());
}

}  // namespace
}  // namespace caisson::image
