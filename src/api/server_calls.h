// The server's filter of system calls.
#pragma once

#include "base/error.h"

namespace caisson::api {

// From here on this process and its threads have what a server over descriptors, its own files and
// threads needs: no program is started, no process made, no socket but pairs and those that are
// accepted, so that it connects to nobody by itself. Whatever else is refused with EPERM.
Status filter_server_calls();

}  // namespace caisson::api
