#include "policy/network_explain.h"

#include <array>
#include <utility>

#include "policy/complain.h"

namespace caisson::policy {
namespace {

struct Scheme {
  std::string_view prefix;
  ConnectionKind kind;
  std::uint16_t port;  // 0: must be given
};
constexpr std::array<Scheme, 3> kSchemes = {{{"https://", ConnectionKind::kTls, 443},
                                             {"http://", ConnectionKind::kHttp, 80},
                                             {"tcp://", ConnectionKind::kOther, 0}}};
constexpr std::string_view kUrlAllowed =
    "https://HOST[:PORT], http://HOST[:PORT]/PATH or tcp://HOST:PORT";

struct Asked {
  ConnectionKind kind = ConnectionKind::kTls;
  Host host;
  std::uint16_t port = 0;
  Target target;
  std::string method;
  bool opened = false;  // TLS that the gateway looks into
};

Result<Asked> parse_url(std::string_view url, std::string_view method) {
  for (const Scheme& scheme : kSchemes) {
    if (!url.starts_with(scheme.prefix)) continue;
    std::string_view rest = url.substr(scheme.prefix.size());
    const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
    TRY_ASSIGN(Authority authority, canonical_authority(rest.substr(0, end)));
    Asked asked{.kind = scheme.kind, .host = std::move(authority.host), .method{method}};
    asked.port = authority.port.value_or(scheme.port);
    if (asked.port == 0) break;
    rest.remove_prefix(end);
    const std::string path = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
    TRY_ASSIGN(asked.target, canonical_target(path));
    return asked;
  }
  return fail(wrong("URL", quote(url), kUrlAllowed));
}

std::string place(const Asked& asked) {
  return asked.host.text() + ":" + std::to_string(asked.port);
}

std::string what(const Asked& asked) {
  switch (asked.kind) {
    case ConnectionKind::kTls:
      if (asked.opened) return asked.method + " " + asked.target.path + " of " + place(asked);
      return "a TLS connection to " + place(asked);
    case ConnectionKind::kHttp:
      return asked.method + " " + asked.target.path + " of " + place(asked) + " without TLS";
    case ConnectionKind::kOther:
      return "a TCP connection to " + place(asked);
  }
  return "";
}

std::string allowed_sentence(const CompiledNetwork& policy, const Asked& asked,
                             const NetworkDecision& decision) {
  std::string sentence = decision.reason == NetworkReason::kMatch
                             ? "the rule " + decision.rule + " allows "
                             : "no rule speaks of it, and the default allows ";
  sentence += what(asked);
  if (asked.opened) {
    sentence += "; the gateway opens the TLS connection and judges each request";
    for (const std::string& name : policy.secrets_of(asked.host))
      sentence += "; the secret " + name + " may go there";
  } else if (asked.kind == ConnectionKind::kTls) {
    sentence += "; what is said in it is not looked at, only that it names this host";
  }
  if (!asked.host.is_address())
    sentence += "; the name must lead to an address of the Internet, or to one that a rule names";
  return sentence;
}

std::string denied_sentence(const Asked& asked, const NetworkDecision& decision) {
  const std::string rule = decision.rule.empty() ? "" : " (the nearest is " + decision.rule + ")";
  switch (decision.reason) {
    case NetworkReason::kDenyRule:
      return "the rule " + decision.rule + " denies " + what(asked);
    case NetworkReason::kPort:
      return asked.host.text() + " is allowed on other ports than " + std::to_string(asked.port);
    case NetworkReason::kProtocol:
      return place(asked) + " is allowed, but not for " +
             (asked.kind == ConnectionKind::kTls ? "TLS: only for HTTP without it"
                                                 : "bytes of any kind: a rule with proto: tcp is");
    case NetworkReason::kPlaintext:
      return place(asked) + " is allowed by TLS alone; HTTP without it needs tls: plaintext";
    case NetworkReason::kMethod:
      return "no rule for " + place(asked) + " has the method " + asked.method + rule;
    case NetworkReason::kPath:
      return "no rule for " + asked.method + " of " + place(asked) + " has the path " +
             asked.target.path + rule;
    case NetworkReason::kNoName:
      return "the default allows names alone, since a rule denies some: " + what(asked) +
             " has none";
    case NetworkReason::kFloor:
      return asked.host.text() + " is no address of the Internet (" +
             std::string(to_string(classify(asked.host.address))) +
             "); a rule must name it in cidrs, with its ports";
    default:
      return "no rule names " + asked.host.text() + ", and what no rule allows is denied";
  }
}

NetworkDecision decide(const CompiledNetwork& policy, Asked& asked) {
  NetworkDecision decision = policy.raw_connection(asked.host, asked.port);
  if (!decision.allowed) {
    const NetworkDecision connection = policy.connection(asked.host, asked.port, asked.kind);
    asked.opened = connection.inspect;
    decision = connection;
    if (asked.opened || asked.kind == ConnectionKind::kHttp) {
      decision =
          policy.request(asked.host, asked.port,
                         {.method = asked.method, .path = asked.target.path, .tls = asked.opened});
      // Why there is no rule for its requests, the connection knows.
      if (decision.reason == NetworkReason::kNoRule) decision = connection;
    }
  }
  if (!decision.allowed || !asked.host.is_address()) return decision;
  const NetworkDecision address = policy.address(asked.host.address, asked.port, false, decision);
  return address.allowed ? decision : address;
}

}  // namespace

Result<NetworkExplanation> explain(const CompiledNetwork& policy, std::string_view url,
                                   std::string_view method) {
  TRY_ASSIGN(Asked asked, parse_url(url, method));
  NetworkExplanation explanation{.decision = decide(policy, asked)};
  explanation.sentence = explanation.decision.allowed
                             ? allowed_sentence(policy, asked, explanation.decision)
                             : denied_sentence(asked, explanation.decision);
  return explanation;
}

}  // namespace caisson::policy
