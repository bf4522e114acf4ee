// The network of a sandbox as E2B's clients ask for it: checked, and told apart into what this
// server holds and what it does not.
//
// Sandboxes of this server reach nothing outside of themselves, so whatever a client forbids is
// held. A client that asks for a way out by name (allowOut, rules, egressProxy) is refused rather
// than given a sandbox that is not as it asked. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "api/body.h"

namespace caisson::api::e2b {

struct Network {
  bool public_traffic = true;
  std::string mask_request_host;  // empty: the host that was asked for
  bool internet = true;
  std::vector<std::string> allow_out, deny_out;
  bool has_rules = false, has_proxy = false;
};

// Of a body that makes a sandbox: its `network` and `allow_internet_access`.
Result<Network> parse_network(const Object& body);
// Of a body that changes one, which is a network itself.
Result<Network> parse_network_update(const Object& body);

// Error: unimplemented, naming what this server does not hold.
Status check_held(const Network& network);

}  // namespace caisson::api::e2b
