// The fleet's end of the host (maker/host.h): connecting to sandboxes and ending them, for
// coroutines. The host outlives the loop.
#pragma once

#include <memory>
#include <string>

#include "fleet/box_client.h"
#include "io/loop.h"
#include "maker/host.h"

namespace caisson::fleet {

using maker::Host;
using maker::kUnclaimed;
using maker::Made;
using maker::Recipe;

// Errors: those of Host::connect() and BoxClient::connect().
io::Async<Result<std::unique_ptr<BoxClient>>> reach(io::Loop& loop, Host& host, std::string id);

// Ends a sandbox of this host if it is there, whoever has it; waits until it has, some seconds at
// most.
io::Async<void> end_sandbox(io::Loop& loop, Host& host, std::string id);

}  // namespace caisson::fleet
