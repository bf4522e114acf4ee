// The network of a sandbox as E2B's clients ask for it: checked, and made a policy of ours.
//
// There what is allowed goes before what is denied, and what is neither may be reached; with us a
// rule that denies wins. So what is allowed is cut out of what is denied, and where all is denied
// the rest is left away. The floor stays where it is, whatever is allowed. Headers that rules set
// are injected secrets of ours, whose values are sealed; answers may have them, as there.
// What this server does not hold is refused rather than left away. Pure functions.
#pragma once

#include <caisson/network.h>

#include <optional>
#include <string>
#include <vector>

#include "api/body.h"
#include "api/call.h"

namespace caisson::api::e2b {

// A header that is set in requests to a domain.
struct HeaderRule {
  std::string domain;  // or *.DOMAIN
  std::string name;
  std::string value;  // perhaps with ${e2b.secrets.NAME} as its end
  // What of `value` stands before that, and NAME; empty: the value is a plain text.
  std::string prefix, secret;
};

struct Network {
  bool public_traffic = true;
  std::string mask_request_host;  // empty: the host that was asked for
  bool internet = true;
  std::vector<std::string> allow_out, deny_out;
  std::vector<HeaderRule> headers;
  // Where it has a password that is in `proxy_password`; its source is the vault.
  std::optional<policy::UpstreamProxy> proxy;
  std::string proxy_password;
};

// Of a body that makes a sandbox: its `network` and `allow_internet_access`.
Result<Network> parse_network(const Object& body);
// Of a body that changes one, which is a network itself.
Result<Network> parse_network_update(const Object& body);

// What may leave the sandbox; nullopt where this server's sandboxes have no network, and nothing is
// asked for that needs one. Errors: unimplemented, naming what this server does not hold;
// invalid_argument, of names and ranges that no rule can have.
Result<std::optional<policy::NetworkPolicy>> policy_of(const Network& network,
                                                       const Egress& egress);
// The values of the headers that are plain texts, and the proxy's password; those of secrets are
// the vault's.
std::vector<vault::GivenSecret> values_of(const Network& network);
// What was asked for, without values of headers and without a password, as view().network has it;
// and the members of a body that tell it again.
std::string network_fields(const Network& network, const Egress& egress);
void add_network(json::Value& body, const fleet::SandboxView& view);

}  // namespace caisson::api::e2b
