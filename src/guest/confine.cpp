#include "guest/confine.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/kernel_abi.h"

namespace caisson::guest {
namespace {

// The kernel's capability numbers fit in 64 bits; it answers EINVAL beyond its last one.
constexpr int kCapabilityBits = 64;

struct Capabilities {
  std::uint64_t effective = 0, permitted = 0, inheritable = 0;
};

Result<Capabilities> read_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return fail_errno("capget");
  const auto join = [](std::uint32_t low, std::uint32_t high) {
    return std::uint64_t{high} << 32 | low;
  };
  return Capabilities{join(data[0].effective, data[1].effective),
                      join(data[0].permitted, data[1].permitted),
                      join(data[0].inheritable, data[1].inheritable)};
}

Status write_capabilities(const Capabilities& sets) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  for (int half = 0; half < 2; ++half) {
    data[half].effective = static_cast<std::uint32_t>(sets.effective >> (32 * half));
    data[half].permitted = static_cast<std::uint32_t>(sets.permitted >> (32 * half));
    data[half].inheritable = static_cast<std::uint32_t>(sets.inheritable >> (32 * half));
  }
  if (syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

// What /proc/self/setgroups says of the own user namespace. An unreadable /proc counts as "allow",
// so that a refusal by setgroups(2) stays an error.
bool setgroups_is_denied() {
  const Fd file(open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC));
  char text[8] = {};
  return file.valid() && read(file.get(), text, sizeof text - 1) > 0 &&
         std::strncmp(text, "deny", 4) == 0;
}

Status keep_sudo_capabilities() {
  TRY_ASSIGN(Capabilities sets, read_capabilities());
  sets.permitted &= kSudoCapabilities;
  sets.effective = sets.permitted;
  sets.inheritable = 0;
  return write_capabilities(sets);
}

constexpr std::uint64_t kLandlockFilesAbi1 = (1ull << 13) - 1;

}  // namespace

Status enter_user_namespace(int userns_fd) {
  if (setns(userns_fd, CLONE_NEWUSER) != 0) return fail_errno("setns (user namespace)");
  return {};
}

Status set_ids(uid_t uid, gid_t gid, std::span<const gid_t> groups) {
  if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0) {
    const int error = errno;
    if (error != EPERM || !setgroups_is_denied()) return fail(Error::syscall("setgroups", error));
  }
  if (syscall(SYS_setresgid, gid, gid, gid) != 0) {
    return fail_errno("setresgid " + std::to_string(gid));
  }
  // Leaving uid 0 empties the capability sets unless this is set; the steps that follow need them.
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail_errno("prctl PR_SET_KEEPCAPS");
  if (syscall(SYS_setresuid, uid, uid, uid) != 0) {
    return fail_errno("setresuid " + std::to_string(uid));
  }
  if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) return fail_errno("prctl PR_SET_KEEPCAPS");
  TRY_ASSIGN(Capabilities sets, read_capabilities());
  sets.effective = sets.permitted;
  sets.inheritable = 0;
  return write_capabilities(sets);
}

Status limit_capabilities(Privileges privileges) {
  const std::uint64_t keep = privileges == Privileges::kSudo ? kSudoCapabilities : 0;
  for (int capability = 0; capability < kCapabilityBits; ++capability) {
    if ((keep >> capability & 1) != 0) continue;
    const int present = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (present < 0 && errno == EINVAL) break;  // beyond the kernel's last capability
    if (present == 0) continue;
    if (present < 0 || prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      return fail_errno("prctl PR_CAPBSET_DROP " + std::to_string(capability));
    }
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
    return fail_errno("prctl PR_CAP_AMBIENT_CLEAR_ALL");
  }
  constexpr unsigned kNoAmbient = SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  constexpr unsigned kAllLocked = kNoAmbient | SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
                                  SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                                  SECBIT_KEEP_CAPS_LOCKED;
  const unsigned secure_bits = privileges == Privileges::kSudo ? kNoAmbient : kAllLocked;
  if (prctl(PR_SET_SECUREBITS, secure_bits, 0, 0, 0) != 0) {
    return fail_errno("prctl PR_SET_SECUREBITS");
  }
  return {};
}

Status clear_capabilities() {
  return write_capabilities({});
}

Status set_no_new_privs() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl PR_SET_NO_NEW_PRIVS");
  return {};
}

