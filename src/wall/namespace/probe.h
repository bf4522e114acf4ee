// What this host can do for each wall, and what would make the rest work: behind `caisson doctor`.
//
// Three parts. read_host_facts() reads a directory tree (the real one, or a test's) into a
// HostFacts; try_live_probes() adds what only trying can tell, in a forked child that makes its own
// namespaces, mounts into them alone and ends (for control groups the wall's own look is
// used, which makes and removes an empty group); diagnose() turns facts into findings and is pure,
// so that every host that we know of can be faked. Nothing here changes the host, and nothing
// decides how a sandbox is made: the wall probes for itself and reports what it held. One thread
// (it forks).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wall/namespace/cgroup.h"

namespace caisson::wall {

enum class FeatureState : std::uint8_t { kWorks, kLimited, kMissing };
std::string_view to_string(FeatureState state);

// One line of the doctor's report.
struct Finding {
  std::string wall;     // "namespace", "gvisor", "microvm"
  std::string feature;  // "user namespaces"; "wall" is the verdict on the wall as a whole
  FeatureState state = FeatureState::kWorks;
  std::string detail;  // what was seen, and what it means
  std::string remedy;  // what would make it work, in words and command lines; empty: nothing to do
};

// The feature of a finding about the network that sandboxes can have.
inline constexpr const char* kGatewayFeature = "network gateway";

// What only trying can tell.
enum class Probe : std::uint8_t {
  kUserNamespace,    // a user namespace
  kRights,           // and rights in it: the other namespaces
  kNestedNamespace,  // a second user namespace inside the first
  kTimeNamespace,
  kProc,        // a fresh /proc in new user and pid namespaces
  kOverlay,     // overlay with user xattrs on a tmpfs, in a user namespace
  kTmpfsXattr,  // user extended attributes on a tmpfs
  kIdmap,       // an id-mapped clone of the mount that holds the images (root alone)
  kQuotaLayer,  // a writable layer on disk: an ext4 on a loop device (root alone)
  kErofsFile,   // an erofs image mounted from a file without a loop device (root alone)
  kErofsLoop,   // an erofs image over a loop device
  kListener,    // a seccomp filter with a listener
  kKillable,    // one whose waiting callers can still be killed
  kPidfd,
  kClone3,
  kIpv6,         // sockets of IPv6
  kVeth,         // two network namespaces wired to each other
  kNftRedirect,  // packet rules that redirect
  kNftReject,    // packet rules that refuse, and that count new connections
  kCount
};

// The errno that a probe met; 0: it works; kNotTried: it was not tried on this host or for this
// user.
inline constexpr int kNotTried = -1;

struct ProbeResults {
  std::array<int, static_cast<std::size_t>(Probe::kCount)> error;
  ProbeResults() { error.fill(kNotTried); }
  int& operator[](Probe probe) { return error[static_cast<std::size_t>(probe)]; }
  int operator[](Probe probe) const { return error[static_cast<std::size_t>(probe)]; }
};

struct HostFacts {
  uid_t uid = 0;     // effective
  std::string user;  // its name; empty where /etc/passwd has none
  std::string release;
  bool filtered = false;  // this process has a seccomp filter already: an outer container

  // Sysctls; empty where the kernel has no such switch.
  std::optional<std::int64_t> apparmor_restrict_userns;
  std::optional<std::int64_t> unprivileged_userns_clone;
  std::optional<std::int64_t> max_user_namespaces;

  // Mounts that cover a part of /proc, as an outer container makes them.
  std::vector<std::string> masked_proc;

  // Whether this user namespace has all ids, as the host's own has.
  bool whole_id_map = true;
  // Largest ranges of the user in /etc/subuid and /etc/subgid.
  std::uint64_t subuid_count = 0, subgid_count = 0;
  bool has_newuidmap = false, has_newgidmap = false;  // present and allowed to do their work

  bool cgroup1_mounted = false, cgroup2_mounted = false;
  // Whether v2 groups have the file cgroup.kill; empty where there is no group to look at (the top
  // one never has it).
  std::optional<bool> cgroup_kill;
  CgroupHost cgroups;  // what the wall itself finds

  bool has_overlay = false, has_erofs = false;
  // Where quota layers would lie, and whether that is in memory.
  std::string state_directory;
  bool state_in_memory = false;
  bool has_kvm = false;
  std::string runsc;  // its path; empty where there is none

  int landlock_abi = 0;  // 0: none
  ProbeResults probes;
};

// Reads everything that files say below `root` ("/" for this host). A file that is missing or
// malformed leaves its default. `cgroups`, `landlock_abi` and `probes` are left untouched.
HostFacts read_host_facts(const std::string& root);

// Adds `cgroups`, `state_*`, `landlock_abi` and `probes` of the running host.
void try_live_probes(HostFacts& facts);

// read_host_facts("/") and try_live_probes().
HostFacts probe_host();

// The report: for each wall first the finding "wall", then its features in a fixed order.
std::vector<Finding> diagnose(const HostFacts& facts);

}  // namespace caisson::wall
