#include "policy/network_policy.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace caisson::policy {
namespace {

using Policy = std::shared_ptr<const CompiledNetwork>;

Policy compiled(NetworkPolicy policy) {
  auto result = CompiledNetwork::compile(policy);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return std::move(*result);
}

Policy compiled(std::vector<NetworkRule> rules, NetworkDefault unmatched = NetworkDefault::kDeny) {
  NetworkPolicy policy;
  policy.unmatched = unmatched;
  policy.rules = std::move(rules);
  return compiled(std::move(policy));
}

Host host(std::string_view text) {
  auto result = canonical_host(text);
  EXPECT_TRUE(result.has_value()) << text;
  return *result;
}

// "match rule-1", "no_rule".
std::string said(const NetworkDecision& decision) {
  std::string text = decision.allowed ? "allow " : "deny ";
  text += to_string(decision.reason);
  return decision.rule.empty() ? text : text + " " + decision.rule;
}

std::string tls(const Policy& policy, std::string_view name, std::uint16_t port = 443) {
  return said(policy->connection(host(name), port, ConnectionKind::kTls));
}
std::string http(const Policy& policy, std::string_view name, std::uint16_t port = 80) {
  return said(policy->connection(host(name), port, ConnectionKind::kHttp));
}
std::string request(const Policy& policy, std::string_view name, std::string_view method,
                    std::string_view path, std::uint64_t body = 0) {
  return said(policy->request(host(name), 80, {.method = method, .path = path, .body = body}));
}
// What the address is for what this rule allowed; without one, for what the default did.
std::string address(const Policy& policy, std::string_view text, std::string rule = "",
                    std::uint16_t port = 443, bool own = false) {
  const auto parsed = IpAddress::parse(text);
  EXPECT_TRUE(parsed.has_value()) << text;
  const auto reason = rule.empty() ? NetworkReason::kDefault : NetworkReason::kMatch;
  return said(policy->address(*parsed, port, own,
                              {.allowed = true, .reason = reason, .rule = std::move(rule)}));
}

TEST(NetworkPolicy, WithoutARuleNothingIsAllowed) {
  const Policy policy = compiled(std::vector<NetworkRule>{});
  EXPECT_EQ(tls(policy, "example.com"), "deny no_rule");
  EXPECT_EQ(http(policy, "example.com"), "deny no_rule");
  EXPECT_FALSE(policy->may_match(host("example.com")));
}

TEST(NetworkPolicy, ARuleAllowsItsHostByTlsOnItsPorts) {
  const Policy policy = compiled({{.hosts = {"api.example.com"}}});
  EXPECT_EQ(tls(policy, "api.example.com"), "allow match rule-1");
  EXPECT_EQ(tls(policy, "API.example.com."), "allow match rule-1");
  EXPECT_EQ(tls(policy, "api.example.com", 8443), "deny port");
  EXPECT_EQ(http(policy, "api.example.com", 443), "deny plaintext");
  EXPECT_EQ(http(policy, "api.example.com"), "deny port");
  EXPECT_EQ(tls(policy, "www.example.com"), "deny no_rule");
  EXPECT_EQ(tls(policy, "xapi.example.com"), "deny no_rule");
  EXPECT_TRUE(policy->may_match(host("api.example.com")));
}

TEST(NetworkPolicy, ARequestIsRefusedForTheNearestMiss) {
  const Policy policy = compiled(
      {{.hosts = {"a.example.com"}},
       {.hosts = {"b.example.com"}, .ports = {80}},
       {.hosts = {"c.example.com"}, .ports = {443}},
       {.hosts = {"c.example.com"}, .tls = TlsMode::kPlaintext, .http = {{.methods = {"GET"}}}}});
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/"), "deny port");
  EXPECT_EQ(request(policy, "b.example.com", "GET", "/"), "deny plaintext");
  EXPECT_EQ(request(policy, "c.example.com", "POST", "/"), "deny method rule-4");
  EXPECT_EQ(request(policy, "d.example.com", "GET", "/"), "deny no_rule");
}

TEST(NetworkPolicy, WildcardsMeanWhatIsBelowTheName) {
  const Policy policy =
      compiled({{.hosts = {"*.one.example.com"}}, {.hosts = {"**.two.example.com"}}});
  EXPECT_EQ(tls(policy, "one.example.com"), "deny no_rule");
  EXPECT_EQ(tls(policy, "a.b.one.example.com"), "allow match rule-1");
  EXPECT_EQ(tls(policy, "two.example.com"), "allow match rule-2");
  EXPECT_EQ(tls(policy, "nottwo.example.com"), "deny no_rule");
}

TEST(NetworkPolicy, ARuleThatDeniesWinsWhereverItStands) {
  const Policy policy =
      compiled({{.hosts = {"*.example.com"}},
                {.id = "no-gist", .action = RuleAction::kDeny, .hosts = {"gist.example.com"}}});
  EXPECT_EQ(tls(policy, "gist.example.com"), "deny deny_rule no-gist");
  EXPECT_EQ(tls(policy, "www.example.com"), "allow match rule-1");
}

TEST(NetworkPolicy, WhatDeniesRequestsDeniesWhatHidesThem) {
  const Policy policy = compiled({{.hosts = {"a.example.com"}},
                                  {.hosts = {"a.example.com"}, .tls = TlsMode::kPlaintext},
                                  {.id = "no-post",
                                   .action = RuleAction::kDeny,
                                   .hosts = {"a.example.com"},
                                   .http = {{.methods = {"POST"}}}}});
  EXPECT_EQ(tls(policy, "a.example.com"), "deny deny_rule no-post");
  EXPECT_EQ(http(policy, "a.example.com"), "allow match rule-2");
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/"), "allow match rule-2");
  EXPECT_EQ(request(policy, "a.example.com", "POST", "/"), "deny deny_rule no-post");
}

// A request by TLS that was opened.
std::string opened(const Policy& policy, std::string_view name, std::string_view method,
                   std::string_view path, std::uint16_t port = 443) {
  return said(policy->request(host(name), port, {.method = method, .path = path, .tls = true}));
}

bool inspects(const Policy& policy, std::string_view name, std::uint16_t port = 443) {
  const NetworkDecision decision = policy->connection(host(name), port, ConnectionKind::kTls);
  return decision.allowed && decision.inspect;
}

TEST(NetworkPolicy, ARuleThatInspectsJudgesRequestsByTlsAlone) {
  const Policy policy = compiled({{.hosts = {"a.example.com"},
                                   .tls = TlsMode::kInspect,
                                   .http = {{.methods = {"GET"}, .paths = {"/public/**"}}}}});
  EXPECT_TRUE(inspects(policy->values()));
  EXPECT_FALSE(inspects(NetworkPolicy{.rules = {{.hosts = {"a.example.com"}}}}));
  EXPECT_TRUE(inspects(policy, "a.example.com"));
  EXPECT_EQ(tls(policy, "a.example.com"), "allow match rule-1");
  EXPECT_EQ(tls(policy, "a.example.com", 8443), "deny port");
  EXPECT_EQ(http(policy, "a.example.com", 443), "deny plaintext");
  EXPECT_EQ(opened(policy, "a.example.com", "GET", "/public/a"), "allow match rule-1");
  EXPECT_EQ(opened(policy, "a.example.com", "GET", "/secret"), "deny path rule-1");
  EXPECT_EQ(opened(policy, "a.example.com", "POST", "/public/a"), "deny method rule-1");
  EXPECT_EQ(opened(policy, "b.example.com", "GET", "/public/a"), "deny no_rule");
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/public/a"), "deny port");
}

TEST(NetworkPolicy, ARuleOfTheOtherTransportSaysNothingOfRequests) {
  const Policy policy =
      compiled({{.hosts = {"a.example.com"}, .ports = {8443}, .tls = TlsMode::kInspect},
                {.hosts = {"a.example.com"}, .ports = {8443, 8080}, .tls = TlsMode::kPlaintext},
                {.hosts = {"b.example.com"}, .tls = TlsMode::kSplice}});
  EXPECT_EQ(opened(policy, "a.example.com", "GET", "/", 8443), "allow match rule-1");
  EXPECT_EQ(opened(policy, "a.example.com", "GET", "/", 8080), "deny protocol");
  EXPECT_EQ(opened(policy, "b.example.com", "GET", "/"), "deny protocol");
}

TEST(NetworkPolicy, WhoeverInspectsAHostWinsOverWhoeverSplicesIt) {
  const NetworkRule wide{.hosts = {"**.example.com"}};
  const NetworkRule narrow{
      .hosts = {"a.example.com"}, .tls = TlsMode::kInspect, .http = {{.methods = {"GET"}}}};
  for (const auto& rules : {std::vector{wide, narrow}, std::vector{narrow, wide}}) {
    const Policy policy = compiled(rules);
    EXPECT_TRUE(inspects(policy, "a.example.com"));
    EXPECT_FALSE(inspects(policy, "b.example.com"));
    EXPECT_TRUE(opened(policy, "a.example.com", "POST", "/").starts_with("deny method"));
  }
}

TEST(NetworkPolicy, WhatDeniesRequestsLeavesOpenWhatIsInspected) {
  const NetworkRule no_post{.id = "no-post",
                            .action = RuleAction::kDeny,
                            .hosts = {"*.example.com"},
                            .http = {{.methods = {"POST"}}}};
  const Policy policy = compiled({{.hosts = {"a.example.com"}, .tls = TlsMode::kInspect},
                                  {.hosts = {"b.example.com"}},
                                  no_post});
  EXPECT_TRUE(inspects(policy, "a.example.com"));
  EXPECT_EQ(tls(policy, "b.example.com"), "deny deny_rule no-post");
  EXPECT_EQ(opened(policy, "a.example.com", "GET", "/"), "allow match rule-1");
  EXPECT_EQ(opened(policy, "a.example.com", "POST", "/"), "deny deny_rule no-post");
  NetworkRule whole{.id = "none", .action = RuleAction::kDeny, .hosts = {"a.example.com"}};
  EXPECT_EQ(tls(compiled({{.hosts = {"a.example.com"}, .tls = TlsMode::kInspect}, whole}),
                "a.example.com"),
            "deny deny_rule none");
}

NetworkPolicy with_secret(std::vector<NetworkRule> rules, std::string host) {
  NetworkPolicy policy{.rules = std::move(rules)};
  SecretRule secret{.name = "gh", .env = "GH"};
  secret.source.text = "GH";
  secret.hosts = {std::move(host)};
  policy.secrets = {secret};
  return policy;
}

TEST(NetworkPolicy, TlsToTheHostsOfASecretIsOpenedWhateverAllowsIt) {
  NetworkPolicy values = with_secret({{.hosts = {"**.example.com"}}}, "api.example.com");
  EXPECT_TRUE(inspects(values));
  const Policy policy = compiled(values);
  EXPECT_TRUE(inspects(policy, "api.example.com"));
  EXPECT_FALSE(inspects(policy, "www.example.com"));
  EXPECT_EQ(opened(policy, "api.example.com", "POST", "/any"), "allow match rule-1");
  EXPECT_EQ(opened(policy, "www.example.com", "GET", "/"), "deny protocol");
  EXPECT_EQ(policy->secrets_of(host("api.example.com")), std::vector<std::string>{"gh"});
  EXPECT_TRUE(policy->secrets_of(host("www.example.com")).empty());

  values = with_secret({}, "api.example.com");
  values.unmatched = NetworkDefault::kAllowPublic;
  const Policy by_default = compiled(values);
  EXPECT_TRUE(inspects(by_default, "api.example.com"));
  EXPECT_FALSE(inspects(by_default, "www.example.com"));
  EXPECT_EQ(opened(by_default, "api.example.com", "GET", "/"), "allow default");
}

TEST(NetworkPolicy, ASecretForAHostThatNothingReachesIsAMistake) {
  const auto fault = [](const NetworkPolicy& values) {
    const auto made = CompiledNetwork::compile(values);
    return made.has_value() ? "" : made.error().message();
  };
  const NetworkRule plain{.hosts = {"api.example.com"}, .tls = TlsMode::kPlaintext};
  EXPECT_TRUE(
      fault(with_secret({plain}, "api.example.com")).contains("network.secrets.gh.hosts[0]"));
  EXPECT_TRUE(fault(with_secret({}, "api.example.com")).contains("allows by TLS"));
  EXPECT_EQ(fault(with_secret({}, "*.example.com")), "");
  EXPECT_TRUE(fault(with_secret({}, "*.com")).contains("network.secrets.gh.hosts[0]"));
}

TEST(NetworkPolicy, AWebSocketByTlsNeedsARuleThatSaysSoToo) {
  const CompiledNetwork::Request upgrade{
      .method = "GET", .path = "/", .websocket = true, .tls = true};
  NetworkRule rule{.hosts = {"a.example.com"}, .tls = TlsMode::kInspect};
  EXPECT_EQ(said(compiled({rule})->request(host("a.example.com"), 443, upgrade)),
            "deny websocket rule-1");
  rule.websocket = true;
  EXPECT_EQ(said(compiled({rule})->request(host("a.example.com"), 443, upgrade)),
            "allow match rule-1");
}

TEST(NetworkPolicy, AParameterHidesNoPathThatIsDenied) {
  const Policy policy = compiled({{.hosts = {"a.example.com"}, .tls = TlsMode::kPlaintext},
                                  {.action = RuleAction::kDeny,
                                   .hosts = {"a.example.com"},
                                   .http = {{.paths = {"/secret/**"}}}}});
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/secret/x"), "deny deny_rule rule-2");
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/secret;a=1/x"), "deny deny_rule rule-2");
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/public;a=1"), "allow match rule-1");
}

TEST(NetworkPolicy, RequestsAreJudgedByMethodPathAndSize) {
  const Policy policy = compiled(
      {{.hosts = {"a.example.com"},
        .tls = TlsMode::kPlaintext,
        .http = {{.methods = {"GET", "HEAD"}, .paths = {"/repos/**"}},
                 {.methods = {"POST"}, .paths = {"/repos/*/{pulls,issues}"}, .max_body = 10}}}});
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/repos/a/b"), "allow match rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "GET", "/users"), "deny path rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "get", "/repos/a"), "deny method rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "DELETE", "/repos/a"), "deny method rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "POST", "/repos/a/issues", 10), "allow match rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "POST", "/repos/a/issues", 11),
            "deny body_size rule-1");
  EXPECT_EQ(request(policy, "a.example.com", "POST", "/repos/a/keys"), "deny path rule-1");
}

