#include "wall/namespace/cgroup_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "wall/namespace/cgroup.h"

namespace caisson::wall {
namespace {

using testing::HasSubstr;

constexpr std::size_t index_of(Limit limit) {
  return static_cast<std::size_t>(limit);
}

// Folders that stand for a host's control groups; its files keep what was written last.
class CgroupIoTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-io-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  std::string get(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(root_ + "/" + path).rdbuf();
    return text.str();
  }
  void make_v1_files(const std::string& group) {
    for (const char* file : {"read_bps", "write_bps", "read_iops", "write_iops"})
      put(group + "/blkio.throttle." + file + "_device", "");
  }
  // A host with these hierarchies, in which this process is in the top groups.
  void hierarchies(const std::vector<std::string>& v1, bool v2) {
    std::string mounts, own;
    for (const std::string& controllers : v1) {
      mounts += "30 1 0:9 / " + root_ + "/" + controllers + " rw - cgroup cgroup rw," +
                controllers + "\n";
      own += "4:" + controllers + ":/\n";
      std::filesystem::create_directories(root_ + "/" + controllers);
    }
    if (v2) {
      mounts += "40 1 0:10 / " + root_ + "/unified rw - cgroup2 cgroup2 rw\n";
      put("unified/cgroup.procs", "");
      put("unified/cgroup.controllers", "cpu io memory pids\n");
      put("unified/cgroup.subtree_control", "cpu memory pids\n");
    }
    put("proc/self/mountinfo", mounts);
    put("proc/self/cgroup", own + "0::/\n");
  }
  // The place for I/O below the root; empty where there is none.
  std::string io_place() {
    host_ = find_cgroups(root_ + "/proc");
    return host_.io.path.empty() ? "" : host_.io.path.substr(root_.size() + 1);
  }

