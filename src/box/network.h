// The network of a sandbox that ends with its maker: the gateway process behind the sockets that
// set-up handed out.
#pragma once

#include <caisson/network.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "egress/gateway_process.h"
#include "wall/handouts.h"
#include "wall/plan.h"

namespace caisson::box {

// A descriptor of our own for a gateway's records, claimed, with the keys of this user. Errors:
// those of egress::claim_audit() and egress::AuditKeyring::open().
Result<egress::Records> claim_records(int audit_fd);

// It gets ready while the sandbox is made. `audit_fd`: a file of audit records, open for
// appending; -1: nowhere. Borrowed for the call. `alarm`, `values`: as of GatewayProcess::start().
Result<std::unique_ptr<egress::GatewayProcess>> start_gateway(const std::string& id,
                                                              const policy::NetworkPolicy& policy,
                                                              int audit_fd, Fd alarm, Fd values);
// Whether some secret's misuse is to end the sandbox.
bool may_terminate(const policy::NetworkPolicy& policy);
// Gives it the values of the policy's secrets, in its order, and puts into the plan what the
// sandbox gets for them.
Status complete_plan(egress::GatewayProcess& gateway, const policy::NetworkPolicy& policy,
                     std::vector<SecretValue> secrets, wall::Plan& plan);
// The certificate that the sandbox has to trust where TLS is inspected. Waits for it.
Result<std::string> authority_of(egress::GatewayProcess& gateway);
// Error: why it could not start, if it has said so.
Status check_gateway(egress::GatewayProcess& gateway);
// Ends it, and has what the gateways of a sandbox that outlives its maker need (Plan::keys_fd). The
// text is that of the policy with its sealed secrets, for set_network().
struct KeptNetwork {
  Fd keys;
  std::string text;
};
Result<KeptNetwork> keep_gateway(egress::GatewayProcess& gateway,
                                 const policy::NetworkPolicy& policy);
// The variables by which runtimes are told whom to trust (wall::kTrustFile), where they are not set
// yet. What reads none of them, and is no Java, finds the image's bundle as it always does.
void add_trust_variables(std::map<std::string, std::string>& env);
// Returns when it serves the sandbox's sockets.
Status open_gateway(egress::GatewayProcess& gateway, wall::Gateway sockets);
// Ends it and says what it did.
policy::NetworkReport end_gateway(egress::GatewayProcess& gateway);

}  // namespace caisson::box