TEST(NetworkPolicy, AWebSocketNeedsARuleThatSaysSo) {
  const CompiledNetwork::Request upgrade{.method = "GET", .path = "/", .websocket = true};
  const Policy without = compiled({{.hosts = {"a.example.com"}, .tls = TlsMode::kPlaintext}});
  EXPECT_EQ(said(without->request(host("a.example.com"), 80, upgrade)), "deny websocket rule-1");
  const Policy with =
      compiled({{.hosts = {"a.example.com"}, .tls = TlsMode::kPlaintext, .websocket = true}});
  EXPECT_EQ(said(with->request(host("a.example.com"), 80, upgrade)), "allow match rule-1");
}

TEST(NetworkPolicy, ATcpRuleAllowsBytesOfAnyKind) {
  const Policy policy =
      compiled({{.hosts = {"db.example.com"}, .ports = {5432}, .protocol = RuleProtocol::kTcp}});
  EXPECT_EQ(said(policy->raw_connection(host("db.example.com"), 5432)), "allow match rule-1");
  EXPECT_EQ(said(policy->raw_connection(host("db.example.com"), 443)), "deny no_rule");
  EXPECT_EQ(said(policy->raw_connection(host("www.example.com"), 5432)), "deny no_rule");
  EXPECT_EQ(tls(policy, "db.example.com", 5432), "allow match rule-1");
}

