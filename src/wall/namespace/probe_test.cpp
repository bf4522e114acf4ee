#include "wall/namespace/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace caisson::wall {
namespace {

using testing::HasSubstr;

// A directory tree that stands for a host: Debian 12 with one ordinary user, without groups.
class FakeHost {
 public:
  FakeHost() {
    char name[] = "/tmp/caisson-probe-XXXXXX";
    if (!mkdtemp(name)) std::abort();
    root_ = name;
    put("proc/self/status", "Name:\tcaisson\nUid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\n");
    put("proc/self/mountinfo", "21 1 0:2 / /proc rw - proc proc rw\n");
    put("proc/self/uid_map", "         0          0 4294967295\n");
    put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    put("proc/sys/user/max_user_namespaces", "31000\n");
    put("proc/filesystems", "nodev\tproc\nnodev\toverlay\n\terofs\n");
    put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n");
    put("etc/subuid", "bob:100000:65536\nalice:165536:65536\n");
    put("etc/subgid", "alice:165536:65536\n");
    put_program("usr/bin/newuidmap", 04755);
    put_program("usr/bin/newgidmap", 04755);
  }
  ~FakeHost() { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  void put_program(const std::string& path, mode_t mode) {
    put(path, "#!/bin/sh\n");
    chmod((root_ + "/" + path).c_str(), mode);
  }
  void remove(const std::string& path) { std::filesystem::remove(root_ + "/" + path); }
  const std::string& root() const { return root_; }

  // What the files say, and probes that all worked: tests spoil one.
  HostFacts facts() const {
    HostFacts facts = read_host_facts(root_);
    facts.probes.error.fill(0);
    facts.landlock_abi = 7;
    facts.cgroups.mode = CgroupMode::kUnified;
    facts.cgroups.places = {
        {.path = "/sys/fs/cgroup", .v2 = true, .memory = true, .pids = true, .cpu = true}};
    facts.cgroups.io = {.path = "/sys/fs/cgroup", .v2 = true, .io = true};
    facts.cgroup2_mounted = true;
    return facts;
  }

 private:
  std::string root_;
};

// The finding of the namespace wall about `feature`.
Finding find(const HostFacts& facts, const std::string& feature) {
  for (const Finding& finding : diagnose(facts))
    if (finding.wall == "namespace" && finding.feature == feature) return finding;
  ADD_FAILURE() << "no finding " << feature;
  return {};
}

void expect(const Finding& finding, FeatureState state, const std::string& detail,
            const std::string& remedy) {
  EXPECT_EQ(to_string(finding.state), to_string(state)) << finding.detail;
  EXPECT_THAT(finding.detail, HasSubstr(detail));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
  if (state == FeatureState::kWorks) EXPECT_EQ(finding.remedy, "");
}

// A host on which an ordinary user cannot make user namespaces.
HostFacts without_user_namespaces(HostFacts facts, int error) {
  facts.probes = ProbeResults();
  facts.probes[Probe::kUserNamespace] = error;
  facts.probes[Probe::kListener] = facts.probes[Probe::kKillable] = 0;
  facts.probes[Probe::kPidfd] = facts.probes[Probe::kClone3] = 0;
  return facts;
}

TEST(Facts, ReadsTheFilesOfAHost) {
  FakeHost host;
  HostFacts facts = read_host_facts(host.root() + "/");
  EXPECT_EQ(facts.uid, 1000u);
  EXPECT_EQ(facts.user, "alice");
  EXPECT_EQ(facts.release, "6.1.0-18-amd64");
  EXPECT_EQ(facts.max_user_namespaces, 31000);
  EXPECT_FALSE(facts.apparmor_restrict_userns.has_value());
  EXPECT_FALSE(facts.unprivileged_userns_clone.has_value());
  EXPECT_EQ(facts.subuid_count, 65536u);
  EXPECT_EQ(facts.subgid_count, 65536u);
  EXPECT_TRUE(facts.has_newuidmap);
  EXPECT_TRUE(facts.has_newgidmap);
  EXPECT_TRUE(facts.has_overlay);
  EXPECT_TRUE(facts.has_erofs);
  EXPECT_FALSE(facts.has_kvm);
  EXPECT_FALSE(facts.filtered);
  EXPECT_TRUE(facts.whole_id_map);
  EXPECT_TRUE(facts.masked_proc.empty());
}

TEST(Facts, AnEmptyTreeGivesDefaults) {
  HostFacts facts = read_host_facts("/nonexistent");
  EXPECT_EQ(facts.release, "");
  EXPECT_EQ(facts.subuid_count, 0u);
  EXPECT_FALSE(facts.max_user_namespaces.has_value());
  EXPECT_FALSE(facts.cgroup1_mounted || facts.cgroup2_mounted);
}

TEST(Facts, MalformedFilesGiveDefaults) {
  FakeHost host;
  host.put("proc/self/status", "Uid:\nUid:\tx\ty\nSeccomp:\n");
  host.put("proc/self/mountinfo", "1 2\n - \nx y z - cgroup2\n");
  host.put("proc/sys/user/max_user_namespaces", "many\n");
  host.put("etc/subuid", "alice\nalice:1\nalice:1:x\n:::\n");
  host.put("etc/passwd", "alice\n\n:::\n");
  HostFacts facts = read_host_facts(host.root());
  EXPECT_EQ(facts.user, "");
  EXPECT_EQ(facts.subuid_count, 0u);
  EXPECT_FALSE(facts.max_user_namespaces.has_value());
  EXPECT_FALSE(facts.cgroup2_mounted);
}

TEST(Facts, FindsMaskedProcAndGroups) {
  FakeHost host;
  host.put("proc/self/mountinfo",
           "1 0 0:1 / /proc rw shared:1 - proc proc rw\n"
           "2 1 0:2 / /proc/kcore rw - tmpfs tmpfs rw\n"
           "3 1 0:1 /sys /proc/sys ro - proc proc rw\n"
           "4 1 0:3 / /proc/sys/fs/binfmt_misc rw - binfmt_misc none rw\n"
           "5 1 0:4 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
           "6 1 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  host.put("sys/fs/cgroup/unified/a.slice/cgroup.procs", "");
  HostFacts facts = read_host_facts(host.root());
  EXPECT_THAT(facts.masked_proc, testing::ElementsAre("/proc/kcore", "/proc/sys"));
  EXPECT_TRUE(facts.cgroup1_mounted);
  EXPECT_TRUE(facts.cgroup2_mounted);
  EXPECT_EQ(facts.cgroup_kill, false);
  host.put("sys/fs/cgroup/unified/a.slice/cgroup.kill", "");
  EXPECT_EQ(read_host_facts(host.root()).cgroup_kill, true);
}

TEST(Facts, ARangeMayBeGivenByNumber) {
  FakeHost host;
  host.put("etc/subuid", "1000:100000:70000\nalice:1:10\n");
  EXPECT_EQ(read_host_facts(host.root()).subuid_count, 70000u);
}

TEST(Facts, AHelperWithoutItsBitDoesNotCount) {
  FakeHost host;
  host.put_program("usr/bin/newuidmap", 0755);
  host.put_program("usr/bin/newgidmap", 04644);
  HostFacts facts = read_host_facts(host.root());
  EXPECT_FALSE(facts.has_newuidmap);
  EXPECT_FALSE(facts.has_newgidmap);
}

TEST(Diagnose, AGoodHostWorks) {
  FakeHost host;
  for (const Finding& finding : diagnose(host.facts())) {
    if (finding.wall != "namespace") continue;
    EXPECT_EQ(to_string(finding.state), "works") << finding.feature << ": " << finding.detail;
    EXPECT_EQ(finding.remedy, "") << finding.feature;
  }
}

TEST(Diagnose, EveryWallBeginsWithItsVerdict) {
  FakeHost host;
  std::vector<Finding> findings = diagnose(host.facts());
  std::vector<std::string> verdicts;
  std::string wall;
  for (const Finding& finding : findings) {
    if (finding.wall != wall) EXPECT_EQ(finding.feature, "wall");
    wall = finding.wall;
    if (finding.feature == "wall") verdicts.push_back(finding.wall);
  }
  EXPECT_THAT(verdicts, testing::ElementsAre("namespace", "gvisor", "microvm"));
}

TEST(Diagnose, EveryMissingFeatureHasARemedy) {
  HostFacts nothing = read_host_facts("/nonexistent");
  nothing.uid = 1000;
  nothing.probes.error.fill(EPERM);
  for (const Finding& finding : diagnose(nothing)) {
    EXPECT_NE(finding.detail, "") << finding.feature;
    if (finding.state == FeatureState::kMissing) EXPECT_NE(finding.remedy, "") << finding.feature;
  }
}

TEST(Diagnose, AppArmorSwitch) {
  FakeHost host;
  host.put("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  HostFacts facts = host.facts();
  facts.probes[Probe::kRights] = EPERM;
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "AppArmor",
         "apparmor_parser -r /etc/apparmor.d/caisson");
  expect(find(facts, "wall"), FeatureState::kMissing, "it needs user namespaces", "remedies");
}

TEST(Diagnose, AppArmorSwitchWithAProfileWorks) {
  FakeHost host;
  host.put("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
  expect(find(host.facts(), "user namespaces"), FeatureState::kWorks, "", "");
}

TEST(Diagnose, UnprivilegedNamespacesOff) {
  FakeHost host;
  host.put("proc/sys/kernel/unprivileged_userns_clone", "0\n");
  HostFacts facts = without_user_namespaces(host.facts(), EPERM);
  expect(find(facts, "user namespaces"), FeatureState::kMissing,
         "kernel.unprivileged_userns_clone is 0", "kernel.unprivileged_userns_clone=1");
  for (const char* feature : {"fresh /proc", "overlay"})
    expect(find(facts, feature), FeatureState::kMissing, "not tried", "user namespaces work first");
  expect(find(facts, "tmpfs attributes"), FeatureState::kLimited, "not tried",
         "user namespaces work first");
}

TEST(Diagnose, NoUserNamespaceAtAll) {
  FakeHost host;
  host.put("proc/sys/user/max_user_namespaces", "0\n");
  HostFacts facts = without_user_namespaces(host.facts(), ENOSPC);
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "max_user_namespaces is 0",
         "user.max_user_namespaces=15000");
}

TEST(Diagnose, FewUserNamespaces) {
  FakeHost host;
  host.put("proc/sys/user/max_user_namespaces", "10\n");
  expect(find(host.facts(), "user namespaces"), FeatureState::kLimited, "at most 5 sandboxes",
         "user.max_user_namespaces=15000");
  host.put("proc/sys/user/max_user_namespaces", "128\n");
  expect(find(host.facts(), "user namespaces"), FeatureState::kWorks, "", "");
}

TEST(Diagnose, UserNamespacesFailForOtherReasons) {
  FakeHost host;
  HostFacts facts = without_user_namespaces(host.facts(), ENOSPC);
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "used up", "15000");
  facts = without_user_namespaces(host.facts(), EUSERS);
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "cannot make one", "further out");
  facts = without_user_namespaces(host.facts(), EPERM);
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "cannot make one",
         "CONFIG_USER_NS");
  facts.filtered = true;
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "outer container",
         "seccomp=unconfined");
  facts = host.facts();
  facts.probes[Probe::kNestedNamespace] = ENOSPC;
  expect(find(facts, "user namespaces"), FeatureState::kMissing, "a second inside it", "15000");
  facts = host.facts();
  facts.probes = ProbeResults();
  expect(find(facts, "user namespaces"), FeatureState::kLimited, "not tried", "");
}

