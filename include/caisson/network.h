// What may leave a sandbox: the network policy of a spec, as plain values.
//
// Front ends (YAML, JSON, --net, later E2B's fields and MCP) fill a NetworkPolicy;
// policy/network_policy.h compiles it into what the gateway asks for each connection and each
// request, or says what is wrong where. A sandbox without a NetworkPolicy has no network at all.
// Part of the public API.
#pragma once

#include <caisson/secrets.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace caisson::policy {

// What holds where no rule matches. deny: nothing leaves. allow-public: every global unicast
// address may be reached, on every port, never what the floor keeps. Where some rule denies hosts
// by name, only what says its name is reached so: TLS with a server name and HTTP, not bare
// addresses.
enum class NetworkDefault { kDeny, kAllowPublic };
// All matching rules that deny win; otherwise the first matching one that allows.
enum class RuleAction { kAllow, kDeny };
// What a rule is about. http: TLS or HTTP whose host is known from its first bytes. tcp: a
// connection of any kind, judged by where it goes alone.
enum class RuleProtocol { kHttp, kTcp };
// How connections of an allowing http rule are treated. splice: TLS passes unopened; its server
// name is enforced, what is inside is not seen. plaintext: HTTP without TLS, each request judged.
// inspect: the gateway is the server to the program, with a certificate of the sandbox's own
// authority, and a client that verifies the true server; each request is judged in between. Where a
// connection has a rule that inspects and one that splices, it is inspected.
enum class TlsMode { kSplice, kPlaintext, kInspect };
// Whether an allowing rule that names addresses which are not the Internet's lets them be reached
// (liftable), or nothing does (fixed): for policies of somebody who does not own this host.
enum class Floor { kLiftable, kFixed };
// What a name is answered with that no rule could allow. synthetic: an address as for every other,
// so that the program then gets a readable refusal; nodata: no address; refused: the DNS error.
enum class UnmatchedName { kSynthetic, kNodata, kRefused };

// When records are brought to the disk.
enum class AuditSync { kNone, kInterval, kEach };

// One kind of request of a rule; empty lists match everything.
struct HttpMatch {
  std::vector<std::string> methods;  // "GET"; case counts, as it does in HTTP
  // "/repos/acme/**": * stands for anything within a segment, ** for any number of segments,
  // {a,b} for either.
  std::vector<std::string> paths;
  std::optional<std::uint64_t> max_body;  // bytes; nullopt: no bound
  bool operator==(const HttpMatch&) const = default;
};

struct NetworkRule {
  std::string id;  // empty: "rule-N", where it is the N-th
  RuleAction action = RuleAction::kAllow;
  // A name, *.NAME (what is below NAME), **.NAME (NAME and what is below), or an address.
  std::vector<std::string> hosts;
  // Address ranges; one that allows lifts the floor for what this rule allows. This host's own
  // addresses and what clouds give their machines must be named one by one.
  std::vector<std::string> cidrs;
  // 1 to 65535. Empty: 443 for splice and inspect, 80 for plaintext, any port of a rule that
  // denies.
  std::vector<std::uint16_t> ports;
  bool any_port = false;  // "ports: any"; `ports` is empty then
  RuleProtocol protocol = RuleProtocol::kHttp;
  TlsMode tls = TlsMode::kSplice;
  std::vector<HttpMatch> http;  // of what is looked into (not splice); empty: every request
  bool websocket = false;       // whether requests may become WebSockets
  bool operator==(const NetworkRule&) const = default;
};

struct DnsPolicy {
  UnmatchedName unmatched = UnmatchedName::kSynthetic;
  std::uint32_t ttl = 30;  // seconds; 1 to 3600
  // Names of services (RFC 2782), "_mongodb._tcp.db.example.com": a question for the SRV records of
  // these, and no other, is asked outside. In canonical form.
  std::vector<std::string> services;
  bool operator==(const DnsPolicy&) const = default;
};

// A SOCKS5 proxy (RFC 1928) by which everything goes out that is let through. Nothing goes out past
// it: where it fails, what would have gone through it fails.
struct UpstreamProxy {
  std::string address;   // "proxy.example.com:1080", "192.0.2.1:1080", "[2001:db8::1]:1080"
  std::string username;  // at most 255 bytes (RFC 1929); empty: it asks for none
  std::optional<SecretSource> password;  // of 1 to 255 bytes; with a username alone
  bool operator==(const UpstreamProxy&) const = default;
};

// Of one sandbox; nullopt is unlimited.
struct NetworkLimits {
  std::optional<std::uint64_t> connections = 256;            // at once; 1 to 65536
  std::optional<std::uint64_t> connections_per_second = 50;  // new ones
  std::optional<std::uint64_t> dns_per_second = 50;          // queries
  std::optional<std::uint64_t> bytes_up, bytes_down;         // in all; from and to the sandbox
  std::optional<std::uint64_t> rate_up, rate_down;           // bytes a second
  std::optional<std::uint64_t> idle_ms = 300'000;            // of a connection
  bool operator==(const NetworkLimits&) const = default;
};

// What is done with the records of what was decided, where somebody wants them.
struct AuditPolicy {
  // When they are brought to the disk: by the host in its own time; behind each seal, some 128
  // records or a second; each, before anything else goes on.
  AuditSync sync = AuditSync::kInterval;
  // A file that has more bytes is put aside before another run; kMinAuditSegment to
  // kMaxAuditSegment.
  std::uint64_t segment = 64u << 20;
  bool operator==(const AuditPolicy&) const = default;
};

struct NetworkPolicy {
  NetworkDefault unmatched = NetworkDefault::kDeny;
  Floor floor = Floor::kLiftable;
  DnsPolicy dns;
  NetworkLimits limits;
  AuditPolicy audit;
  std::vector<NetworkRule> rules;
  // What the sandbox uses without having it. TLS to a secret's hosts is inspected, whatever the
  // rule (or the default) says that allows it, but for a tcp rule.
  std::vector<SecretRule> secrets;
  std::optional<UpstreamProxy> upstream_proxy;
  bool operator==(const NetworkPolicy&) const = default;
};

// What a sandbox's gateway did.
struct NetworkReport {
  bool complete = true;  // false: the gateway ended before its sandbox, and the rest is not known
  std::uint64_t connections = 0;               // and requests, that were let through
  std::uint64_t bytes_up = 0, bytes_down = 0;  // from and to the sandbox
  std::uint64_t refused = 0;                   // connections and requests that were not
  struct Refusal {
    std::string target;  // "evil.example.com:443", "GET evil.example.com:80/path"
    std::string reason;  // a word, perhaps with a sentence behind a colon
    std::uint64_t count = 0;
    bool operator==(const Refusal&) const = default;
  };
  std::vector<Refusal> refusals;  // in the order of their first; 64 different ones at most
  // The last record of its audit, its number and its hash in hexadecimal digits; 0 and empty where
  // there is none or it is not known.
  std::uint64_t audit_sequence = 0;
  std::string audit_hash;
  bool operator==(const NetworkReport&) const = default;
};

// Of AuditPolicy::segment.
inline constexpr std::uint64_t kMinAuditSegment = 64u << 10;
inline constexpr std::uint64_t kMaxAuditSegment = 1u << 30;

// How much a policy may hold.
inline constexpr std::size_t kMaxRules = 512;
inline constexpr std::size_t kMaxRuleItems = 256;  // of each list of a rule
inline constexpr std::size_t kMaxServices = 64;    // of DnsPolicy

}  // namespace caisson::policy
