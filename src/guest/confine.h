// The last steps of a command's birth: what the guest's forked child gives up, in an order in which
// each step still has the right that it needs and no later step can undo it.
//
//   enter_identity:  setns(N) -> groups -> gid -> uid
//   give_up_rights:  bounding set, ambient set, securebits -> capabilities -> no_new_privs
//                    -> Landlock -> no_setid filter -> seccomp
//
// With privileges `sudo` there is no no_new_privs, so Landlock and seccomp need CAP_SYS_ADMIN in N:
// the capabilities are then given up last; the filter lets capset pass. Between
// the two halves the caller changes the working directory (with the command's own ids) and closes
// descriptors. Everything is a raw system call and works in a static binary; single-threaded, since
// credentials are a thread's own. After an error the process must exit: it may be half confined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/switches.h"
#include "guest/seccomp/filters.h"

namespace caisson::guest {

enum class Privileges : std::uint8_t { kNone = 0, kSudo = 1 };

struct ConfineOptions {
  int userns_fd = -1;     // user namespace N, borrowed; -1: stay in this one
  int cgroup_ns_fd = -1;  // control group namespace of N's, borrowed; -1: stay in this one
  uid_t uid = 65534;      // as seen inside N
  gid_t gid = 65534;
  std::span<const gid_t> groups;
  Privileges privileges = Privileges::kNone;
  // With kSudo and uid 0: the process keeps what execve would give it, since it does not call that.
  bool keep_capabilities = false;
  seccomp::Profile profile = seccomp::Profile::kDefault;
  bool want_listener = false;
  bool no_setid = false;  // refuse set-id modes (a writable grant in a rootful run)
  bool use_landlock = true;
  SwitchMask disabled_mechanisms = 0;  // read by the test build alone
};

struct Confined {
  Fd listener;           // valid when one was wanted
  int landlock_abi = 0;  // 0: this kernel has no Landlock, or none was wanted
};

// Both halves. Errors begin with "confine: " and the step's name.
Result<Confined> confine(const ConfineOptions& options);

Status enter_identity(const ConfineOptions& options);
Result<Confined> give_up_rights(const ConfineOptions& options);

// The steps one by one, for the tests and for the guest's own birth.

// setns(2) to `userns_fd`; needs capabilities in the namespace's parent.
Status enter_user_namespace(int userns_fd);

// Supplementary groups, gid, uid; permitted capabilities survive it and are made effective again.
// Where the namespace denies setgroups (a single-id map made without privilege) the groups stay as
// they are: nobody can drop them there.
Status set_ids(uid_t uid, gid_t gid, std::span<const gid_t> groups);

// What any later execve can give. kNone: an empty bounding set and every securebit locked, so that
// uid 0 of the namespace is an ordinary user. kSudo: a set-user-ID program can gain what
// kSudoCapabilities names, inside N alone; securebits stay open, since sudo's rights come from uid
// 0's special meaning. Both: no ambient capability, ever. Needs CAP_SETPCAP.
Status limit_capabilities(Privileges privileges);
// No effective, permitted or inheritable capability.
Status clear_capabilities();

// Bit n is capability n. chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
// net_bind_service: what sudo, apt, dpkg and useradd use on files, ids and processes of N.
inline constexpr std::uint64_t kSudoCapabilities =
    1u << 0 | 1u << 1 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 8 | 1u << 10;

Status set_no_new_privs();

// Whether the domain also keeps signals and abstract unix sockets in (where the ABI is 6 or later).
// Commands of one sandbox are siblings and may signal each other, so a command's own domain does
// not scope; the guest's, made once at its birth and inherited by all commands, does.
enum class LandlockScope : std::uint8_t { kFilesOnly = 0, kSignalsAndSockets = 1 };

// Enters a Landlock domain that allows everything below "/" as it is now and nothing elsewhere: a
// descriptor or a magic link that leads out of the root opens nothing, and no mount can be made or
// moved. Returns the kernel's ABI, 0 where it has no Landlock. TCP is not restricted: the network
// namespace holds it, and loopback inside must work.
Result<int> enter_landlock(LandlockScope scope);

}  // namespace caisson::guest
