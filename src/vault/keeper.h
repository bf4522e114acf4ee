// Who starts the vault's worker, and starts it again where it has died: it alone still has the
// right to open the key.
//
// It reads nothing, neither a request nor a key: the key is read by the worker's fork before that
// gives its rights up (worker.h). It holds the vault's end of the control socket, so that requests
// wait there until another worker takes them. It ends when the server has gone; a worker ends with
// it.
#pragma once

namespace caisson::vault {

// The keeper's whole life in this process, which is changed for good. Borrows `control_fd`, and
// says there how the first worker started: an answer (protocol.h), whose text is why its memory is
// not locked. Returns the exit status.
int run_keeper(int control_fd);

}  // namespace caisson::vault
