// The sandboxes that live now: run_directory()/sandboxes/ID/ with `info` and `socket`.
//
// The launcher makes and removes these folders; here they are only read. A folder may vanish at any
// moment, so what cannot be read is left out. No state.
#pragma once

#include <caisson/sandbox.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::box {

struct RegisteredSandbox {
  SandboxInfo info;
  Fd socket;  // connected
};

// `id` may be shortened to where it is still one sandbox's. Errors: not_found (also where it has
// just ended), invalid_argument (not an id, or not one sandbox's alone).
Result<RegisteredSandbox> connect_registered(const std::string& id);
// The whole id's, without waiting: the socket is non-blocking. Errors: not_found where nobody has
// it any more, unavailable where somebody may and does not answer.
Result<Fd> connect_socket(const std::string& id);
// Removes what sandboxes left that were killed with everybody who would have cleaned up.
void sweep_dead();
// Oldest first. Only those whose supervisor answers.
Result<std::vector<SandboxInfo>> list_registered();

}  // namespace caisson::box
