// Tries what a template starts, in a sandbox that is made for that and ended afterwards: what does
// not come up here would not in any sandbox of the template. On the loop.
#pragma once

#include "fleet/host.h"
#include "fleet/start_command.h"
#include "io/latch.h"

namespace caisson::fleet {

// Errors: those of making a sandbox and of start_and_wait(); cancelled, soon after `stop` was set.
// `options` is filled in with the sandbox's user and variables.
io::Async<Status> try_start(io::Loop& loop, Host& host, Recipe recipe, StartCommand what,
                            StartOptions options, io::Latch& stop);

}  // namespace caisson::fleet
