#include "egress/reasons.h"

#include <algorithm>
#include <array>

namespace caisson::egress {
namespace {

constexpr auto kReasons = std::to_array<Reason>({
    {"match", "a rule allows it"},
    {"default", "no rule speaks of it, and the policy's default allows it"},
    {"no_rule", "no rule names the host, and what no rule allows is denied"},
    {"deny_rule", "a rule denies it"},
    {"port", "the host is allowed, but on other ports"},
    {"protocol",
     "the host and its port are allowed, but for other bytes: TLS where a rule has tls: splice or "
     "inspect, "
     "HTTP "
     "where it has tls: plaintext, anything where it has proto: tcp"},
    {"plaintext",
     "the host is allowed by TLS alone; HTTP without it needs a rule with tls: plaintext"},
    {"method", "no rule for the host has the method; CONNECT and TRACE have none at all"},
    {"path", "no rule for the host has the path, with that method"},
    {"body_size", "the body is longer than max_body of the rule"},
    {"websocket", "no rule for the host has websocket: allow"},
    {"no_name",
     "a rule denies names, so the default allows only what says its name: TLS with a server name, "
     "and HTTP"},
    {"floor",
     "the address is no address of the Internet, or one of this host, and the rule that allows the "
     "host does not name it in cidrs"},
    {"unreachable", "it is allowed, but the name has no address, or nothing answers there"},
    {"timeout", "it is allowed, but there was no answer in time"},
    {"upstream_proxy",
     "it is allowed, but the proxy that everything goes out by cannot be reached, or does not let "
     "it through"},
    {"upstream", "it is allowed, but the server broke off, or its answer is not HTTP"},
    {"no_authority", "the TLS is to be inspected, and the sandbox was made without an authority"},
    {"authority_not_trusted",
     "the TLS is to be inspected, and the program does not trust the authority of its sandbox"},
    {"alpn",
     "the TLS is to be inspected, and the program offers other protocols than HTTP/2 and HTTP/1.1 "
     "alone"},
    {"handshake",
     "the TLS is to be inspected, and the program broke off or has no TLS 1.2 or newer"},
    {"upstream_certificate", "it is allowed, but the server's certificate is not to be believed"},
    {"upstream_tls", "it is allowed, but no TLS came about with the server"},
    {"busy", "too many bodies are being looked at for secrets at once"},
    {"secret_host", "the request has a secret's placeholder, and the secret is not for this host"},
    {"secret_plaintext", "a secret goes out over TLS with a verified server alone"},
    {"secret_place",
     "a secret's placeholder stands where its rule does not let it, or in disguise"},
    {"secret_occurrences",
     "a secret's placeholder stands in the request more often than max_occurrences says"},
    {"secret_revoked", "the secret is no longer in the policy"},
    {"secret_no_value", "the secret has no value at the moment"},
    {"secret_unfit", "the secret's value cannot stand in that place"},
    {"secret_malformed_body", "the body that a secret may be in is not what its Content-Type says"},
    {"secret_encoded_body",
     "the body is compressed, otherwise than as one gzip, or where a secret may be in it"},
    {"secret_trace", "the method would have the server send the secret back"},
    {"secret_set_twice", "two secrets set the same header"},
    {"secret_signature",
     "the request is signed with a placeholder, and the signature cannot be read or is another"},
    {"secret_scope",
     "the request is signed for a region or a service that the credentials are not for"},
    {"secret_signing_form",
     "the request is signed in a way in which nothing is signed anew: in its URL, by SigV4A, or "
     "chunk by "
     "chunk"},
    {"secret_signed_body",
     "the body is not the one that was signed, or is too long to be hashed before it is sent"},
    {"secret_websocket", "a host that gets a secret gets no WebSocket"},
    {"secret_in_answer",
     "the answer has a secret in a form that nothing can stand for, and was broken off"},
    {"secret_encoded_answer",
     "the answer of a host that gets a secret is compressed, and a secret could be in it"},
    {"bad_name", "the name in the TLS hello, in Host or in :authority is not the name of a host"},
    {"name_mismatch", "the TLS hello names another host than the one that was asked for in DNS"},
    {"no_server_name", "the TLS hello names no host, though one was asked for in DNS"},
    {"bad_hello", "the TLS hello is late, broken, or can be read in two ways"},
    {"no_first_bytes",
     "what the connection is did not show: no bytes came, or too few in five seconds"},
    {"bad_proxy_request",
     "what was sent to the gateway's own address as to a proxy is no CONNECT, no request with a "
     "host in its target and no CONNECT of SOCKS5"},
    {"unknown_address",
     "the address is one of the gateway's own, and no name has it: a name must be asked for in DNS "
     "first"},
    {"host_mismatch",
     "Host, :authority or the target names another host or port than the connection is for, or one "
     "another than the other"},
    {"no_host", "the request has no Host"},
    {"bad_target", "the request's target can be read in two ways, or is none"},
    {"bad_head", "the head of the request by HTTP/2 is malformed, or longer than is allowed"},
    {"bad_body", "the request's body is not as HTTP frames it"},
    {"upgrade", "the request asks for another protocol than WebSocket"},
    {"refused", "no rule could allow the name, and dns has unmatched: refused"},
    {"not_a_name", "what DNS was asked for is not the name of a host"},
    {"table_full", "the sandbox has open connections to as many names as can have addresses"},
    {"connections",
     "there were as many connections as limits.connections allows, from the sandbox or for it"},
    {"connections_per_second",
     "connections began faster than limits.connections_per_second allows"},
    {"requests", "there were as many requests by HTTP/2 at once as a sandbox may have: 512"},
    {"bytes_up", "the sandbox has sent as much as limits.bytes_up allows"},
    {"bytes_down", "the sandbox has received as much as limits.bytes_down allows"},
    {"records", "more happened at once than is recorded; the detail says how much is left out"},
    {"update", "the policy was changed"},
});

}  // namespace

std::span<const Reason> reasons() {
  return kReasons;
}

std::string_view meaning_of(std::string_view word) {
  const auto found = std::ranges::find(kReasons, word, &Reason::word);
  return found == kReasons.end() ? std::string_view() : found->meaning;
}

}  // namespace caisson::egress
