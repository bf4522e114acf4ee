#include "wall/namespace/probe.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace caisson::wall {
namespace {

// A sandbox makes two user namespaces, one for its first process and one for the program.
constexpr std::int64_t kNamespacesPerSandbox = 2;
// Below this many sandboxes at once a test run or a small server meets the limit.
constexpr std::int64_t kComfortableSandboxes = 64;
// Ids of an ordinary image: 0 to 65535.
constexpr std::uint64_t kIdRange = 65536;

constexpr const char* kNamespaceWall = "namespace";

Finding works(std::string feature, std::string detail) {
  return {kNamespaceWall, std::move(feature), FeatureState::kWorks, std::move(detail), ""};
}
Finding limited(std::string feature, std::string detail, std::string remedy) {
  return {kNamespaceWall, std::move(feature), FeatureState::kLimited, std::move(detail),
          std::move(remedy)};
}
Finding missing(std::string feature, std::string detail, std::string remedy) {
  return {kNamespaceWall, std::move(feature), FeatureState::kMissing, std::move(detail),
          std::move(remedy)};
}

// "EPERM"-like names are for developers; people read "Operation not permitted".
std::string reason(int error) {
  return error == kNotTried ? "not tried" : std::strerror(error);
}

bool failed(const HostFacts& facts, Probe probe) {
  return facts.probes[probe] > 0;
}
bool tried(const HostFacts& facts, Probe probe) {
  return facts.probes[probe] != kNotTried;
}

// Whether release ("6.1.0-18-amd64") is at least major.minor; an unreadable one is not.
bool kernel_at_least(const std::string& release, int major, int minor) {
  int found[2] = {0, 0};
  const char* end = release.data() + release.size();
  auto [dot, error] = std::from_chars(release.data(), end, found[0]);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, found[1]).ec != std::errc()) return false;
  return found[0] != major ? found[0] > major : found[1] >= minor;
}

const char kNewerKernel[] =
    "A newer kernel has it; Debian 12 offers one as linux-image-amd64 from "
    "bookworm-backports.";

Finding kernel(const HostFacts& facts) {
  if (kernel_at_least(facts.release, 6, 1)) return works("kernel", "Linux " + facts.release);
  return limited("kernel",
                 "Linux " + (facts.release.empty() ? "of an unknown release" : facts.release) +
                     "; caisson is tested from 6.1 on",
                 "Use Linux 6.1 or newer.");
}