TEST(Diagnose, MaskedProcOfAnOuterContainer) {
  FakeHost host;
  host.put("proc/self/mountinfo",
           "2 1 0:2 / /proc/kcore rw - tmpfs tmpfs rw\n3 1 0:2 / /proc/keys rw - tmpfs tmpfs rw\n");
  HostFacts facts = host.facts();
  facts.probes[Probe::kProc] = EPERM;
  expect(find(facts, "fresh /proc"), FeatureState::kMissing, "/proc/kcore and 1 more are covered",
         "systempaths=unconfined");
  facts.masked_proc.clear();
  expect(find(facts, "fresh /proc"), FeatureState::kMissing, "cannot be mounted", "host's own");
}

TEST(Diagnose, NoRangeOfIds) {
  FakeHost host;
  host.put("etc/subuid", "bob:100000:65536\n");
  expect(find(host.facts(), "id ranges"), FeatureState::kLimited,
         "no range for alice in /etc/subuid", "--add-subuids 100000-165535");
  host.put("etc/subuid", "alice:100000:1000\n");
  expect(find(host.facts(), "id ranges"), FeatureState::kLimited, "has 1000 ids, 65536 are needed",
         "usermod");
  host.put("etc/subuid", "alice:100000:65536\n");
  host.put("etc/subgid", "");
  expect(find(host.facts(), "id ranges"), FeatureState::kLimited, "/etc/subgid", "usermod");
}

