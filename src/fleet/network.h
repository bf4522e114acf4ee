// Networks of served sandboxes: the text that a recipe has of one, its bounds, and how a sandbox is
// told. Clients do not own this host, so that nothing lifts the floor for them.
#pragma once

#include <caisson/network.h>
#include <string>

#include "base/error.h"
#include "fleet/box_client.h"
#include "io/async.h"

namespace caisson::fleet {

// Error: invalid_argument for secrets whose sources would be this host's own variables, files and
// programs, and for what no gateway of a server does.
Status check_served(const policy::NetworkPolicy& policy);
// Of a Recipe::network: whether such a sandbox needs keys (vault/vault.h); and the same with no
// secrets.
Result<bool> needs_keys(const std::string& network);
Result<std::string> without_secrets(const std::string& network);
// For Recipe::network, with a fixed floor.
std::string served_network(policy::NetworkPolicy policy);
// Error: invalid_argument where a Recipe::network is too long for a sandbox's socket.
Status check_network(const std::string& network);
// Has the sandbox's gateway go by a Recipe::network; empty: nothing leaves. Errors: those of
// check_network() and of the supervisor (kSetNetwork). The client outlives the coroutine.
io::Async<Status> apply_network(BoxClient& client, std::string network);

}  // namespace caisson::fleet