TEST(NetworkPolicy, TheFloorKeepsWhatIsNotTheInternet) {
  const Policy policy = compiled({}, NetworkDefault::kAllowPublic);
  EXPECT_EQ(address(policy, "93.184.215.14"), "allow default");
  for (const char* kept : {"10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0",
                           "100.64.0.1", "224.0.0.1", "::1", "fd00::1", "fe80::1",
                           "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254"}) {
    EXPECT_EQ(address(policy, kept), "deny floor") << kept;
  }
  EXPECT_EQ(address(policy, "93.184.215.14", "", 443, true), "deny floor") << "this host's own";
}

TEST(NetworkPolicy, ARangeLiftsTheFloorForWhatItsRuleAllows) {
  const Policy policy = compiled({{.cidrs = {"10.20.0.0/24", "169.254.0.0/16"}, .ports = {5432}},
                                  {.hosts = {"192.168.1.1"}, .ports = {8443}},
                                  {.hosts = {"*.example.com"}, .ports = {5432}}},
                                 NetworkDefault::kAllowPublic);
  EXPECT_EQ(address(policy, "10.20.0.5", "rule-1"), "allow match rule-1");
  EXPECT_EQ(address(policy, "10.20.1.5", "rule-1"), "deny floor");
  EXPECT_EQ(address(policy, "192.168.1.1", "rule-2"), "allow match rule-2");
  // Not for what another rule or the default allows.
  EXPECT_EQ(address(policy, "10.20.0.5", "rule-3"), "deny floor");
  EXPECT_EQ(address(policy, "10.20.0.5"), "deny floor");
  // What a cloud gives its machines, the loopback and the host's own are named by themselves alone.
  EXPECT_EQ(address(policy, "169.254.1.1", "rule-1"), "allow match rule-1");
  EXPECT_EQ(address(policy, "169.254.169.254", "rule-1"), "deny floor");
  EXPECT_EQ(address(policy, "10.20.0.5", "rule-1", 5432, true), "deny floor");
  const Policy exact =
      compiled({{.cidrs = {"169.254.169.254/32", "127.0.0.1/32", "10.20.0.5"}, .ports = {80}}});
  EXPECT_EQ(address(exact, "169.254.169.254", "rule-1"), "allow match rule-1");
  EXPECT_EQ(address(exact, "127.0.0.1", "rule-1"), "allow match rule-1");
  EXPECT_EQ(address(exact, "10.20.0.5", "rule-1", 80, true), "allow match rule-1");
}

