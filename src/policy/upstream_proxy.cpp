#include "policy/upstream_proxy.h"

#include "policy/complain.h"
#include "policy/secret_check.h"

namespace caisson::policy {
namespace {

// No secret has a name with a colon.
constexpr std::string_view kPassword = "upstream_proxy:password";
// Of a proxy that is made of its password's rule: nobody asks for the name.
constexpr std::string_view kSomebody = "user";

}  // namespace

Result<Authority> check_proxy(const UpstreamProxy& proxy, std::string_view path) {
  const std::string address = key_below(path, "address");
  constexpr std::string_view kAllowed = "HOST:PORT of a SOCKS5 proxy";
  const auto where = canonical_authority(proxy.address);
  if (!where.has_value() || !where->port)
    return fail(wrong(address, proxy.address.empty() ? "nothing" : quote(proxy.address), kAllowed));
  if (proxy.username.size() > kMostProxyCredential)
    return fail(wrong(key_below(path, "username"), std::to_string(proxy.username.size()) + " bytes",
                      "at most 255"));
  if (!proxy.password) return *where;
  const std::string password = key_below(path, "password");
  if (proxy.username.empty())
    return fail(wrong(password, "a password without a username", "one beside a username"));
  TRY(check_source(*proxy.password, password));
  return *where;
}

Status check_proxy_password(std::string_view password) {
  if (!password.empty() && password.size() <= kMostProxyCredential) return {};
  return fail(Error::invalid("found a password of " + std::to_string(password.size()) +
                             " bytes; allowed are 1 to 255"));
}

std::vector<SecretRule> rules_with_values(const NetworkPolicy& policy) {
  std::vector<SecretRule> rules = policy.secrets;
  if (policy.upstream_proxy && policy.upstream_proxy->password)
    rules.push_back(password_rule(*policy.upstream_proxy));
  return rules;
}

std::string key_of(const SecretRule& rule) {
  return is_proxy_password(rule) ? "network.upstream_proxy.password"
                                 : "network.secrets." + rule.name;
}

bool is_proxy_password(const SecretRule& rule) {
  return rule.name == kPassword;
}

SecretRule password_rule(const UpstreamProxy& proxy) {
  SecretRule rule;
  rule.name = kPassword;
  rule.source = proxy.password.value_or(SecretSource());
  rule.hosts = {proxy.address};
  return rule;
}

UpstreamProxy proxy_of(const SecretRule& rule) {
  return {.address = rule.hosts.empty() ? std::string() : rule.hosts.front(),
          .username = std::string(kSomebody),
          .password = rule.source};
}

}  // namespace caisson::policy
