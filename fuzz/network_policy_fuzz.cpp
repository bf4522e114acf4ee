// libraries: policy base
// parser: src/policy/network_document.cpp src/policy/network_policy.cpp
// parser: src/policy/network_explain.cpp
//
// A network policy in YAML: what is accepted is written and read again as the same, and decides
// every question without a word that it does not have.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "policy/network_document.h"
#include "policy/network_explain.h"
#include "policy/network_policy.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::policy;  // NOLINT

constexpr std::string_view kUrls[] = {
    "https:"
    "//a.example.com",
    "http:"
    "//a.example.com/v1/items?x=1",
    "http:"
    "//10.0.0.5:8080/",
    "tcp:"
    "//db.example.com:5432",
    "https:"
    "//[2001:db8::1]:8443",
};

void check_decision(const NetworkPolicy& policy, const NetworkDecision& decision) {
  const bool by_rule =
      decision.reason == NetworkReason::kMatch || decision.reason == NetworkReason::kDenyRule;
  VERIFY(!by_rule || !decision.rule.empty());
  if (!decision.allowed) return;
  VERIFY(by_rule || decision.reason == NetworkReason::kDefault);
  VERIFY(by_rule || policy.unmatched == NetworkDefault::kAllowPublic);
}

// Requests that a look into a connection shows, of a client that may do anything.
void check_requests(const NetworkPolicy& policy, const CompiledNetwork& compiled) {
  for (const std::string_view name : {"a.example.com", "x.example.org", "10.0.0.5"}) {
    const Host host = canonical_host(name).value();
    for (const std::uint16_t port : {80, 443, 8080}) {
      for (const std::string_view path : {"/v1/items", "/", "/v1/items;x"}) {
        const CompiledNetwork::Request get{.method = "GET", .path = path};
        const CompiledNetwork::Request post{
            .method = "POST", .path = path, .body = 4096, .websocket = true};
        check_decision(policy, compiled.request(host, port, get));
        const NetworkDecision decision = compiled.request(host, port, post);
        check_decision(policy, decision);
        VERIFY(!to_string(decision.reason).empty());
        const CompiledNetwork::Request opened{.method = "GET", .path = path, .tls = true};
        check_decision(policy, compiled.request(host, port, opened));
      }
      const NetworkDecision tls = compiled.connection(host, port, ConnectionKind::kTls);
      VERIFY(!tls.inspect || (tls.allowed && inspects(policy)));
      // A secret's host is never passed on unseen, but where a rule says any bytes.
      if (tls.allowed && compiled.serves_secret(host))
        VERIFY(tls.inspect || compiled.raw_connection(host, port).allowed);
      check_decision(policy, compiled.connection(host, port, ConnectionKind::kOther));
      // What is let through unseen could be any request.
      if (compiled.raw_connection(host, port).allowed)
        VERIFY(compiled.connection(host, port, ConnectionKind::kTls).allowed);
    }
    if (compiled.names(host)) VERIFY(compiled.may_match(host));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto policy = parse_network_policy(text, Format::kYaml);
  if (!policy.has_value()) {
    VERIFY(!policy.error().message().empty());
    return 0;
  }
  const auto again = parse_network_policy(json::serialize(network_tree(*policy)), Format::kJson);
  VERIFY(again.has_value() && *again == *policy);
  const auto compiled = CompiledNetwork::compile(*policy);
  VERIFY(compiled.has_value());
  for (const std::string_view url : kUrls) {
    const auto explanation = explain(**compiled, url, "GET");
    VERIFY(explanation.has_value() && !explanation->sentence.empty());
    check_decision(*policy, explanation->decision);
  }
  check_requests(*policy, **compiled);
  // What the floor keeps is lifted by a rule alone.
  const auto metadata = IpAddress::v4({169, 254, 169, 254});
  const NetworkDecision by_default{.allowed = true, .reason = NetworkReason::kDefault};
  VERIFY(!(*compiled)->address(metadata, 80, false, by_default).allowed);
  return 0;
}
