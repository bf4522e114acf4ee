#include "fleet/network.h"

#include <utility>

#include "launcher/gateway_protocol.h"
#include "policy/complain.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"

namespace caisson::fleet {

Status check_served(const policy::NetworkPolicy& policy) {
  if (!policy.secrets.empty())
    return fail(policy::wrong("network.secrets", "secrets",
                              "none: a sandbox of a server has no secrets in this version"));
  if (!policy::inspects(policy)) return {};
  return fail(policy::wrong(
      "network.rules", "a rule that inspects TLS (tls: inspect, or http and websocket without tls)",
      "tls: splice or plaintext: a server's sandboxes have no other in this version"));
}

std::string served_network(policy::NetworkPolicy policy) {
  policy.floor = policy::Floor::kFixed;
  return policy::written(policy);
}

Status check_network(const std::string& network) {
  if (network.size() <= launcher::kMostLivePolicy) return {};
  return fail(Error::invalid("network: found a policy of " + std::to_string(network.size()) +
                             " bytes as JSON; allowed are at most " +
                             std::to_string(launcher::kMostLivePolicy)));
}

io::Async<Status> apply_network(BoxClient& client, std::string network) {
  if (network.empty()) network = served_network({});
  CO_TRY(check_network(network));
  proto::Fields fields;
  fields.put(proto::Tag::kNetworkPolicy, network);
  const auto done =
      co_await client.request(proto::ControlOperation::kSetNetwork, std::move(fields));
  if (!done.has_value()) co_return fail(done.error());
  co_return Status();
}

}  // namespace caisson::fleet
