// The data plane: what clients ask of one sandbox, with the sandbox's own token.
//
// On port 49983 that is the interface of E2B's daemon (processes, files, watches, health); every
// other port is passed through to the program that listens on it inside (port_proxy.h). A paused
// sandbox whose maker wanted so is resumed by whoever comes; of any other that does not run clients
// are told that there is none. Belongs to the loop; outlives every request.
#pragma once

#include "api/e2b/watch.h"
#include "api/sandbox_address.h"
#include "fleet/fleet.h"
#include "http/server.h"

namespace caisson::api::e2b {

class DataPlane {
 public:
  // `fleet` outlives it.
  explicit DataPlane(fleet::Fleet& fleet) : fleet_(fleet) {}

  io::Async<void> serve(http::Exchange& exchange, SandboxAddress address);

 private:
  fleet::Fleet& fleet_;
  Watchers watchers_;
};

}  // namespace caisson::api::e2b
