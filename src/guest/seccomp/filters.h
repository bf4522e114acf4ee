// The ready-made system-call filters.
//
// Each is a classic BPF program that was compiled at build time from policy.def (see there for what
// is allowed, and why) by compiler.h; nothing of the compiler is linked here. The arrays are
// constant data of the program. No state, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/kernel_abi.h"

namespace caisson::guest::seccomp {

// Numbered as policy::SyscallProfile is.
enum class Profile : std::uint8_t { kDefault = 0, kBrowser = 1, kDebug = 2 };
inline constexpr std::size_t kProfileCount = 3;

// How calls of the reportable set are answered: by their errno, or by whoever holds the listener.
enum class Reporting : std::uint8_t { kNone = 0, kListener = 1 };

std::span<const sock_filter> table(Profile profile, Reporting reporting);

// Stacked below the profile where a command can write to a granted path as a real user of the host:
// refuses every mode with a set-id bit.
std::span<const sock_filter> no_setid_table();

// Installs `program` for this thread. Needs no_new_privs or CAP_SYS_ADMIN in the own user
// namespace. Error: the errno of seccomp(2).
Status install(std::span<const sock_filter> program);
// The same, and returns the listener (close-on-exec). At most one filter of a process and its
// ancestors can have one: EBUSY otherwise.
Result<Fd> install_with_listener(std::span<const sock_filter> program);

}  // namespace caisson::guest::seccomp
