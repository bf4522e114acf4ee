// The mechanisms of the wall, by name, and the test build's way to turn one of them off.
//
// An escape test proves something only if the same attempt succeeds with the one mechanism gone
// that is said to stop it. The test build (CAISSON_TEST_SWITCHES) can therefore leave out any
// single mechanism; the set travels in options and plans as a SwitchMask. The release build has no
// parser for it and is_off() is constant false there, so that no input whatever can weaken a
// sandbox.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson {

// One bit each. What turning it off means is said by whoever applies the mechanism.
enum class Mechanism : std::uint8_t {
  kSeccomp,           // system-call filter
  kLandlock,          // Landlock domain
  kCapabilities,      // capability and bounding sets emptied, securebits locked
  kNoNewPrivs,        // no_new_privs
  kNoSetid,           // refusal of set-id modes on writable grants
  kNestedUserns,      // the command's own user namespace N
  kUidSplit,          // the command runs under another id than the guest
  kDumpable,          // the guest is not dumpable
  kRlimits,           // rlimits of the command
  kCloseDescriptors,  // every descriptor but the listed ones is closed
  kNewSession,        // own session, no controlling terminal of the caller
  kCleanEnvironment,  // nothing of the caller's environment
  kProcMasks,         // files of /proc that are covered
  kProcReadOnly,      // parts of /proc that are read-only
  kHidepid,           // /proc hides other ids' processes
  kDevices,           // minimal /dev
  kMountFlags,        // nosuid, nodev
  kReadOnlyMounts,    // read-only grants and image
  kMountPropagation,  // private propagation
  kPivot,             // pivot_root and detaching of the old root
  kLayerLimits,       // bytes and inodes of the writable layer
  kIdMap,             // ids of the sandbox are nobody's on the host
  kPidNamespace,
  kNetNamespace,
  kIpcNamespace,
  kUtsNamespace,
  kCgroupNamespace,
  kTimeNamespace,
  kNamespaceLimits,  // user.max_*_namespaces = 0
  kCgroupMemory,
  kCgroupPids,
  kCgroupCpu,
  kCgroupIo,
  kCgroupDevices,
  kSupervisorConfine,  // the supervisor drops its rights before it reads a byte
  kGeneratedEtc,       // generated /etc of the host image
  kPathBeneath,        // RESOLVE_BENEATH and friends on paths that a sandbox can influence
  kGatewayRules,       // the refusal of what a gateway does not serve
};

inline constexpr std::size_t kMechanismCount = 38;

// Bit n is Mechanism(n); a set bit means: leave it out.
using SwitchMask = std::uint64_t;

constexpr SwitchMask bit_of(Mechanism mechanism) {
  return SwitchMask{1} << static_cast<unsigned>(mechanism);
}

inline constexpr std::array<std::string_view, kMechanismCount> kMechanismNames = {
    "seccomp",
    "landlock",
    "capabilities",
    "no_new_privs",
    "no_setid",
    "nested_userns",
    "uid_split",
    "dumpable",
    "rlimits",
    "close_fds",
    "new_session",
    "clean_env",
    "proc_masks",
    "proc_readonly",
    "hidepid",
    "devices",
    "mount_flags",
    "readonly_mounts",
    "propagation",
    "pivot",
    "layer_limits",
    "id_map",
    "pid_namespace",
    "net_namespace",
    "ipc_namespace",
    "uts_namespace",
    "cgroup_namespace",
    "time_namespace",
    "namespace_limits",
    "cgroup_memory",
    "cgroup_pids",
    "cgroup_cpu",
    "cgroup_io",
    "cgroup_devices",
    "supervisor_confine",
    "generated_etc",
    "path_beneath",
    "gateway_rules",
};
static_assert(static_cast<std::size_t>(Mechanism::kGatewayRules) + 1 == kMechanismCount);

constexpr std::string_view to_string(Mechanism mechanism) {
  return kMechanismNames[static_cast<std::size_t>(mechanism)];
}

// Whether `mechanism` is to be left out. Constant false in the release build.
constexpr bool is_off([[maybe_unused]] SwitchMask disabled, [[maybe_unused]] Mechanism mechanism) {
#if defined(CAISSON_TEST_SWITCHES)
  return (disabled & bit_of(mechanism)) != 0;
#else
  return false;
#endif
}

#if defined(CAISSON_TEST_SWITCHES)
// "seccomp,landlock" to its mask; "" is 0. Error: invalid_argument that names the unknown word and
// lists the known ones.
inline Result<SwitchMask> parse_switches(std::string_view text) {
  SwitchMask mask = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
    std::size_t found = 0;
    while (found < kMechanismCount && kMechanismNames[found] != word) ++found;
    if (found == kMechanismCount) {
      std::string message = "unknown mechanism \"" + std::string(word) + "\"; known are";
      for (const std::string_view name : kMechanismNames) message += " " + std::string(name);
      return fail(Error::invalid(std::move(message)));
    }
    mask |= SwitchMask{1} << found;
  }
  return mask;
}
#endif

}  // namespace caisson
