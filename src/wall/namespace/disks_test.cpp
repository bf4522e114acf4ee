#include "wall/namespace/disks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "base/kernel_abi.h"

namespace caisson::wall {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A host whose /proc/self/mountinfo and /sys are folders: sda with two partitions, dm-0, loop0.
class DisksTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-disks-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    add_device("sda", "sda", {8, 0});
    add_device("sda/sda1", "sda1", {8, 1});
    add_device("sda/sda2", "sda2", {8, 2});
    put("sys/devices/sda/sda1/partition", "1\n");
    put("sys/devices/sda/sda2/partition", "2\n");
    add_device("dm-0", "dm-0", {253, 0});
    add_device("loop0", "loop0", {7, 0});
    mounts(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "21 20 0:20 / /proc rw - proc proc rw\n"
        "22 20 0:21 / /tmp rw - tmpfs tmpfs rw\n"
        "23 20 253:0 / /data rw,noatime shared:3 - xfs /dev/mapper/data rw\n"
        "24 23 7:0 / /data/a\\040b rw - vfat /dev/loop0 rw\n"
        "25 20 0:33 / /net rw - nfs4 server:/export rw\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  void link(const std::string& to, const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::filesystem::create_symlink(root_ + "/" + to, root_ + "/" + path);
  }
  void add_device(const std::string& folder, const std::string& name, const Disk& device) {
    put("sys/devices/" + folder + "/dev", device.name() + "\n");
    link("sys/devices/" + folder, "sys/dev/block/" + device.name());
    link("sys/devices/" + folder, "sys/class/block/" + name);
  }
  void mounts(const std::string& text) { put("proc/self/mountinfo", text); }

  SeenDisks find(const std::vector<SeenTree>& trees) {
    return find_disks(trees, root_ + "/proc", root_ + "/sys");
  }

  std::string root_;
};

TEST_F(DisksTest, APartitionIsItsWholeDisk) {
  const SeenDisks seen = find({{"/usr", 20, false}});
  EXPECT_THAT(seen.disks, ElementsAre(Disk{8, 0}));
  EXPECT_EQ(seen.unknown, "");
  EXPECT_EQ(seen.writable, "");
}

TEST_F(DisksTest, OneDiskSeenTwiceIsOne) {
  mounts("20 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 20 8:2 / /srv rw - ext4 /dev/sda2 rw\n");
  EXPECT_THAT(find({{"/usr", 20, false}, {"/srv/data", 30, true}}).disks, ElementsAre(Disk{8, 0}));
}

TEST_F(DisksTest, WhatIsMountedBelowIsSeenToo) {
  const SeenDisks seen = find({{"/data", 23, true}});
  EXPECT_THAT(seen.disks, ElementsAre(Disk{7, 0}, Disk{253, 0}));
  EXPECT_EQ(seen.writable, "xfs at /data");
  // The kernel does not account vfat's dirty pages.
  EXPECT_EQ(seen.unaccounted, "vfat at /data/a b");
  EXPECT_THAT(find({{"/data/a b/x", 24, false}}).disks, ElementsAre(Disk{7, 0}));
}

TEST_F(DisksTest, MemoryIsOnNoDisk) {
  const SeenDisks seen = find({{"/tmp/x", 22, true}});
  EXPECT_THAT(seen.disks, IsEmpty());
  EXPECT_EQ(seen.unknown, "");
  EXPECT_EQ(seen.writable, "");
}

TEST_F(DisksTest, AnotherFileSystemWithoutADeviceIsSaid) {
  const SeenDisks seen = find({{"/usr", 20, false}, {"/net", 25, true}});
  EXPECT_THAT(seen.disks, ElementsAre(Disk{8, 0}));
  EXPECT_EQ(seen.unknown, "no disk is known behind nfs4 at /net");
  mounts("20 1 0:40 / / rw - overlay overlay rw,lowerdir=/a\n");
  EXPECT_EQ(find({{"/usr", 20, false}}).unknown, "no disk is known behind overlay at /");
}

TEST_F(DisksTest, AMountThatIsNotListedIsSaid) {
  EXPECT_EQ(find({{"/usr", 99, false}}).unknown, "no disk is known behind /usr");
}

TEST_F(DisksTest, ADeviceThatTheKernelDoesNotListIsSaid) {
  mounts("20 1 9:9 / / rw - ext4 /dev/md9 rw\n");
  const SeenDisks seen = find({{"/usr", 20, true}});
  EXPECT_THAT(seen.disks, IsEmpty());
  EXPECT_EQ(seen.unknown, "no disk is known behind ext4 at /");
  EXPECT_EQ(seen.writable, "");
}

TEST_F(DisksTest, BtrfsIsOnAllItsMembers) {
  mounts("20 1 0:25 /@ / rw - btrfs " + root_ + "/dev/sda2 rw\n");
  EXPECT_THAT(find({{"/usr", 20, true}}).disks, ElementsAre(Disk{8, 0}));
  link("sys/devices/sda/sda2", "sys/fs/btrfs/0123-uuid/devices/sda2");
  link("sys/devices/dm-0", "sys/fs/btrfs/0123-uuid/devices/dm-0");
  link("sys/devices/loop0", "sys/fs/btrfs/9999-uuid/devices/loop0");
  EXPECT_THAT(find({{"/usr", 20, true}}).disks, ElementsAre(Disk{8, 0}, Disk{253, 0}));
}

TEST_F(DisksTest, LinesThatAreNoneArePassedBy) {
  mounts(
      "\n - \nx y z - ext4\n20 1 8:x / / rw - ext4 a b\n21 1 8:1 / /usr rw - ext4 /dev/sda1 rw\n");
  EXPECT_THAT(find({{"/usr", 21, false}}).disks, ElementsAre(Disk{8, 0}));
}

TEST_F(DisksTest, WithoutMountinfoNothingIsKnown) {
  std::filesystem::remove(root_ + "/proc/self/mountinfo");
  EXPECT_THAT(find({{"/usr", 20, false}}).unknown, HasSubstr("mounts of this host"));
}

TEST(SeenTree, TellsPathAndMountOfADescriptor) {
  const Fd folder(::open("/proc/self", O_PATH | O_CLOEXEC | O_DIRECTORY));
  const Fd root(::open("/", O_PATH | O_CLOEXEC));
  const auto tree = seen_tree(folder.get(), true);
  const auto other = seen_tree(root.get(), false);
  ASSERT_TRUE(tree && other);
  EXPECT_EQ(tree->path, "/proc/" + std::to_string(getpid()));
  EXPECT_EQ(other->path, "/");
  EXPECT_TRUE(tree->writable);
  EXPECT_NE(tree->mount_id, other->mount_id);
  EXPECT_THAT(seen_tree(-1, false).error().message(), HasSubstr("statx"));
}

}  // namespace
}  // namespace caisson::wall
