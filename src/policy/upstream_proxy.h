// The proxy of a network policy (UpstreamProxy): what is wrong in one, and what of a policy has a
// value that somebody keeps, its secrets and the proxy's password. Pure functions.
//
// The password travels as secrets do, as a rule with a name that no secret can have, whose one host
// is the proxy's address: whoever passes it on can send it nowhere else.
#pragma once

#include <caisson/network.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "policy/host_name.h"

namespace caisson::policy {

// As RFC 1929 bounds both.
inline constexpr std::size_t kMostProxyCredential = 255;

// Where it is; the port is always there. Error: invalid_argument with the key below `path`
// ("network.upstream_proxy.address"), what was found there and what is allowed.
Result<Authority> check_proxy(const UpstreamProxy& proxy, std::string_view path);
// A password of 1 to 255 bytes. Error: invalid_argument, which says nothing of it.
Status check_proxy_password(std::string_view password);

// The rules of the policy's secrets, in its order, and behind them that of the proxy's password.
std::vector<SecretRule> rules_with_values(const NetworkPolicy& policy);
// Of either kind, as messages name it: "network.secrets.NAME", "network.upstream_proxy.password".
std::string key_of(const SecretRule& rule);
bool is_proxy_password(const SecretRule& rule);
// The part of a proxy that such a rule has.
UpstreamProxy proxy_of(const SecretRule& rule);
SecretRule password_rule(const UpstreamProxy& proxy);  // of one with a password

}  // namespace caisson::policy