TEST(NetworkPolicy, ARangeOfEverythingLiftsNothing) {
  const Policy policy = compiled({{.cidrs = {"0.0.0.0/0", "::/0"}, .ports = {443}}});
  EXPECT_EQ(tls(policy, "93.184.215.14"), "allow match rule-1");
  for (const char* kept : {"10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00::1", "::1"}) {
    EXPECT_EQ(address(policy, kept, "rule-1"), "deny floor") << kept;
  }
}

TEST(NetworkPolicy, WhereNamesAreDeniedTheDefaultAllowsNamesAlone) {
  const Policy policy = compiled({{.action = RuleAction::kDeny, .hosts = {"**.example.org"}}},
                                 NetworkDefault::kAllowPublic);
  EXPECT_EQ(tls(policy, "example.com"), "allow default");
  EXPECT_EQ(tls(policy, "93.184.215.14"), "deny no_name");
  EXPECT_EQ(http(policy, "93.184.215.14"), "deny no_name");
  EXPECT_EQ(request(policy, "93.184.215.14", "GET", "/"), "deny no_name");
  EXPECT_EQ(said(policy->connection(host("example.com"), 22, ConnectionKind::kOther)),
            "deny no_name");
  const Policy ranges = compiled({{.action = RuleAction::kDeny, .cidrs = {"10.0.0.0/8"}}},
                                 NetworkDefault::kAllowPublic);
  EXPECT_EQ(tls(ranges, "93.184.215.14"), "allow default");
  EXPECT_EQ(said(ranges->connection(host("example.com"), 22, ConnectionKind::kOther)),
            "allow default");
}