// In the order in which one explains the other.
Finding user_namespaces(const HostFacts& facts) {
  const char* feature = "user namespaces";
  if (facts.max_user_namespaces == 0)
    return missing(feature, "user.max_user_namespaces is 0, so nobody can make one",
                   "sudo sysctl -w user.max_user_namespaces=15000 (and in /etc/sysctl.d/ to keep "
                   "it)");
  const bool broken = failed(facts, Probe::kUserNamespace) || failed(facts, Probe::kRights);
  const bool proven = facts.probes[Probe::kRights] == 0;
  if (facts.uid != 0 && !proven) {
    if (facts.unprivileged_userns_clone == 0)
      return missing(feature, "kernel.unprivileged_userns_clone is 0, so only root can make one",
                     "sudo sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d/ to "
                     "keep it), or run caisson as root");
    if (facts.apparmor_restrict_userns.value_or(0) != 0)
      return missing(
          feature,
          "AppArmor gives no rights in a user namespace to programs without a profile "
          "(kernel.apparmor_restrict_unprivileged_userns is 1)",
          "Install caisson's profile: sudo cp /usr/share/caisson/apparmor/caisson /etc/apparmor.d/ "
          "&& sudo apparmor_parser -r /etc/apparmor.d/caisson (it names /usr/bin/caisson and "
          "/usr/local/bin/caisson; a program elsewhere needs its path added). Or, for every "
          "program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
  }
  if (broken) {
    const bool made = !failed(facts, Probe::kUserNamespace);
    const int error = facts.probes[made ? Probe::kRights : Probe::kUserNamespace];
    const std::string what =
        (made ? "one can be made, but no other namespace in it: " : "cannot make one: ") +
        reason(error);
    if (error == ENOSPC)
      return missing(feature, what + " (a limit of user namespaces is used up)",
                     "Raise it: sudo sysctl -w user.max_user_namespaces=15000");
    if (error == EUSERS)
      return missing(feature, what, "Too many are nested already; run caisson further out.");
    if (facts.filtered)
      return missing(feature, what + "; this process is inside a filter of an outer container",
                     "Start the container with --security-opt seccomp=unconfined "
                     "--security-opt apparmor=unconfined, or run caisson outside of it.");
    return missing(feature, what,
                   "A kernel built with CONFIG_USER_NS is needed, and a process that is not in a "
                   "chroot.");
  }
  if (failed(facts, Probe::kNestedNamespace))
    return missing(
        feature,
        "one works, a second inside it does not: " + reason(facts.probes[Probe::kNestedNamespace]),
        "Raise the limit: sudo sysctl -w user.max_user_namespaces=15000");
  if (facts.max_user_namespaces) {
    const std::int64_t sandboxes = *facts.max_user_namespaces / kNamespacesPerSandbox;
    if (sandboxes < kComfortableSandboxes)
      return limited(feature,
                     "user.max_user_namespaces is " + std::to_string(*facts.max_user_namespaces) +
                         ": at most " + std::to_string(sandboxes) +
                         " sandboxes at once, fewer if other programs make some",
                     "sudo sysctl -w user.max_user_namespaces=15000 (and in /etc/sysctl.d/ to keep "
                     "it)");
  }
  if (!proven) return limited(feature, "not tried", "");
  return works(feature, "with mount, pid, network, ipc, uts and cgroup namespaces in them");
}

Finding fresh_proc(const HostFacts& facts) {
  const char* feature = "fresh /proc";
  if (!tried(facts, Probe::kProc))
    return missing(feature, "not tried, since user namespaces do not work",
                   "Make user namespaces work first.");
  if (!failed(facts, Probe::kProc)) return works(feature, "mounts in a new pid namespace");
  std::string detail = "cannot be mounted: " + reason(facts.probes[Probe::kProc]);
  if (facts.masked_proc.empty())
    return missing(feature, detail, "Run caisson where /proc is the host's own.");
  detail += "; " + facts.masked_proc.front();
  if (facts.masked_proc.size() > 1)
    detail += " and " + std::to_string(facts.masked_proc.size() - 1) + " more";
  detail += " are covered, as an outer container does it";
  return missing(feature, detail,
                 "Start the outer container with an uncovered /proc: docker run --security-opt "
                 "systempaths=unconfined, podman run --security-opt unmask=ALL, in Kubernetes "
                 "procMount: Unmasked.");
}

Finding id_ranges(const HostFacts& facts) {
  const char* feature = "id ranges";
  if (facts.uid == 0) {
    if (facts.whole_id_map)
      return works(feature, "root gives each sandbox a block of ids of its own");
    return missing(
        feature,
        "this is root of an outer user namespace, which lacks the ids that caisson gives "
        "to sandboxes",
        "Run caisson as an ordinary user here, or in the host's own user namespace "
        "(without userns-remap, not in a rootless container).");
  }
  const std::string who = facts.user.empty() ? std::to_string(facts.uid) : facts.user;
  const std::string effect =
      "; without it the program runs under one id alone: no other users, no sudo inside";
  if (facts.subuid_count < kIdRange || facts.subgid_count < kIdRange) {
    const bool uid_short = facts.subuid_count < kIdRange;
    const std::uint64_t count = uid_short ? facts.subuid_count : facts.subgid_count;
    const std::string file = uid_short ? "/etc/subuid" : "/etc/subgid";
    return limited(
        feature,
        (count == 0 ? "no range for " + who + " in " + file
                    : "the range of " + who + " in " + file + " has " + std::to_string(count) +
                          " ids, " + std::to_string(kIdRange) + " are needed") +
            effect,
        "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + who +
            " (choose numbers that no other user has)");
  }
  if (!facts.has_newuidmap || !facts.has_newgidmap)
    return limited(feature,
                   std::string(facts.has_newuidmap ? "newgidmap" : "newuidmap") +
                       " is missing or may not do its work" + effect,
                   "sudo apt-get install uidmap");
  return works(feature, "65536 ids for " + who + ", shared by all sandboxes of this user");
}

std::string list_missing_controllers(const CgroupHost& cgroups) {
  bool memory = false, pids = false, cpu = false;
  for (const CgroupPlace& place : cgroups.places) {
    memory = memory || place.memory;
    pids = pids || place.pids;
    cpu = cpu || place.cpu;
  }
  std::string names;
  for (auto [has, name] : {std::pair(memory, "memory"), {pids, "pids"}, {cpu, "cpu"}})
    if (!has) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

Finding no_cgroups(const HostFacts& facts) {
  const char* feature = "cgroups";
  const std::string effect =
      ": memory is watched, processes are held by an rlimit, the share of cpu is not held";
  if (!facts.cgroup1_mounted && !facts.cgroup2_mounted)
    return limited(feature, "not mounted" + effect,
                   "sudo mount -t cgroup2 none /sys/fs/cgroup; in a container, give it its own "
                   "groups (docker run --cgroupns=private and a writable /sys/fs/cgroup)");
  if (facts.cgroup2_mounted && !facts.cgroup1_mounted) {
    if (facts.uid == 0)
      return limited(feature, "version 2 is mounted, but no group can be made here" + effect,
                     "In a container, mount /sys/fs/cgroup writable; under systemd, start with "
                     "systemd-run --scope -p Delegate=yes caisson run …");
    return limited(feature, "version 2, not delegated to this user" + effect,
                   "systemd-run --user --scope -p Delegate=yes caisson run … ; for cpu and I/O as "
                   "well: sudo systemctl edit user@.service, and there [Service] "
                   "Delegate=cpu cpuset io memory pids");
  }
  if (facts.uid == 0)
    return limited(feature, "version 1 is mounted, but no group can be made here" + effect,
                   "Mount the controllers memory, pids and cpu writable.");
  return limited(feature, "version 1 groups belong to root" + effect,
                 "Run caisson as root, or start the host with version 2 (kernel command line "
                 "systemd.unified_cgroup_hierarchy=1) and delegation.");
}

Finding cgroups(const HostFacts& facts) {
  const char* feature = "cgroups";
  std::string detail;
  switch (facts.cgroups.mode) {
    case CgroupMode::kNone: {
      Finding finding = no_cgroups(facts);
      if (!facts.cgroups.reason.empty()) finding.detail += " (" + facts.cgroups.reason + ")";
      return finding;
    }
    case CgroupMode::kLegacy:
      detail = "version 1";
      break;
    case CgroupMode::kHybrid:
      detail = "limits by version 1, life cycle by version 2";
      break;
    case CgroupMode::kUnified:
      detail = "version 2";
      break;
  }
  const std::string absent = list_missing_controllers(facts.cgroups);
  if (!absent.empty())
    return limited(
        feature, detail + ", without " + absent,
        facts.uid == 0
            ? "Enable them for child groups: write +" + absent.substr(0, absent.find(',')) +
                  " to cgroup.subtree_control of every group above caisson's"
            : "sudo systemctl edit user@.service, and there [Service] Delegate=cpu cpuset "
              "io memory pids; then log in again");
  return works(feature, detail + " with memory, pids and cpu");
}

Finding io_limits(const HostFacts& facts) {
  const char* feature = "I/O limits";
  const CgroupPlace& place = facts.cgroups.io;
  if (place.io && place.v2)
    return works(feature, "version 2 holds --io-read, --io-write and their operations");
  if (place.io)
    return limited(feature,
                   "version 1 holds reads, and writes that are direct or synchronous; what the "
                   "kernel writes out later for a program is nobody's",
                   "Start the host with version 2 (kernel command line "
                   "systemd.unified_cgroup_hierarchy=1).");
  return limited(feature, "no control group with io: --io-read and --io-write are not held",
                 facts.uid == 0
                     ? "Enable it for child groups: write +io to cgroup.subtree_control of every "
                       "group above caisson's; on version 1 mount the controller blkio."
                     : "sudo systemctl edit user@.service, and there [Service] Delegate=cpu cpuset "
                       "io memory pids; then log in again");
}

Finding cgroup_kill(const HostFacts& facts) {
  const char* feature = "cgroup.kill";
  const bool there =
      facts.cgroup2_mounted && facts.cgroup_kill.value_or(kernel_at_least(facts.release, 5, 14));
  if (there) return works(feature, "a group ends at once");
  return limited(feature,
                 facts.cgroup2_mounted
                     ? "not there: the processes of a group are signalled one by one until none is "
                       "left"
                     : "needs version 2 control groups, also beside version 1: the processes of a "
                       "group are signalled one by one until none is left",
                 facts.cgroup2_mounted ? "Linux 5.14 or newer has it."
                                       : "sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t "
                                         "cgroup2 none /sys/fs/cgroup/unified");
}

Finding overlay(const HostFacts& facts) {
  const char* feature = "overlay";
  if (!facts.has_overlay && failed(facts, Probe::kOverlay))
    return missing(feature, "the kernel has no overlay file system loaded",
                   "sudo modprobe overlay");
  if (!tried(facts, Probe::kOverlay))
    return missing(feature, "not tried, since user namespaces do not work",
                   "Make user namespaces work first.");
  if (failed(facts, Probe::kOverlay))
    return missing(
        feature, "cannot be mounted in a user namespace: " + reason(facts.probes[Probe::kOverlay]),
        "Linux 5.11 or newer is needed, and no security module that forbids it.");
  return works(feature, "mounts in a user namespace");
}

Finding tmpfs_xattrs(const HostFacts& facts) {
  const char* feature = "tmpfs attributes";
  if (facts.probes[Probe::kTmpfsXattr] == 0) return works(feature, "user attributes on a tmpfs");
  if (!tried(facts, Probe::kTmpfsXattr))
    return limited(feature, "not tried, since user namespaces do not work",
                   "Make user namespaces work first.");
  const std::string what =
      "no user attributes on a tmpfs (" + reason(facts.probes[Probe::kTmpfsXattr]) + ")";
  if (facts.uid == 0) return works(feature, what + ", and root needs none for its layers");
  return limited(feature,
                 what + ": removing a directory of an image fails inside (Input/output error)",
                 std::string("Linux 6.6 or newer has them. ") + kNewerKernel);
}

Finding quota_layer(const HostFacts& facts) {
  const char* feature = "quota layer";
  if (facts.probes[Probe::kQuotaLayer] == 0)
    return works(feature, "an ext4 on a loop device, in " + facts.state_directory);
  const std::string instead = "; writable layers are of the kind tmpfs alone";
  if (facts.uid != 0)
    return limited(feature, "needs a loop device, which is root's alone" + instead, "");
  if (facts.state_in_memory)
    return limited(feature, facts.state_directory + " lies in memory" + instead,
                   "Set CAISSON_STATE_DIR to a directory on a disk.");
  return limited(feature, reason(facts.probes[Probe::kQuotaLayer]) + instead,
                 "sudo modprobe -a loop ext4; in a container, give it /dev/loop-control and the "
                 "loop devices, and let it mount.");
}

Finding idmapped_mounts(const HostFacts& facts) {
  const char* feature = "id-mapped mounts";
  if (facts.probes[Probe::kIdmap] == 0) return works(feature, "where the images are");
  if (facts.uid != 0)
    return works(feature, "not needed: an ordinary user's images have the user's own ids");
  return limited(feature,
                 "not on the file system of /var/lib (" + reason(facts.probes[Probe::kIdmap]) +
                     "): each id block needs a copy of the image",
                 "Keep the images on ext4, xfs or btrfs, with Linux 5.19 or newer.");
}

Finding erofs(const HostFacts& facts) {
  const char* feature = "erofs from a file";
  if (facts.probes[Probe::kErofsFile] == 0)
    return works(feature,
                 "images can be kept as one file; what sandboxes read of a directory is in memory "
                 "once, of a file for each of them");
  const std::string instead = "; images can only be kept as directories";
  if (facts.uid != 0) return limited(feature, "only root can mount one" + instead, "");
  if (!facts.has_erofs)
    return limited(feature, "the kernel has no erofs" + instead, "sudo modprobe erofs");
  const std::string loop =
      facts.probes[Probe::kErofsLoop] == 0
          ? ", over a loop device alone"
          : ", nor over a loop device (" + reason(facts.probes[Probe::kErofsLoop]) + ")";
  return limited(feature, reason(facts.probes[Probe::kErofsFile]) + loop + instead,
                 std::string("Linux 6.12 or newer has it. ") + kNewerKernel);
}

Finding seccomp(const HostFacts& facts) {
  const char* feature = "seccomp listener";
  if (facts.probes[Probe::kListener] == 0) {
    if (facts.probes[Probe::kKillable] == 0) return works(feature, "refused calls are reported");
    return limited(feature,
                   "works, but a program that waits for an answer cannot be killed at once",
                   "Linux 5.19 or newer can.");
  }
  if (facts.probes[Probe::kListener] == EBUSY)
    return limited(feature, "an outer filter has one already: refused calls are not reported",
                   "Run caisson outside of that sandbox.");
  return missing(feature, "no filter with a listener: " + reason(facts.probes[Probe::kListener]),
                 facts.filtered
                     ? "An outer container forbids it: start it with --security-opt "
                       "seccomp=unconfined, or run caisson outside of it."
                     : "A kernel built with CONFIG_SECCOMP_FILTER, 5.0 or newer, is needed.");
}

Finding landlock(const HostFacts& facts) {
  const char* feature = "Landlock";
  const std::string version = "version " + std::to_string(facts.landlock_abi);
  if (facts.landlock_abi == 0)
    return limited(feature, "not there: files are held by the mount namespace alone",
                   "Linux 5.13 or newer with landlock in its list of security modules (kernel "
                   "command line lsm=landlock,…)");
  if (facts.landlock_abi < 4)
    return limited(
        feature, version + ": files, but neither network (4) nor signals (6)",
        std::string("The network namespace holds the network all the same. ") + kNewerKernel);
  if (facts.landlock_abi < 6)
    return limited(feature, version + ": files and network, but not signals (6)", kNewerKernel);
  return works(feature, version);
}

Finding processes(const HostFacts& facts) {
  const char* feature = "pidfd and clone3";
  for (auto [probe, name] : {std::pair(Probe::kPidfd, "pidfd_open"), {Probe::kClone3, "clone3"}}) {
    if (facts.probes[probe] == 0) continue;
    return missing(feature, std::string(name) + ": " + reason(facts.probes[probe]),
                   facts.filtered ? "An outer container forbids it: start it with --security-opt "
                                    "seccomp=unconfined, or run caisson outside of it."
                                  : "Linux 5.3 or newer is needed.");
  }
  return works(feature, "processes are held by descriptors");
}

Finding time_namespace(const HostFacts& facts) {
  const char* feature = "time namespace";
  if (facts.probes[Probe::kTimeNamespace] == 0)
    return works(feature, "the host's uptime stays hidden");
  return limited(feature,
                 reason(facts.probes[Probe::kTimeNamespace]) + ": programs see the host's uptime",
                 "A kernel built with CONFIG_TIME_NS, 5.6 or newer, has it.");
}

Finding gateway(const HostFacts& facts) {
  const char* feature = kGatewayFeature;
  struct Piece {
    Probe probe;
    const char* name;
    const char* remedy;
  };
  constexpr Piece kPieces[] = {
      {Probe::kIpv6, "IPv6", "Start the kernel without ipv6.disable=1."},
      {Probe::kVeth, "pairs of virtual Ethernet devices", "sudo modprobe veth"},
      {Probe::kNftRedirect, "nftables rules that redirect",
       "sudo modprobe -a nf_tables nft_chain_nat nft_redir"},
      {Probe::kNftReject, "nftables rules that refuse",
       "sudo modprobe -a nf_tables nft_ct nft_limit nft_reject_inet"}};
  if (!tried(facts, Probe::kVeth))
    return limited(feature, "not tried, since user namespaces do not work",
                   "Make user namespaces work first.");
  std::string lacking, remedies;
  for (const Piece& piece : kPieces) {
    const int error = facts.probes[piece.probe];
    if (error == 0) continue;
    lacking +=
        (lacking.empty() ? "no " : ", no ") + std::string(piece.name) + " (" + reason(error) + ")";
    remedies += (remedies.empty() ? "" : " ; ") + std::string(piece.remedy);
  }
  if (lacking.empty())
    return works(feature, "a sandbox's packets can be led to a gateway, and nowhere else");
  return limited(feature, lacking + ": sandboxes have no network but their own loopback",
                 facts.filtered ? remedies +
                                      " ; an outer container may forbid it: run caisson "
                                      "outside of it"
                                : remedies);
}

// The wall works where nothing is missing of what it cannot do without.
Finding namespace_wall(const std::vector<Finding>& features) {
  std::string lacking;
  bool any_limited = false;
  for (const Finding& finding : features) {
    if (finding.state == FeatureState::kMissing)
      lacking += (lacking.empty() ? "" : ", ") + finding.feature;
    if (finding.state == FeatureState::kLimited) any_limited = true;
  }
  if (!lacking.empty())
    return missing("wall", "cannot run: it needs " + lacking, "See the remedies below.");
  if (any_limited)
    return limited("wall", "runs; what is limited below is reported in each result",
                   "See the remedies below.");
  return works("wall", "runs with everything that it knows");
}

Finding gvisor(const HostFacts& facts) {
  const std::string seen = facts.runsc.empty() ? "no runsc on PATH" : "found " + facts.runsc;
  return {"gvisor", "wall", FeatureState::kMissing,
          seen + "; this version of caisson has no gVisor wall", "Use wall: namespace."};
}

Finding microvm(const HostFacts& facts) {
  const std::string seen =
      facts.has_kvm ? "/dev/kvm is there, which alone does not say that it is fast enough"
                    : "no /dev/kvm";
  return {"microvm", "wall", FeatureState::kMissing,
          seen + "; this version of caisson has no microVM wall", "Use wall: namespace."};
}

}  // namespace

std::string_view to_string(FeatureState state) {
  switch (state) {
    case FeatureState::kWorks:
      return "works";
    case FeatureState::kLimited:
      return "limited";
    case FeatureState::kMissing:
      return "missing";
  }
  return "";
}

std::vector<Finding> diagnose(const HostFacts& facts) {
  std::vector<Finding> findings;
  for (Finding (*examine)(const HostFacts&) :
       {kernel, user_namespaces, fresh_proc, id_ranges, cgroups, io_limits, cgroup_kill, overlay,
        tmpfs_xattrs, quota_layer, idmapped_mounts, erofs, seccomp, landlock, processes,
        time_namespace, gateway})
    findings.push_back(examine(facts));
  findings.insert(findings.begin(), namespace_wall(findings));
  findings.push_back(gvisor(facts));
  findings.push_back(microvm(facts));
  return findings;
}

}  // namespace caisson::wall