TEST(Diagnose, NoNewuidmap) {
  FakeHost host;
  host.remove("usr/bin/newuidmap");
  expect(find(host.facts(), "id ranges"), FeatureState::kLimited, "newuidmap is missing",
         "apt-get install uidmap");
  host.put_program("usr/bin/newuidmap", 04755);
  host.remove("usr/bin/newgidmap");
  expect(find(host.facts(), "id ranges"), FeatureState::kLimited, "newgidmap is missing",
         "apt-get install uidmap");
}

TEST(Diagnose, RootNeedsNoRange) {
  FakeHost host;
  host.put("proc/self/status", "Uid:\t0\t0\t0\t0\n");
  host.put("etc/subuid", "");
  expect(find(host.facts(), "id ranges"), FeatureState::kWorks, "block of ids", "");
}

TEST(Diagnose, RootOfAnOuterUserNamespace) {
  FakeHost host;
  host.put("proc/self/status", "Uid:\t0\t0\t0\t0\n");
  host.put("proc/self/uid_map", "0 100000 65536\n");
  expect(find(host.facts(), "id ranges"), FeatureState::kMissing, "outer user namespace",
         "ordinary user");
}

TEST(Diagnose, VersionTwoWithoutDelegation) {
  FakeHost host;
  host.put("proc/self/mountinfo", "6 1 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  HostFacts facts = host.facts();
  facts.cgroups = {};
  facts.cgroups.reason = "mkdir: Permission denied";
  expect(find(facts, "cgroups"), FeatureState::kLimited, "version 2, not delegated",
         "systemd-run --user --scope -p Delegate=yes");
  EXPECT_THAT(find(facts, "cgroups").detail, HasSubstr("mkdir: Permission denied"));
  facts.uid = 0;
  expect(find(facts, "cgroups"), FeatureState::kLimited, "no group can be made", "writable");
  expect(find(facts, "wall"), FeatureState::kLimited, "runs", "");
}

TEST(Diagnose, VersionOne) {
  FakeHost host;
  host.put("proc/self/mountinfo", "6 1 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  HostFacts facts = host.facts();
  facts.cgroups = {};
  expect(find(facts, "cgroups"), FeatureState::kLimited, "belong to root", "as root");
  facts.uid = 0;
  expect(find(facts, "cgroups"), FeatureState::kLimited, "no group can be made", "writable");
  facts.cgroups = host.facts().cgroups;
  facts.cgroups.mode = CgroupMode::kLegacy;
  expect(find(facts, "cgroups"), FeatureState::kWorks, "version 1 with", "");
  facts.cgroups.mode = CgroupMode::kHybrid;
  expect(find(facts, "cgroups"), FeatureState::kWorks, "life cycle by version 2", "");
  facts.cgroup2_mounted = false;
  expect(find(facts, "cgroup.kill"), FeatureState::kLimited, "needs version 2", "mount -t cgroup2");
}

TEST(Diagnose, NoGroupsMounted) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.cgroups = {};
  facts.cgroup2_mounted = false;
  expect(find(facts, "cgroups"), FeatureState::kLimited, "not mounted", "mount -t cgroup2");
}

TEST(Diagnose, MissingControllers) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.cgroups.places[0].cpu = false;
  expect(find(facts, "cgroups"), FeatureState::kLimited, "without cpu", "Delegate=cpu");
  facts.uid = 0;
  facts.cgroups.places[0].memory = false;
  expect(find(facts, "cgroups"), FeatureState::kLimited, "without memory, cpu", "+memory");
}