TEST(NetworkPolicy, SaysHowLongABodyMayBe) {
  const Policy policy = compiled({{.hosts = {"a.example.com"},
                                   .tls = TlsMode::kPlaintext,
                                   .http = {{.methods = {"POST"}, .max_body = 10},
                                            {.paths = {"/large/**"}, .max_body = 100}}}});
  const CompiledNetwork::Request small{.method = "POST", .path = "/a"};
  EXPECT_EQ(policy->request(host("a.example.com"), 80, small).most_body, 10u);
  const CompiledNetwork::Request large{.method = "POST", .path = "/large/a"};
  EXPECT_EQ(policy->request(host("a.example.com"), 80, large).most_body, 100u);
  EXPECT_TRUE(policy->request(host("a.example.com"), 80, large).limits_methods);
}

TEST(NetworkPolicy, ADeniedRangeIsDeniedWhateverNameLedThere) {
  const Policy policy = compiled(
      {{.hosts = {"a.example.com"}}, {.action = RuleAction::kDeny, .cidrs = {"93.184.215.0/24"}}});
  EXPECT_EQ(tls(policy, "a.example.com"), "allow match rule-1");
  EXPECT_EQ(address(policy, "93.184.215.14"), "deny deny_rule rule-2");
}

TEST(NetworkPolicy, AllowPublicAllowsWhatNoRuleDenies) {
  const Policy policy = compiled({{.action = RuleAction::kDeny, .hosts = {"**.example.com"}}},
                                 NetworkDefault::kAllowPublic);
  EXPECT_EQ(tls(policy, "example.org"), "allow default");
  EXPECT_EQ(http(policy, "example.org", 8080), "allow default");
  EXPECT_EQ(tls(policy, "www.example.com"), "deny deny_rule rule-1");
  EXPECT_EQ(request(policy, "example.org", "DELETE", "/"), "allow default");
}

