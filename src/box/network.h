// The network of a sandbox that ends with its maker: the gateway process behind the sockets that
// set-up handed out.
#pragma once

#include <caisson/network.h>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "egress/gateway_process.h"
#include "wall/handouts.h"

namespace caisson::box {

// A descriptor of our own for a gateway's records, claimed. Errors: those of egress::claim_audit().
Result<Fd> records_file(int audit_fd);

// It gets ready while the sandbox is made. `audit_fd`: a file of audit records, open for
// appending; -1: nowhere. Borrowed for the call.
Result<std::unique_ptr<egress::GatewayProcess>> start_gateway(const std::string& id,
                                                              const policy::NetworkPolicy& policy,
                                                              int audit_fd);
// Returns when it serves the sandbox's sockets.
Status open_gateway(egress::GatewayProcess& gateway, wall::Gateway sockets);
// Ends it and says what it did.
policy::NetworkReport end_gateway(egress::GatewayProcess& gateway);

}  // namespace caisson::box
