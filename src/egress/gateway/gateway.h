// The gateway of one sandbox: what decides about every byte that leaves it.
//
// It is given sockets that were made in the sandbox's gateway namespace, where every TCP connection
// and every DNS query of the sandbox ends up whatever address it was meant for, and it connects on
// the host's side. Which sandbox it is follows from the sockets alone. Names are answered with
// addresses of our own (name_table.h) and resolved only when a connection to them is allowed.
//
// A connection: where it was meant to go gives a name or an address; a rule for tcp lets it through
// as it is; else its first bytes say what it is, and it is spliced (TLS), taken apart request by
// request (HTTP, and TLS that the policy has opened: inspect), or ended. What is denied is told to
// the program where its protocol allows that. Every decision is a record (audit.h). One object a
// sandbox; belongs to the loop, which outlives it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "egress/gateway/audit.h"
#include "egress/secrets/secret_rules.h"
#include "egress/served_domain.h"
#include "io/authority.h"
#include "io/loop.h"
#include "io/tls.h"
#include "policy/network_policy.h"

namespace caisson::egress {

// All listening or bound, in the gateway's network namespace.
struct GatewaySockets {
  Fd tcp;
  Fd dns_udp;
  Fd dns_tcp;
};

struct GatewayOptions {
  std::string sandbox;  // its id, for records and refusals
  std::shared_ptr<const policy::CompiledNetwork> policy;
  // For TLS that the policy opens: whom the sandbox trusts, and whom we do. Both or none; without
  // them such connections are refused.
  std::shared_ptr<io::Authority> authority = nullptr;
  std::shared_ptr<io::TlsTrust> trust = nullptr;
  // What the sandbox uses without having it: the rules are the policy's, in its order.
  std::vector<SecretEntry> secrets = {};
  // Of a sandbox of a server; and whom to trust there, null: as everywhere.
  ServedDomain served = {};
  std::shared_ptr<io::TlsTrust> served_trust = nullptr;
  // Is given each record, also as a line; the line is empty where there are too many of them a
  // second, which a later one counts.
  std::function<void(const AuditRecord& record, const std::string& line)> record;
  // A request broke a rule whose consequence is the sandbox's end (on_violation: terminate): called
  // once it is recorded, with a sentence. Nobody is answered then; whoever is told stops the loop
  // before it takes another turn, so that nothing more goes through. Null: such a request is
  // refused as any other.
  std::function<void(const std::string& why)> on_terminate = nullptr;
};

struct GatewayCounts {
  std::uint64_t bytes_up = 0, bytes_down = 0;  // from and to the sandbox
};

class Gateway {
 public:
  // Serves at once.
  static Result<std::unique_ptr<Gateway>> start(io::Loop& loop, GatewaySockets sockets,
                                                GatewayOptions options);
  ~Gateway();

  // Takes nothing more and resets every connection; their last records come as the loop runs on.
  void end();
  // After end(): until the last of them has come, or the time.
  io::Async<void> wait_ended(io::Clock::time_point until);

  // From now on this policy holds; connections that it denies are reset. A secret that it has no
  // more is revoked. Error: invalid_argument, and the one before holds, where its secrets are not
  // those that the gateway has: what a secret may do is said with its value.
  Status update(std::shared_ptr<const policy::CompiledNetwork> policy);
  // The same with other secrets, or with other values for them; answers are without the old ones
  // too.
  Status update(std::shared_ptr<const policy::CompiledNetwork> policy,
                std::vector<SecretEntry> secrets);
  // Another value for one secret, until that time; null: it has none now. Its placeholder stays,
  // and answers are without the one before too. Unknown names are ignored, and a value that cannot
  // be one is none.
  void set_value(std::string_view secret, SharedSecret value, std::optional<WallTime> expires);
  GatewayCounts counts() const;
  std::uint64_t revision() const;  // how many policies it has had

  struct State;  // for src/egress/gateway alone
  explicit Gateway(std::shared_ptr<State> state);

 private:
  Status change(std::shared_ptr<const policy::CompiledNetwork> policy,
                std::vector<SecretEntry> secrets);
  std::shared_ptr<State> state_;
};

// Error: invalid_argument, for a secret of the policy that is not among these just as it is there.
Status check_same_rules(const policy::NetworkPolicy& policy, std::span<const SecretEntry> secrets);

}  // namespace caisson::egress
