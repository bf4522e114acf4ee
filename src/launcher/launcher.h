// The launcher: starts one sandbox and removes what is left of it.
//
// It talks over a SOCK_SEQPACKET socket (ARCHITECTURE.md, "The processes of one run"). Two
// requests: an opening with the sandbox's id and the run directory's descriptor, upon which it
// claims what every sandbox needs; then the encoded plan, with the descriptors [first client, the
// plan's own…]. Answers: u8 0 + id (the box is up) or u8 1 + u8 code + message; and at the end u8 2
// + what could not be removed. Whoever closes the socket before the plan has changed their mind. It
// parses nothing but the plan, makes no thread, and after the fork of the supervisor only waits,
// answers its requests for places, and cleans up.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/switches.h"

namespace caisson::launcher {

inline constexpr std::string_view kOpeningMagic = "CSNOPEN2";
inline constexpr std::string_view kPlanMagic = "CSNPLAN2";
inline constexpr std::size_t kMaxOpening = 64;

// guest::run_guest, handed in by the program: the launcher itself knows no guest.
using GuestEntry = int (*)(int channel_fd, int userns_fd, int cgroup_ns_fd, SwitchMask switches);

// The launcher's whole life in this process, which must be single-threaded and is changed for good
// (signals, umask, subreaper). PID 1 of the sandbox becomes `guest_entry`. Borrows `control_fd`.
// Returns the exit status: 0 when all is removed.
int run_launcher(int control_fd, GuestEntry guest_entry);

}  // namespace caisson::launcher
