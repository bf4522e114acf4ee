// The launcher: starts one sandbox and removes what is left of it.
//
// It talks over a SOCK_SEQPACKET socket (ARCHITECTURE.md, "The processes of one run"). One request:
// "CSNPLAN1" and the encoded plan, with the descriptors [first client, run directory, guest
// program, the plan's own…]. Answers: u8 0 + id (the box is up) or u8 1 + u8 code + message; and at
// the end u8 2
// + what could not be removed. It parses nothing but the plan, makes no thread, and after the fork
// of the supervisor only waits, answers its requests for places, and cleans up.
#pragma once

namespace caisson::launcher {

// The launcher's whole life in this process, which must be single-threaded and is changed for good
// (signals, umask, subreaper). Borrows `control_fd`. Returns the exit status: 0 when all is
// removed.
int run_launcher(int control_fd);

}  // namespace caisson::launcher