TEST(Diagnose, LimitsOfIo) {
  FakeHost host;
  HostFacts facts = host.facts();
  expect(find(facts, "I/O limits"), FeatureState::kWorks, "version 2 holds", "");
  facts.cgroups.io.v2 = false;
  expect(find(facts, "I/O limits"), FeatureState::kLimited, "is nobody's", "version 2");
  facts.cgroups.io = {};
  expect(find(facts, "I/O limits"), FeatureState::kLimited, "are not held",
         "Delegate=cpu cpuset io");
  facts.uid = 0;
  expect(find(facts, "I/O limits"), FeatureState::kLimited, "are not held", "+io");
}

TEST(Diagnose, OldKernel) {
  FakeHost host;
  host.put("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
  HostFacts facts = host.facts();
  facts.landlock_abi = 0;
  facts.probes[Probe::kTmpfsXattr] = EOPNOTSUPP;
  facts.probes[Probe::kOverlay] = EPERM;
  facts.probes[Probe::kKillable] = EINVAL;
  facts.probes[Probe::kTimeNamespace] = EINVAL;
  facts.probes[Probe::kClone3] = ENOSYS;
  expect(find(facts, "kernel"), FeatureState::kLimited, "5.10.0", "6.1");
  expect(find(facts, "Landlock"), FeatureState::kLimited, "not there", "lsm=landlock");
  expect(find(facts, "tmpfs attributes"), FeatureState::kLimited,
         "no user attributes on a tmpfs (Operation not supported): removing a directory", "6.6");
  facts.uid = 0;
  expect(find(facts, "tmpfs attributes"), FeatureState::kWorks, "root needs none", "");
  facts.uid = 1000;
  expect(find(facts, "overlay"), FeatureState::kMissing, "in a user namespace", "5.11");
  expect(find(facts, "seccomp listener"), FeatureState::kLimited, "cannot be killed", "5.19");
  expect(find(facts, "time namespace"), FeatureState::kLimited, "uptime", "CONFIG_TIME_NS");
  expect(find(facts, "pidfd and clone3"), FeatureState::kMissing, "clone3", "5.3");
  expect(find(facts, "cgroup.kill"), FeatureState::kLimited, "not there", "5.14");
  expect(find(facts, "wall"), FeatureState::kMissing, "it needs overlay, pidfd and clone3", "");
}

TEST(Diagnose, ReleasesAreComparedAsNumbers) {
  FakeHost host;
  HostFacts facts = host.facts();
  for (const char* release : {"6.1", "6.10.3", "7.0.0"}) {
    facts.release = release;
    expect(find(facts, "kernel"), FeatureState::kWorks, release, "");
  }
  for (const char* release : {"", "6", "6.0.19", "5.15.0", "x.y", "6.x"}) {
    facts.release = release;
    expect(find(facts, "kernel"), FeatureState::kLimited, release, "6.1");
  }
}

TEST(Diagnose, DebiansKernel) {
  FakeHost host;
  host.put("proc/self/status", "Uid:\t0\t0\t0\t0\n");
  HostFacts facts = host.facts();
  facts.landlock_abi = 2;
  facts.probes[Probe::kErofsFile] = ENOTBLK;
  expect(find(facts, "Landlock"), FeatureState::kLimited, "version 2: files", "network");
  facts.probes[Probe::kErofsLoop] = 0;
  expect(find(facts, "erofs from a file"), FeatureState::kLimited,
         "loop device alone; images can only be kept as directories", "6.12");
  facts.probes[Probe::kErofsLoop] = ENXIO;
  expect(find(facts, "erofs from a file"), FeatureState::kLimited,
         "nor over a loop device (No such", "6.12");
  expect(find(facts, "wall"), FeatureState::kLimited, "runs", "");
  facts.landlock_abi = 5;
  expect(find(facts, "Landlock"), FeatureState::kLimited, "but not signals", "newer kernel");
  facts.has_erofs = false;
  expect(find(facts, "erofs from a file"), FeatureState::kLimited, "no erofs", "modprobe erofs");
}

TEST(Diagnose, ErofsFromAFile) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.uid = 0;
  facts.probes[Probe::kErofsFile] = 0;
  expect(find(facts, "erofs from a file"), FeatureState::kWorks, "can be kept as one file", "");
}