struct Case {
  std::function<void(NetworkPolicy&)> change;
  std::string key, found, allowed;
};

TEST(NetworkPolicy, RefusesWithKeyFoundAndAllowed) {
  const auto with_service = [](std::string name) {
    return [name](NetworkPolicy& policy) { policy.dns.services = {name}; };
  };
  const auto with = [](NetworkRule rule) {
    return [rule](NetworkPolicy& policy) { policy.rules = {rule}; };
  };
  const std::vector<Case> cases = {
      {with({}), "network.rules[0]", "neither hosts nor cidrs", "at least one"},
      {with({.id = "a b", .hosts = {"a.example.com"}}), "network.rules[0].id", "\"a b\"",
       "letters, digits"},
      {with({.hosts = {"*"}}), "network.rules[0].hosts[0]", "*", "allow-public"},
      {with({.hosts = {"a.example.com", "*.com"}}), "network.rules[0].hosts[1]", "*.com", ""},
      {with({.hosts = {"evil%00.example.com"}}), "network.rules[0].hosts[0]", "", ""},
      {with({.cidrs = {"10.0.0.1/8"}, .ports = {1}}), "network.rules[0].cidrs[0]", "10.0.0.1/8",
       "10.0.0.0/8"},
      {with({.cidrs = {"10.0.0.0/8"}}), "network.rules[0].ports", "nothing", "the ports"},
      {with({.hosts = {"a.example.com"}, .protocol = RuleProtocol::kTcp}), "network.rules[0].ports",
       "nothing", "the ports of a tcp rule"},
      {with({.hosts = {"a.example.com"}, .ports = {0}}), "network.rules[0].ports[0]",
       "the number 0", "1 to 65535"},
      {with({.hosts = {"a.example.com"}, .http = {{.methods = {"GET"}}}}), "network.rules[0].http",
       "a list", "not looked into"},
      {with({.hosts = {"a.example.com"}, .websocket = true}), "network.rules[0].websocket", "allow",
       "not looked into"},
      {with({.hosts = {"a.example.com"},
             .tls = TlsMode::kPlaintext,
             .http = {{.methods = {"GET /"}}}}),
       "network.rules[0].http[0].methods[0]", "\"GET /\"", "a method"},
      {with({.hosts = {"a.example.com"},
             .tls = TlsMode::kPlaintext,
             .http = {{.paths = {"repos"}}}}),
       "network.rules[0].http[0].paths[0]", "repos", ""},
      {with({.hosts = std::vector<std::string>(257, "a.example.com")}), "network.rules[0].hosts",
       "257 items", "at most 256"},
      {[](NetworkPolicy& policy) {
         policy.rules = {{.id = "a", .hosts = {"a.example.com"}},
                         {.id = "a", .hosts = {"b.example.com"}}};
       },
       "network.rules[1].id", "as another rule has it", "of its own"},
      {[](NetworkPolicy& policy) { policy.rules.assign(513, {.hosts = {"a.example.com"}}); },
       "network.rules", "513 rules", "at most 512"},
      {with({.action = static_cast<RuleAction>(2), .hosts = {"a.example.com"}}),
       "network.rules[0].action", "the number 2", "allow or deny"},
      {with(
           {.action = RuleAction::kDeny, .cidrs = {"10.0.0.0/8"}, .http = {{.methods = {"POST"}}}}),
       "network.rules[0].http", "beside cidrs", "hosts alone"},
      {with({.hosts = {"localhost"}, .ports = {8000}}), "network.rules[0]", "the loopback alone",
       "a name that leads there"},
      {with({.cidrs = {"127.0.0.1/32", "::1"}, .ports = {8000}}), "network.rules[0]",
       "the loopback alone", "another address"},
      {[](NetworkPolicy& policy) { policy.limits.connections = 1'000'000; },
       "network.limits.connections", "1000000", "1 to 65536"},
      {[](NetworkPolicy& policy) { policy.limits.rate_up = 0; }, "network.limits.rate_up", "0",
       "unlimited"},
      {[](NetworkPolicy& policy) { policy.dns.services.assign(65, "_a._tcp.example.com"); },
       "network.dns.services", "65 names", "at most 64"},
      {with_service("db.example.com"), "network.dns.services[0]", "\"db.example.com\"",
       "_mongodb._tcp.db.example.com"},
      {with_service("_db._tcp"), "network.dns.services[0]", "_db._tcp", "_mongodb._tcp"},
      {with_service("_db._tcp."), "network.dns.services[0]", "_db._tcp.", "whole"},
      {with_service("_db.tcp.example.com"), "network.dns.services[0]", "_db.tcp", "whole"},
      {with_service("_db._tcp.Example.com"), "network.dns.services[0]", "Example", "lower case"},
      {with_service("_db._tcp.example.com."), "network.dns.services[0]", "com.", "whole"},
      {with_service("_db._tcp.127.0.0.1"), "network.dns.services[0]", "127.0.0.1", "whole"},
      {with_service("_db._tcp.**.example.com"), "network.dns.services[0]", "**", "whole"},
      {[](NetworkPolicy& policy) { policy.dns.ttl = 0; }, "network.dns.ttl", "the number 0",
       "1 to 3600"},
  };
  for (const Case& wrong : cases) {
    NetworkPolicy policy;
    wrong.change(policy);
    const auto result = CompiledNetwork::compile(policy);
    ASSERT_FALSE(result.has_value()) << wrong.key << " " << wrong.found;
    const std::string message = result.error().message();
    EXPECT_TRUE(message.contains(wrong.key)) << message;
    EXPECT_TRUE(message.contains(wrong.found)) << message;
    EXPECT_TRUE(message.contains(wrong.allowed)) << message;
  }
}

}  // namespace
}  // namespace caisson::policy