Result<int> enter_landlock(LandlockScope scope) {
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 0) {
    // ENOSYS: not built in; EOPNOTSUPP: switched off at boot.
    if (errno == ENOSYS || errno == EOPNOTSUPP) return 0;
    return fail_errno("landlock_create_ruleset (version)");
  }
  abi::landlock_ruleset rules = {};
  rules.handled_access_fs = kLandlockFilesAbi1;
  if (abi >= 2) rules.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= 3) rules.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
  if (abi >= 5) rules.handled_access_fs |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  if (abi >= 6 && scope == LandlockScope::kSignalsAndSockets) {
    rules.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
  }
  const std::size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  const Fd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, size, 0)));
  if (!ruleset.valid()) return fail_errno("landlock_create_ruleset");
  const Fd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return fail_errno("open /");
  landlock_path_beneath_attr beneath = {};
  beneath.allowed_access = rules.handled_access_fs;
  beneath.parent_fd = root.get();
  if (syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) != 0) {
    return fail_errno("landlock_add_rule /");
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return fail_errno("landlock_restrict_self");
  }
  return static_cast<int>(abi);
}

Status enter_identity(const ConfineOptions& options) {
  const auto step = [&]() -> Status {
    if (options.userns_fd >= 0 && !is_off(options.disabled_mechanisms, Mechanism::kNestedUserns)) {
      TRY(enter_user_namespace(options.userns_fd));
    }
    if (options.cgroup_ns_fd >= 0 && setns(options.cgroup_ns_fd, CLONE_NEWCGROUP) != 0)
      return fail_errno("setns (control group namespace)");
    if (is_off(options.disabled_mechanisms, Mechanism::kUidSplit)) return {};
    return set_ids(options.uid, options.gid, options.groups);
  };
  Status done = step();
  if (!done.has_value()) return fail(std::move(done).error().with("confine: identity"));
  return {};
}

Result<Confined> give_up_rights(const ConfineOptions& options) {
  const auto is_on = [&](Mechanism mechanism) {
    return !is_off(options.disabled_mechanisms, mechanism);
  };
  const auto named = [](Status status, const char* step) -> Status {
    if (!status.has_value()) return fail(std::move(status).error().with(step));
    return {};
  };
  const bool no_new_privs =
      options.privileges == Privileges::kNone && is_on(Mechanism::kNoNewPrivs);
  const bool drops = is_on(Mechanism::kCapabilities);
  Confined confined;
  if (drops) TRY(named(limit_capabilities(options.privileges), "confine: capability bounds"));
  if (drops && no_new_privs) TRY(named(clear_capabilities(), "confine: capabilities"));
  if (no_new_privs) TRY(named(set_no_new_privs(), "confine: no_new_privs"));
  if (options.use_landlock && is_on(Mechanism::kLandlock)) {
    Result<int> abi = enter_landlock(LandlockScope::kFilesOnly);
    if (!abi.has_value()) return fail(std::move(abi).error().with("confine: landlock"));
    confined.landlock_abi = *abi;
  }
  if (options.no_setid && is_on(Mechanism::kNoSetid)) {
    TRY(named(seccomp::install(seccomp::no_setid_table()), "confine: no_setid"));
  }
  if (is_on(Mechanism::kSeccomp)) {
    if (options.want_listener) {
      Result<Fd> listener = seccomp::install_with_listener(
          seccomp::table(options.profile, seccomp::Reporting::kListener));
      if (!listener.has_value()) return fail(std::move(listener).error().with("confine: seccomp"));
      confined.listener = std::move(*listener);
    } else {
      TRY(named(seccomp::install(seccomp::table(options.profile, seccomp::Reporting::kNone)),
                "confine: seccomp"));
    }
  }
  // Landlock and seccomp without no_new_privs need CAP_SYS_ADMIN, so the capabilities go last then.
  if (drops && !no_new_privs) {
    const bool keeps = options.keep_capabilities && options.uid == 0;
    TRY(named(keeps ? keep_sudo_capabilities() : clear_capabilities(), "confine: capabilities"));
  }
  return confined;
}

Result<Confined> confine(const ConfineOptions& options) {
  TRY(enter_identity(options));
  return give_up_rights(options);
}

}  // namespace caisson::guest
