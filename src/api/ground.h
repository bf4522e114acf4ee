// What a server opens while it has the rights of whoever started it, and the step from there to one
// that has none.
//
// Everything here comes before the first byte of a client and before the second thread: ports below
// 1024, the locks of its folders, the service manager's socket, caisson-maker, which keeps the
// rights, and caisson-vault, which has the secrets. As root the folders that the server itself
// writes become its user's (rights.h).
#pragma once

#include <array>

#include "base/error.h"
#include "base/fd.h"
#include "base/readiness.h"
#include "maker/client.h"
#include "policy/server_config.h"
#include "vault/client.h"

namespace caisson::api {

struct Ground {
  std::array<Fd, 2> locks;  // of the state and the run directory
  Fd plain, tls;            // listening; tls as configured
  Fd ports;                 // beside tls, at the loopback alone: for gateways of sandboxes
  Readiness readiness;
  maker::Client host;
  vault::Client vault;

  // Afterwards the process has no rights but its user's. Errors: another server uses the folders,
  // an address that cannot be bound, a user that is not there or cannot reach the folders.
  static Result<Ground> prepare(const policy::ServerConfig& config);
};

}  // namespace caisson::api
