#include "fleet/network.h"

#include <utility>

#include "launcher/gateway_protocol.h"
#include "policy/complain.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"
#include "policy/upstream_proxy.h"

namespace caisson::fleet {

Status check_served(const policy::NetworkPolicy& policy) {
  for (const policy::SecretRule& rule : policy::rules_with_values(policy)) {
    const std::string path = policy::key_of(rule);
    if (rule.source.kind != policy::SecretSource::Kind::kVault)
      return fail(policy::wrong(policy::is_proxy_password(rule) ? path : path + ".source",
                                "a source of this host's",
                                "{vault: NAME}: what the server keeps for the team"));
  }
  return {};
}

Result<bool> needs_keys(const std::string& network) {
  if (network.empty()) return false;
  TRY_ASSIGN(const policy::NetworkPolicy policy, policy::parse_written_network_policy(network));
  return policy::inspects(policy);
}

Result<std::string> without_secrets(const std::string& network) {
  if (network.empty()) return network;
  TRY_ASSIGN(policy::NetworkPolicy policy, policy::parse_written_network_policy(network));
  policy.secrets.clear();
  // The proxy stays, and refuses whoever has no password: nothing goes out past it.
  if (policy.upstream_proxy) policy.upstream_proxy->password.reset();
  return policy::written(policy);
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
