// The process that has the values: reads fixed binary requests (protocol.h) from one socket whose
// other end the server holds, one after the other, and answers each.
//
// Shut in before the first: as root an id of its own, which neither the server nor a gateway has;
// no capability; its memory is locked and never written to a core; of the system it has what these
// requests need: no socket but answers', no program, no process, and no file. A body is the one
// thing of a client's that it reads (secret_body.h).
#pragma once

#include <string>

#include "base/error.h"
#include "vault/engine.h"

namespace caisson::vault {

// Keeps `control_fd` alone. `parent`: whose death is ours. Returns why the memory could not be
// locked, which is no error where the limits of whoever started the server forbid it
// (RLIMIT_MEMLOCK); empty: it is.
Result<std::string> confine_worker(int control_fd, int parent);

// Until the other end is closed. Borrows the descriptor.
void serve(int control_fd, const Engine& engine);

}  // namespace caisson::vault
