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

// Has a sandbox made and connects to it. One piece of work for the loop's pool: a connection of its
// own would wait behind all that others want to have made. Errors: those of Host::make() and
// reach(); nothing is left then.
struct Reached {
  Made made;
  std::unique_ptr<BoxClient> client;
};
// `keys`: of a recipe with an authority; null otherwise.
io::Async<Result<Reached>> make_and_reach(io::Loop& loop, Host& host, Recipe recipe,
                                          std::shared_ptr<const Fd> keys);

// Ends a sandbox of this host if it is there, whoever has it; waits until it has, some seconds at
// most.
io::Async<void> end_sandbox(io::Loop& loop, Host& host, std::string id);

}  // namespace caisson::fleet
