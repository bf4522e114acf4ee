// Deltas by the real, confined worker, and as the kernel and Debian's tools see them.
#include <gmock/gmock.h>

#include <fstream>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/archive_for_test.h"
#include "image/files.h"
#include "image/flatten_for_test.h"
#include "image/rootfs_worker.h"

namespace caisson::image {
namespace {

using testing::ErofsReader;
using ::testing::HasSubstr;
using testing::list_tree;
using testing::Listing;
using testing::memory_file;
using testing::Tar;
using testing::TemporaryDirectory;

class DeltaWorker : public ::testing::TestWithParam<RootfsForm> {
 protected:
  // What lies in memory cannot be mounted as it is.
  DeltaWorker() : place_("/var/tmp") { directory_ = open_or_make_directory(place_.path()).value(); }

  RootfsWorker start() {
    (void)remove_tree_at(directory_.get(), "rootfs");
    (void)remove_tree_at(directory_.get(), "rootfs.erofs");
    auto started =
        RootfsWorker::start_delta(GetParam(), directory_.get(), -1, mapping_of_caller(), {}, 0710);
    VERIFY(started.has_value());
    return std::move(*started);
  }
  static Result<LayerReport> apply(RootfsWorker& worker, const std::string& bytes) {
    const Fd layer = memory_file(bytes);
    return worker.apply(layer.get(), {});
  }
  Listing listing() const {
    if (GetParam() == RootfsForm::kErofs)
      return ErofsReader(testing::read_whole(place_ / "rootfs.erofs")).list();
    const IdMapping ids = mapping_of_caller();
    return list_tree(place_ / "rootfs", ids.layout == IdLayout::kShifted ? ids.uid_base : 0);
  }
  static Tar layer() {
    Tar tar;
    for (const std::string name : {"fresh", "large", "plain"})
      tar.add({.name = name, .type = '5', .mode = 0750, .uid = 1000});
    tar.add({.name = "fresh/.wh..wh..opq"}).add({.name = "fresh/file", .data = "text"});
    tar.add({.name = "large/.wh..wh..opq"});
    for (int i = 0; i < 200; ++i)
      tar.add({.name = "large/" + std::to_string(i) + std::string(40, 'n')});
    return tar.add({.name = ".wh.gone"}).add({.name = "plain/.wh.gone"});
  }
  static void expect_the_layer(const Listing& found) {
    EXPECT_EQ(found.at("").mode, unsigned{S_IFDIR | 0710});
    EXPECT_EQ(found.at("gone").mode, unsigned{S_IFCHR});
    EXPECT_EQ(found.at("plain/gone").mode, unsigned{S_IFCHR});
    EXPECT_TRUE(found.at("fresh").opaque);
    EXPECT_TRUE(found.at("large").opaque);
    EXPECT_FALSE(found.at("plain").opaque);
    EXPECT_EQ(found.at("plain").mode, unsigned{S_IFDIR | 0750});
    EXPECT_EQ(found.at("fresh/file").contents, "text");
    EXPECT_EQ(found.size(), 207u);
  }

  TemporaryDirectory place_;
  Fd directory_;
};

INSTANTIATE_TEST_SUITE_P(Forms, DeltaWorker, testing::kBothForms, testing::name_of_form);

TEST_P(DeltaWorker, MakesTheLayerWithItsMarks) {
  RootfsWorker worker = start();
  auto applied = apply(worker, layer().bytes());
  ASSERT_TRUE(applied.has_value()) << applied.error().message();
  EXPECT_EQ(applied->whiteouts, 4u);
  const RootfsReport report = worker.finish().value();
  EXPECT_EQ(report.entries, 206u);
  EXPECT_EQ(report.bytes, 4u);
  expect_the_layer(listing());
}

TEST_P(DeltaWorker, RefusesHostileLayersAndLeavesNothingOutside) {
  const std::string outside = place_ / "outside";
  std::ofstream(outside) << "untouched";
  for (const std::string& bytes :
       {Tar().add({.name = "../outside", .data = "evil"}).bytes(),
        Tar().add({.name = ".wh..", .data = "evil"}).bytes(),
        Tar().add({.name = "a/../../outside"}).bytes(),
        Tar().add({.name = "x", .type = '2', .link = ".."}).add({.name = "x/outside"}).bytes(),
        Tar().add({.name = "x", .type = '2', .link = ".."}).add({.name = "x/.wh.outside"}).bytes(),
        Tar().add({.name = "x", .type = '2', .link = "."}).add({.name = "x/.wh..wh..opq"}).bytes(),
        Tar().add({.name = "x", .type = '1', .link = outside}).bytes(),
        Tar().add({.name = "x", .uid = 99'999}).bytes(), std::string(4096, 'x')}) {
    RootfsWorker worker = start();
    auto report = apply(worker, bytes);
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code(), Code::kInvalidArgument) << report.error().message();
    EXPECT_EQ(testing::read_text(outside), "untouched");
  }
}

TEST_P(DeltaWorker, DevicesOfTheLayerAreLeftOutWhateverTheirNumbers) {
  RootfsWorker worker = start();
  auto applied = apply(
      worker, Tar().add({.name = "null", .type = '3'}).add({.name = "disk", .type = '4'}).bytes());
  ASSERT_TRUE(applied.has_value()) << applied.error().message();
  EXPECT_EQ(applied->counts.dropped_devices, 2u);
  ASSERT_TRUE(worker.finish().has_value());
  EXPECT_EQ(listing().size(), 1u);
}

TEST_P(DeltaWorker, ASecondLayerEndsIt) {
  RootfsWorker worker = start();
  ASSERT_TRUE(apply(worker, Tar().add({.name = "a"}).bytes()).has_value());
  EXPECT_THAT(apply(worker, Tar().add({.name = "b"}).bytes()).error().message(),
              HasSubstr("a delta is made of one layer"));
}

TEST_P(DeltaWorker, IsWhatTheKernelAndDebiansToolsTakeItFor) {
  if (GetParam() != RootfsForm::kErofs) GTEST_SKIP() << "an erofs file alone is mounted";
  RootfsWorker worker = start();
  ASSERT_TRUE(apply(worker, layer().bytes()).has_value());
  ASSERT_TRUE(worker.finish().has_value());
  const std::string image = place_ / "rootfs.erofs";
  if (access("/usr/bin/fsck.erofs", X_OK) == 0) {
    EXPECT_EQ(std::system(("/usr/bin/fsck.erofs " + image).c_str()), 0);
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const sys::MountOption options[] = {{"source", image.c_str()}};
  auto tree = sys::make_mount("erofs", options, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
  if (!tree.has_value()) GTEST_SKIP() << "file-backed mounts: " << tree.error().message();
  expect_the_layer(list_tree("/proc/self/fd/" + std::to_string(tree->get()) + "/."));
}

}  // namespace
}  // namespace caisson::image