TEST(Diagnose, IdMappedMounts) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.probes[Probe::kIdmap] = kNotTried;
  expect(find(facts, "id-mapped mounts"), FeatureState::kWorks, "not needed", "");
  facts.uid = 0;
  facts.probes[Probe::kIdmap] = EINVAL;
  expect(find(facts, "id-mapped mounts"), FeatureState::kLimited, "copy of the image", "ext4");
}

TEST(Diagnose, QuotaLayer) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.state_directory = "/var/lib/caisson";
  expect(find(facts, "quota layer"), FeatureState::kWorks, "in /var/lib/caisson", "");
  facts.probes[Probe::kQuotaLayer] = kNotTried;
  expect(find(facts, "quota layer"), FeatureState::kLimited, "root's alone", "");
  facts.uid = 0;
  facts.probes[Probe::kQuotaLayer] = ENOENT;
  expect(find(facts, "quota layer"), FeatureState::kLimited, "No such file", "modprobe -a loop");
  facts.probes[Probe::kQuotaLayer] = EINVAL;
  facts.state_in_memory = true;
  expect(find(facts, "quota layer"), FeatureState::kLimited, "/var/lib/caisson lies in memory",
         "CAISSON_STATE_DIR");
}

TEST(Diagnose, OverlayModuleIsNotLoaded) {
  FakeHost host;
  host.put("proc/filesystems", "nodev\tproc\n");
  HostFacts facts = host.facts();
  facts.probes[Probe::kOverlay] = ENODEV;
  expect(find(facts, "overlay"), FeatureState::kMissing, "no overlay", "modprobe overlay");
}

