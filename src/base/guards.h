// The guards of a sandbox's way out, by name, and the test build's way to leave one out.
//
// switches.h has the mechanisms of the wall; these are the checks by which the gateway, its policy
// and its secrets stop what programs have got past in gateways of others (docs/egress-tests.md). A
// test of a guard proves something only if it fails without that guard. In the test build
// (CAISSON_TEST_SWITCHES) the variable CAISSON_GUARD_OFF therefore names the guards that this
// process does without; it is read once, and goes on to the gateway that the process starts. In the
// release build guard_off() is constant false, nothing reads the variable, and there is no code
// behind a guard's absence: tests/egress looks for that in what ships.
//
// Only files that CMake lists as GUARDED may include this: others are compiled alike in both
// builds, and would silently have every guard in the test build too.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

#if !defined(CAISSON_GUARDED)
#error "name this file under GUARDED in the CMakeLists.txt of its folder"
#endif

namespace caisson {

// What holds while a guard is there.
enum class Guard : std::uint8_t {
  kHostBytes,           // no byte in a name that ends or parts one elsewhere
  kTrailingDot,         // one dot at the end of a name is no part of it
  kCaseFolding,         // letter case of a name means nothing
  kIpv4Spelling,        // what ends in a number is a plain IPv4 address or refused
  kLabelBoundary,       // what is below a name is divided from it by a dot
  kPatternEverything,   // '*' alone is no pattern
  kPatternPlace,        // '*' is the whole first label of a pattern
  kPatternApex,         // '*.NAME' is not NAME itself
  kPatternSuffix,       // no pattern on a public suffix
  kV4Mapped,            // an IPv4-mapped address is the IPv4 one
  kNat64,               // an address of NAT64 is judged by the IPv4 one within
  kIpTranslated,        // 6to4, Teredo and site-local addresses are nobody's
  kDefaultDeny,         // what no rule allows is denied
  kRulePorts,           // a rule is for its ports alone
  kPlaintextRule,       // a rule for TLS allows no HTTP without it
  kWebsocketRule,       // a WebSocket needs a rule that says so
  kMethodsInspect,      // a rule about requests has TLS opened
  kLoopbackRule,        // no rule is about the loopback alone
  kFloor,               // what is no address of the Internet is not dialed
  kMetadataAlone,       // no range lifts the floor for metadata or this host
  kOwnAddress,          // this host's own addresses are known
  kPathDots,            // dot segments are resolved before a path is judged
  kPathParameters,      // parameters of a segment hide no dots
  kPathSeparators,      // no escape stands for a separator
  kPathNested,          // no escape within an escape hides anything
  kPathUnreserved,      // escapes of plain characters are taken back
  kDnsClosed,           // no query is forwarded
  kDnsSections,         // a query has no records of its own
  kDnsServices,         // a service is asked for outside where the policy has its whole name alone
  kDnsTypes,            // what is no address has no records, and is not said not to exist
  kDnsDenied,           // a name that is denied is answered as others are
  kSyntheticV6,         // the IPv6 address of a name leads to it too
  kHelloLength,         // a hello is read to its end, however long
  kHelloEch,            // a hello that may hide a name is known as one
  kServerNameJudged,    // TLS is judged by the name in its hello
  kServerNameRequired,  // TLS to a name must name it
  kServerNameBound,     // a hello names what was asked for in DNS
  kDialByName,          // what is dialed is our resolution of the judged name
  kDialJudged,          // the very address that was judged is dialed
  kInspectLiteral,      // TLS to a bare address is opened too
  kHostBound,           // Host is what the connection is for
  kAbsoluteForm,        // an absolute target names what Host does
  kEachRequest,         // each request of a connection is judged
  kUpgradeTokens,       // nothing but a WebSocket is upgraded to
  kUpgradeUnasked,      // no server changes the protocol unasked
  kFraming,             // a message has one framing
  kLeafKeyIds,          // certificates have the key identifiers that strict clients want
  kLeafNotBefore,       // certificates hold for a clock that is behind
  kUpstreamVerified,    // servers are verified before a request goes there
  kRefuseRest,          // what is neither TCP nor DNS is refused at once
  kRedirectTcp,         // every TCP connection is redirected, whatever programs do
  kTrustBundle,         // the image's bundle has the sandbox's authority
  kTrustJava,           // Java's bundle has it
  kTrustVariables,      // variables point other runtimes to it
  kRepeatedHeaders,     // no secret in headers that servers repeat
  kSecretBytes,         // no control characters in a secret
  kSecretHosts,         // a secret goes to its hosts alone
  kSecretEnds,          // a value whose time is over goes nowhere
  kSecretHostsOpened,   // TLS to a secret's hosts is opened whatever allows it
  kSecretPlaces,        // a secret goes to the places of its rule alone
  kSecretPassthrough,   // a placeholder goes only where a rule lets it
  kSecretPlaintext,     // no secret without verified TLS
  kSecretOccurrences,   // a secret as often as its rule says
  kSecretSearch,        // no placeholder is left in what is sent
  kSecretMalformed,     // a body that cannot be read is not sent
  kSecretLength,        // Content-Length follows what was put in
  kSecretForms,         // texts are searched for in every encoding
  kInjectMakesRoom,     // who the client says it is gives way to what is set
  kInjectNeedsValue,    // a request without its secret is not sent
  kPlaceholderInside,   // the sandbox gets the placeholder, not the value
  kProxyFloor,          // the proxy that everything goes out by is judged as a destination
  kProxyAlone,          // nothing goes out past it
  kProxyAddresses,      // where addresses decide, it gets those that were judged, and no names
  kTunnelBound,         // what is inside a tunnel is judged as what is not
  kScrub,               // answers have the placeholder where servers say the value
  kSigV4Anew,           // a request that is signed with placeholders is signed anew
  kSigV4Verified,       // what is signed anew was signed with the placeholders
  kSigV4Scope,          // for regions and services of the rule alone
  kSigV4Body,           // a body is the one that was signed
  kSigV4Path,           // a path is sent as the one that was signed
};

// The last one decides.
inline constexpr std::size_t kGuardCount = static_cast<std::size_t>(Guard::kSigV4Path) + 1;

#if defined(CAISSON_TEST_SWITCHES)

inline constexpr auto kGuardNames = std::to_array<std::string_view>({
    "host_bytes",
    "trailing_dot",
    "case_folding",
    "ipv4_spelling",
    "label_boundary",
    "pattern_everything",
    "pattern_place",
    "pattern_apex",
    "pattern_suffix",
    "v4_mapped",
    "nat64",
    "ip_translated",
    "default_deny",
    "rule_ports",
    "plaintext_rule",
    "websocket_rule",
    "methods_inspect",
    "loopback_rule",
    "floor",
    "metadata_alone",
    "own_address",
    "path_dots",
    "path_parameters",
    "path_separators",
    "path_nested",
    "path_unreserved",
    "dns_closed",
    "dns_sections",
    "dns_services",
    "dns_types",
    "dns_denied",
    "synthetic_v6",
    "hello_length",
    "hello_ech",
    "server_name_judged",
    "server_name_required",
    "server_name_bound",
    "dial_by_name",
    "dial_judged",
    "inspect_literal",
    "host_bound",
    "absolute_form",
    "each_request",
    "upgrade_tokens",
    "upgrade_unasked",
    "framing",
    "leaf_key_ids",
    "leaf_not_before",
    "upstream_verified",
    "refuse_rest",
    "redirect_tcp",
    "trust_bundle",
    "trust_java",
    "trust_variables",
    "repeated_headers",
    "secret_bytes",
    "secret_hosts",
    "secret_ends",
    "secret_hosts_opened",
    "secret_places",
    "secret_passthrough",
    "secret_plaintext",
    "secret_occurrences",
    "secret_search",
    "secret_malformed",
    "secret_length",
    "secret_forms",
    "inject_makes_room",
    "inject_needs_value",
    "placeholder_inside",
    "proxy_floor",
    "proxy_alone",
    "proxy_addresses",
    "tunnel_bound",
    "scrub",
    "sigv4_anew",
    "sigv4_verified",
    "sigv4_scope",
    "sigv4_body",
    "sigv4_path",
});
static_assert(kGuardNames.size() == kGuardCount);

using Guards = std::bitset<kGuardCount>;

// "floor,scrub" to its set; "" is none. Error: invalid_argument that names the unknown word.
Result<Guards> parse_guards(std::string_view text);

// Whether this process does without the guard. An unknown name in the variable ends the program.
bool guard_off(Guard guard);

// The variable with its value, as one entry of an environment, for a process that is started;
// nullptr: it is not set. Borrowed from this process's environment.
const char* guard_variable();

#else

constexpr bool guard_off(Guard) {
  return false;
}

#endif

}  // namespace caisson