  std::string root_;
  CgroupHost host_;
};

Plan limited_plan() {
  Plan plan;
  plan.id = "abcd1234";
  plan.io_read = 1 << 20;
  plan.io_write_ops = 50;
  return plan;
}

TEST_F(CgroupIoTest, Version1HasAFileForEachLimit) {
  make_v1_files("g");
  ASSERT_TRUE(limit_disk(root_ + "/g", false, limited_plan(), {8, 16}));
  EXPECT_EQ(get("g/blkio.throttle.read_bps_device"), "8:16 1048576");
  EXPECT_EQ(get("g/blkio.throttle.write_iops_device"), "8:16 50");
  EXPECT_EQ(get("g/blkio.throttle.write_bps_device"), "");
  EXPECT_EQ(get("g/blkio.throttle.read_iops_device"), "");
}

TEST_F(CgroupIoTest, Version2HasOneLineForAll) {
  put("g/io.max", "");
  ASSERT_TRUE(limit_disk(root_ + "/g", true, limited_plan(), {8, 16}));
  EXPECT_EQ(get("g/io.max"), "8:16 rbps=1048576 wiops=50");
}

TEST_F(CgroupIoTest, AGroupWithoutTheFileIsAnError) {
  EXPECT_THAT(limit_disk(root_, true, limited_plan(), {8, 0}).error().message(),
              HasSubstr("io.max"));
  EXPECT_FALSE(limit_disk(root_, false, limited_plan(), {8, 0}));
}

TEST_F(CgroupIoTest, LiftingTakesEveryLimitAway) {
  make_v1_files("g");
  put("g/blkio.throttle.read_bps_device", "8:0 99");
  put("h/io.max", "8:0 rbps=1 wbps=max riops=max wiops=max");
  lift_io_limits(root_ + "/g");
  lift_io_limits(root_ + "/h");
  lift_io_limits(root_ + "/gone");
  EXPECT_THAT(get("g/blkio.throttle.read_bps_device"), testing::StartsWith("8:0 0"));
  EXPECT_EQ(get("g/blkio.throttle.write_bps_device"), "");
  EXPECT_EQ(get("h/io.max"), "8:0 rbps=max wbps=max riops=max wiops=max");
}

TEST(IoCounters, OfBothVersions) {
  const IoBytes v1 = parse_io_counters(
      "7:0 Read 5120\n7:0 Write 10\n7:0 Sync 5130\n7:0 Total 5130\n8:0 Read 1\nTotal 5131\n");
  EXPECT_EQ(v1.read, 5121u);
  EXPECT_EQ(v1.written, 10u);
  const IoBytes v2 = parse_io_counters(
      "8:0 rbytes=100 wbytes=7 rios=2 wios=1 dbytes=0 dios=0\n8:16\n253:0 rbytes=5 wbytes=8\n");
  EXPECT_EQ(v2.read, 105u);
  EXPECT_EQ(v2.written, 15u);
  EXPECT_EQ(parse_io_counters("").read, 0u);
}

TEST(IoHold, SaysWhatIsMissing) {
  struct Case {
    SeenDisks disks;
    LaterWrites later;
    HeldBy reads, writes;
    std::string fault;  // of the writes
  };
  const std::vector<Disk> one = {{8, 0}};
  const std::vector<Case> cases = {
      {{}, LaterWrites::kCounted, HeldBy::kNone, HeldBy::kNone, "lies in memory"},
      {{.unknown = "no disk"}, LaterWrites::kCounted, HeldBy::kNone, HeldBy::kNone, "no disk"},
      {{.disks = one, .unknown = "no disk"},
       LaterWrites::kCounted,
       HeldBy::kPartly,
       HeldBy::kPartly,
       "no disk"},
      {{.disks = one}, LaterWrites::kNobodys, HeldBy::kCgroup, HeldBy::kCgroup, ""},
      {{.disks = one, .writable = "ext4 at /d"},
       LaterWrites::kNobodys,
       HeldBy::kCgroup,
       HeldBy::kPartly,
       "ext4 at /d"},
      {{.disks = one, .writable = "ext4 at /d"},
       LaterWrites::kCounted,
       HeldBy::kCgroup,
       HeldBy::kCgroup,
       ""},
      {{.disks = one, .writable = "ext4 at /d", .unaccounted = "vfat at /v"},
       LaterWrites::kCounted,
       HeldBy::kCgroup,
       HeldBy::kPartly,
       "vfat at /v"},
  };
  for (const Case& c : cases) {
    for (const Limit limit : {Limit::kIoRead, Limit::kIoReadOps})
      EXPECT_EQ(io_hold(c.disks, c.later, limit).by, c.reads) << c.fault;
    for (const Limit limit : {Limit::kIoWrite, Limit::kIoWriteOps}) {
      const IoHold hold = io_hold(c.disks, c.later, limit);
      EXPECT_EQ(hold.by, c.writes) << c.fault;
      EXPECT_EQ(hold.fault.empty(), c.writes == HeldBy::kCgroup);
      EXPECT_THAT(hold.fault, HasSubstr(c.fault));
    }
  }
}

TEST_F(CgroupIoTest, BlkioIsThePlaceBesideTheOthers) {
  hierarchies({"memory", "blkio"}, true);
  EXPECT_EQ(io_place(), "blkio");
  EXPECT_EQ(host_.mode, CgroupMode::kHybrid);
  // No group is made there before somebody asks for a limit.
  EXPECT_EQ(host_.places.size(), 2u);
}

TEST_F(CgroupIoTest, BlkioAloneIsNoPlace) {
  hierarchies({"blkio"}, false);
  EXPECT_EQ(io_place(), "");
  EXPECT_EQ(host_.mode, CgroupMode::kNone);
}

TEST_F(CgroupIoTest, BlkioTogetherWithMemoryHoldsNothingForGroupsBelow) {
  hierarchies({"memory,blkio"}, false);
  EXPECT_EQ(io_place(), "");
  EXPECT_EQ(host_.mode, CgroupMode::kLegacy);
}

TEST_F(CgroupIoTest, Version2IsThePlaceAndStaysAsItIs) {
  if (geteuid() != 0) GTEST_SKIP() << "an ordinary user enters the group, which a folder is not";
  hierarchies({}, true);
  EXPECT_EQ(io_place(), "unified");
  EXPECT_EQ(get("unified/cgroup.subtree_control"), "cpu memory pids\n");
}

class LimitIoTest : public CgroupIoTest {
 protected:
  Status limit(const CgroupPlace& place, SeenDisks disks) {
    return tree_.limit_io(place, limited_plan(), std::move(disks), first_);
  }
  HeldBy held(Limit limit) { return tree_.held()[index_of(limit)]; }
  CgroupTree tree_;
  SlotFiles first_;
};

TEST_F(LimitIoTest, WithoutAPlaceTheFaultIsTheController) {
  ASSERT_TRUE(limit({}, {.disks = {{8, 0}}}));
  EXPECT_EQ(held(Limit::kIoWrite), HeldBy::kNone);
  EXPECT_THAT(tree_.io_fault(Limit::kIoWrite), HasSubstr("no control group with io"));
}

TEST_F(LimitIoTest, WithoutADiskNoGroupIsMade) {
  ASSERT_TRUE(limit({.path = root_, .io = true}, {.unknown = "no disk is known behind x"}));
  EXPECT_TRUE(tree_.empty());
  EXPECT_EQ(tree_.io_fault(Limit::kIoRead), "no disk is known behind x");
}

TEST_F(LimitIoTest, AControllerThatCannotBeEnabledIsNotHeld) {
  ASSERT_TRUE(limit({.path = root_, .v2 = true, .io = true}, {.disks = {{8, 0}}}));
  EXPECT_TRUE(tree_.empty());
  EXPECT_EQ(held(Limit::kIoRead), HeldBy::kNone);
}

TEST_F(LimitIoTest, AGroupThatCannotBeMadeOrEnteredIsAnError) {
  EXPECT_THAT(limit({.path = root_ + "/gone", .io = true}, {.disks = {{8, 0}}}).error().message(),
              HasSubstr("mkdir"));
  EXPECT_THAT(limit({.path = root_, .io = true}, {.disks = {{8, 0}}}).error().message(),
              HasSubstr("/tasks"));
  EXPECT_TRUE(tree_.remove(0));
}

TEST_F(LimitIoTest, ADiskThatTakesNoLimitIsNotHeld) {
  CgroupHost host;
  host.places = {{.path = root_, .cpu = true, .io = true}};
  auto made = CgroupTree::create(host, limited_plan(), geteuid());
  ASSERT_TRUE(made) << made.error().message();
  tree_ = std::move(*made);
  ASSERT_TRUE(limit(host.places[0], {.disks = {{8, 0}}}));
  EXPECT_EQ(held(Limit::kIoRead), HeldBy::kNone);
  EXPECT_THAT(tree_.io_fault(Limit::kIoRead), HasSubstr("disk 8:0 takes no limit"));
  EXPECT_TRUE(tree_.remove(0));
}

}  // namespace
}  // namespace caisson::wall