TEST(Diagnose, SeccompInsideOtherSandboxes) {
  FakeHost host;
  HostFacts facts = host.facts();
  facts.probes[Probe::kListener] = EBUSY;
  expect(find(facts, "seccomp listener"), FeatureState::kLimited, "outer filter", "outside");
  facts.probes[Probe::kListener] = EINVAL;
  expect(find(facts, "seccomp listener"), FeatureState::kMissing, "no filter", "5.0 or newer");
  facts.filtered = true;
  expect(find(facts, "seccomp listener"), FeatureState::kMissing, "no filter",
         "seccomp=unconfined");
  facts.probes[Probe::kPidfd] = ENOSYS;
  expect(find(facts, "pidfd and clone3"), FeatureState::kMissing, "pidfd_open",
         "seccomp=unconfined");
}

TEST(Diagnose, AGatewayIsNamedByWhatItLacks) {
  FakeHost host;
  HostFacts facts = host.facts();
  expect(find(facts, "network gateway"), FeatureState::kWorks, "nowhere else", "");
  facts.probes[Probe::kVeth] = EOPNOTSUPP;
  expect(
      find(facts, "network gateway"), FeatureState::kLimited,
      "no pairs of virtual Ethernet devices (Operation not supported): sandboxes have no network",
      "sudo modprobe veth");
  facts.probes[Probe::kVeth] = 0;
  facts.probes[Probe::kNftRedirect] = facts.probes[Probe::kNftReject] = ENOENT;
  expect(find(facts, "network gateway"), FeatureState::kLimited, "that redirect", "nft_redir");
  expect(find(facts, "network gateway"), FeatureState::kLimited, "that refuse", "nft_reject_inet");
  facts = host.facts();
  facts.probes[Probe::kIpv6] = EAFNOSUPPORT;
  facts.filtered = true;
  expect(find(facts, "network gateway"), FeatureState::kLimited, "no IPv6", "outer container");
  expect(find(without_user_namespaces(host.facts(), EPERM), "network gateway"),
         FeatureState::kLimited, "not tried", "user namespaces");
}

