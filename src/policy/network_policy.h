// A network policy that has been checked, and the questions that a gateway asks it.
//
// Decisions come in two steps, as a gateway learns things: first a connection (where it goes, by
// name or by address), later each request of it that can be read. All rules that deny are looked
// at before the first that allows. An address is judged apart (address_verdict), since a name is
// resolved only after it was allowed. Immutable and pure; shared by whoever holds connections that
// were decided by it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/network.h>

#include "base/error.h"
#include "policy/host_name.h"
#include "policy/ip_address.h"
#include "policy/ip_class.h"
#include "policy/url_path.h"

namespace caisson::policy {

// Why something was decided so; the words of audit records and refusals (to_string).
enum class NetworkReason : std::uint8_t {
  kMatch,      // a rule
  kDefault,    // no rule; the policy's default
  kNoRule,     // no rule, and the default is deny
  kDenyRule,   // a rule that denies
  kPort,       // the host is allowed, on other ports
  kProtocol,   // host and port are allowed, for another protocol
  kPlaintext,  // the host is allowed by TLS alone
  kMethod,     // no allowing rule for the host has this method
  kPath,       // … this path
  kBodySize,   // the rule allows a smaller body
  kWebSocket,  // the rule allows no WebSocket
  kNoName,     // the default would allow it, but some names are denied and this has none
  kFloor,      // an address that is not the Internet's, or the host's own
};
std::string_view to_string(NetworkReason reason);

struct NetworkDecision {
  bool allowed = false;
  NetworkReason reason = NetworkReason::kNoRule;
  std::string rule;  // its id; empty: none
  // Of a request that is allowed: how long its body may be (nullopt: as long as it is), and whether
  // another method would perhaps not be.
  std::optional<std::uint64_t> most_body;
  bool limits_methods = false;
  // Of a TLS connection that is allowed: it is to be opened, and each request judged.
  bool inspect = false;
  bool operator==(const NetworkDecision&) const = default;
};

// Whether any TLS is to be opened, for which the sandbox must know an authority; or gateways have
// to be given a value, which needs the same keys where a sandbox has several of them. Of a policy
// that may not be valid.
bool inspects(const NetworkPolicy& policy);

// What the first bytes of a connection are.
enum class ConnectionKind : std::uint8_t { kTls, kHttp, kOther };

class CompiledNetwork {
 public:
  // Error: invalid_argument with the key below `path` ("network.rules[2].hosts[0]"), what was found
  // there and what is allowed.
  static Result<std::shared_ptr<const CompiledNetwork>> compile(const NetworkPolicy& policy,
                                                                std::string_view path = "network");

  // Whether `port` of `host` may be reached by a connection of this kind. `host` is the name that
  // the client asked for, or the address that it connected to without asking for a name.
  NetworkDecision connection(const Host& host, std::uint16_t port, ConnectionKind kind) const;
  // Whether a tcp rule allows it, whatever its bytes are: to be asked before they are looked at.
  NetworkDecision raw_connection(const Host& host, std::uint16_t port) const;
  // A request that can be read. `websocket`: it asks to become one.
  struct Request {
    std::string_view method;
    std::string_view path;  // canonical
    bool websocket = false;
    bool tls = false;        // it came by TLS that was opened
    std::uint64_t body = 0;  // bytes of it, as far as it is known; asked again as more comes
  };
  NetworkDecision request(const Host& host, std::uint16_t port, const Request& request) const;
  // Whether an address that a name led to, or that was connected to itself, may be dialed for what
  // `allowed` lets through: global ones, and those that the cidrs or hosts of that very rule name.
  // `own`: it is one of this machine's; those, the loopback's and what a cloud gives its machines
  // are named by the address alone, and ranges wider than the private ones lift nothing.
  NetworkDecision address(const IpAddress& address, std::uint16_t port, bool own,
                          const NetworkDecision& allowed) const;

  // By which everything goes out, its port included; nullopt: directly.
  const std::optional<Authority>& upstream_proxy() const { return proxy_; }
  // Whether the proxy may be at that address, to which its own (text or name) led. The Internet's
  // are; others where the floor may be lifted, which the policy does by naming the proxy: the very
  // address, or by a name those of private networks that are not this host's.
  bool allows_proxy_at(const IpAddress& address, bool own) const;
  // Whether the proxy is told the name that `allowed` let through, and resolves it itself. Else it
  // is given addresses that were judged: where the policy's default allowed it, or some rule denies
  // addresses, since then the address decides.
  bool proxy_resolves(const NetworkDecision& allowed) const;

  // Whether any rule could allow this name, on whatever port: what DNS asks.
  bool may_match(const Host& host) const;
  // Whether an allowing rule names it (the default may allow what no rule names).
  bool names(const Host& host) const;
  // Whether some secret may go to this host, and which.
  bool serves_secret(const Host& host) const;
  std::vector<std::string> secrets_of(const Host& host) const;

  const NetworkPolicy& values() const { return values_; }

 private:
  struct Match {
    std::vector<std::string> methods;
    std::vector<PathPattern> paths;
    std::optional<std::uint64_t> max_body;

    bool has_method(std::string_view method) const;
    bool has_path(std::string_view path) const;
  };
  struct Rule {
    std::string id;
    RuleAction action = RuleAction::kAllow;
    std::vector<HostPattern> hosts;
    std::vector<Cidr> cidrs;
    std::vector<std::uint16_t> ports;  // empty: any
    RuleProtocol protocol = RuleProtocol::kHttp;
    TlsMode tls = TlsMode::kSplice;
    std::vector<Match> http;
    bool websocket = false;

    bool has_host(const Host& host) const;
    bool has_address(const IpAddress& address) const;
    bool has_port(std::uint16_t port) const;
    bool is_of_loopback() const;
    // Of a rule that denies, whose host and port it is: whether it means this request.
    bool denies(const Request& request) const;
  };
  static Result<Match> compile_match(const HttpMatch& values, const std::string& path);
  static Result<Rule> compile_rule(const NetworkRule& values, std::size_t index,
                                   const std::string& path);
  // What the default says where no rule matches; `reason` is why none does.
  // Names must then be known where some are denied: `named` is whether this one is.
  enum class Named : bool { kNo, kYes };
  NetworkDecision unmatched(NetworkReason reason, Named named) const;
  const Rule* denying(const Host& host, std::uint16_t port) const;
  // Whether this rule has TLS to a host of its own opened.
  bool opens(const Rule& rule, const Host& host) const;
  Status check_secret_hosts(const std::string& path) const;
  // What this rule, whose host and port it is, says of a request.
  static NetworkDecision judge(const Rule& rule, const Request& request);

  NetworkPolicy values_;
  std::vector<Rule> rules_;
  std::vector<std::vector<HostPattern>> secret_hosts_;  // of each secret of values_
  std::optional<Authority> proxy_;
  bool denies_names_ = false, denies_addresses_ = false;
};

}  // namespace caisson::policy