TEST(Diagnose, OtherWallsSayWhatIsThere) {
  FakeHost host;
  host.put("dev/kvm", "");
  host.put_program("opt/bin/runsc", 0755);
  const std::string before = std::getenv("PATH") ? std::getenv("PATH") : "";
  setenv("PATH", "/opt/bin:relative", 1);
  HostFacts facts = host.facts();
  setenv("PATH", before.c_str(), 1);
  for (const Finding& finding : diagnose(facts)) {
    if (finding.wall == "gvisor") EXPECT_THAT(finding.detail, HasSubstr("/opt/bin/runsc"));
    if (finding.wall == "microvm") EXPECT_THAT(finding.detail, HasSubstr("/dev/kvm is there"));
  }
}

// How many mounts stand on /tmp, which is where the probes mount in their own namespace.
int mounts_on_tmp() {
  std::ifstream file("/proc/self/mountinfo");
  int count = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find(" /tmp ") != std::string::npos) ++count;
  return count;
}

// This host, whatever it is: the probes end, answer, and leave the process as it was.
TEST(Live, ProbesThisHost) {
  auto space = [](const char* kind) {
    return std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string();
  };
  const int mounts = mounts_on_tmp();
  const std::string user = space("user"), mnt = space("mnt"), pid = space("pid_for_children");
  HostFacts facts = probe_host();
  EXPECT_NE(facts.probes[Probe::kUserNamespace], kNotTried);
  EXPECT_NE(facts.probes[Probe::kListener], kNotTried);
  EXPECT_EQ(facts.probes[Probe::kPidfd], 0);
  if (facts.uid == 0) {
    EXPECT_NE(facts.probes[Probe::kIdmap], kNotTried);
    for (const Probe probe : {Probe::kErofsFile, Probe::kErofsLoop})
      EXPECT_NE(facts.probes[probe], kNotTried);
  }
  if (facts.probes[Probe::kRights] == 0) {
    EXPECT_NE(facts.probes[Probe::kProc], kNotTried);
    EXPECT_NE(facts.probes[Probe::kOverlay], kNotTried);
    for (const Probe probe : {Probe::kIpv6, Probe::kVeth, Probe::kNftRedirect, Probe::kNftReject})
      EXPECT_NE(facts.probes[probe], kNotTried);
  }
  EXPECT_EQ(space("user"), user);
  EXPECT_EQ(space("mnt"), mnt);
  EXPECT_EQ(space("pid_for_children"), pid);
  EXPECT_EQ(mounts_on_tmp(), mounts);
  EXPECT_FALSE(diagnose(facts).empty());
}

}  // namespace
}  // namespace caisson::wall
