#include "api/e2b/new_sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/e2b/network.h"
#include "policy/host_name.h"
#include "policy/network_policy.h"

namespace caisson::api::e2b {
namespace {

constexpr Egress kNone, kPublic{.exists = true},
    kClosed{.exists = true, .usual = policy::NetworkDefault::kDeny};

Result<fleet::NewSandbox> parse(std::string_view text, Dialect dialect = Dialect::kV1,
                                const Egress& egress = kNone) {
  const Result<json::Value> body = json::parse(text);
  EXPECT_TRUE(body.has_value()) << text;
  if (!body.has_value()) return fail(body.error());
  return parse_new_sandbox(*body, dialect, egress);
}

// "CODE: message" of what is refused.
std::string refusal(std::string_view text, Dialect dialect = Dialect::kV1) {
  const Result<fleet::NewSandbox> wanted = parse(text, dialect);
  EXPECT_FALSE(wanted.has_value()) << text;
  if (wanted.has_value()) return "";
  return std::string(to_string(wanted.error().code())) + ": " + wanted.error().message();
}

TEST(NewSandboxTest, ATemplateMustBeNamed) {
  EXPECT_EQ(refusal("{}"),
            "invalid_argument: templateID: found nothing; allowed is a template's name or id");
  EXPECT_NE(refusal(R"({"templateID":""})"), "");
  EXPECT_NE(refusal(R"({"templateID":7})"), "");
}

TEST(NewSandboxTest, ATimeoutIsPositive) {
  EXPECT_EQ(refusal(R"({"templateID":"base","timeout":0})"),
            "invalid_argument: timeout: found 0; allowed is a whole number from 1 to 2147483647");
  EXPECT_EQ(parse(R"({"templateID":"base","timeout":1})")->timeout, std::chrono::seconds(1));
}

TEST(NewSandboxTest, TheNewDialectIsAlwaysSecure) {
  EXPECT_TRUE(parse(R"({"templateID":"base","secure":false})", Dialect::kV2)->secure);
  EXPECT_FALSE(parse(R"({"templateID":"base","secure":false})")->secure);
  EXPECT_TRUE(parse(R"({"templateID":"base","secure":true})")->secure);
}

TEST(NewSandboxTest, FieldsThatNobodyKnowsAreIgnored) {
  EXPECT_TRUE(parse(R"({"templateID":"base","of_the_future":{"x":1}})").has_value());
}

TEST(NewSandboxTest, APauseOfFilesAloneNeedsAPauseAndNoResumeByTraffic) {
  const auto wanted = parse(R"({"templateID":"base","autoPause":true,"autoPauseMemory":false})");
  ASSERT_TRUE(wanted.has_value());
  EXPECT_EQ(wanted->on_timeout_keeps, fleet::Keep::kFiles);
  EXPECT_EQ(refusal(R"({"templateID":"base","autoPauseMemory":false})"),
            "invalid_argument: autoPauseMemory: found false; allowed only together with autoPause");
  EXPECT_NE(refusal(R"({"templateID":"base","autoPause":true,"autoPauseMemory":false,
                        "autoResume":{"enabled":true}})"),
            "");
  EXPECT_EQ(refusal(R"({"templateID":"base","autoResume":{}})"),
            "invalid_argument: autoResume.enabled: found nothing; allowed is true or false");
}

TEST(NewSandboxTest, VariablesHaveNamesAndNoZeroBytes) {
  EXPECT_NE(refusal(R"({"templateID":"base","envVars":{"":"x"}})"), "");
  EXPECT_NE(refusal(R"({"templateID":"base","envVars":{"A=B":"x"}})"), "");
  EXPECT_NE(refusal(R"({"templateID":"base","envVars":{"A\u0000":"x"}})"), "");
  EXPECT_EQ(refusal(R"({"templateID":"base","envVars":{"A":"x\u0000"}})"),
            "invalid_argument: envVars.A: found a zero byte; allowed is text without any");
  EXPECT_EQ(refusal(R"({"templateID":"base","envVars":{"A":1}})"),
            "invalid_argument: envVars.A: found 1; allowed is a string");
}

TEST(NewSandboxTest, ClosedPortsNeedASecureSandbox) {
  const char* body = R"({"templateID":"base","network":{"allowPublicTraffic":false}})";
  EXPECT_NE(refusal(body), "");
  EXPECT_FALSE(parse(body, Dialect::kV2)->public_traffic);
}

TEST(NewSandboxTest, DeniedAreAddressesAlone) {
  EXPECT_TRUE(parse(R"({"templateID":"base","network":{
      "denyOut":["0.0.0.0/0","192.0.2.1","2001:db8::/32","::1"]}})")
                  .has_value());
  for (const char* entry : {"example.com", "192.0.2.1/33", "::1/129", "192.0.2.1/", "", "1.2.3"}) {
    EXPECT_NE(
        refusal(R"({"templateID":"base","network":{"denyOut":[")" + std::string(entry) + R"("]}})"),
        "")
        << entry;
  }
}

TEST(NewSandboxTest, AllowedDomainsWantAllElseDenied) {
  EXPECT_EQ(refusal(R"({"templateID":"base","network":{"allowOut":["*.example.com"]}})"),
            "invalid_argument: When specifying allowed domains in allow out, you must include "
            "'ALL_TRAFFIC' in deny out to block all other traffic.");
  EXPECT_EQ(refusal(R"({"templateID":"base","network":{"allowOut":["not a domain"]}})"),
            "invalid_argument: network.allowOut[0]: found \"not a domain\"; allowed is an address, "
            "a range of addresses, a domain or *.DOMAIN");
}

TEST(NewSandboxTest, AWayOutIsRefusedRatherThanLeftAway) {
  for (
      const char* network :
      {R"("network":{"allowOut":["192.0.2.1"]})",
       R"("network":{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"]})",
       R"("allow_internet_access":false,"network":{"allowOut":["example.com"]})",
       R"("network":{"rules":{"api.example.com:8443":[{"transform":{"headers":{"A":"b"}}}]}})",
       R"("network":{"egressProxy":{"address":"proxy.example.com:1080","username":"u","password":"p"}})"}) {
    EXPECT_TRUE(refusal(R"({"templateID":"base",)" + std::string(network) + "}")
                    .starts_with("unimplemented: network."))
        << network;
  }
  EXPECT_TRUE(
      parse(R"({"templateID":"base","network":{"egressProxy":null,"rules":{}}})").has_value());
  EXPECT_TRUE(parse(R"({"templateID":"base","allow_internet_access":true})").has_value());
}

// What an address or a name may do under the network that was asked for.
class Reach {
 public:
  explicit Reach(std::string_view fields, const Egress& egress = kPublic) {
    auto wanted =
        parse(R"({"templateID":"base",)" + std::string(fields) + "}", Dialect::kV1, egress);
    EXPECT_TRUE(wanted.has_value() && wanted->network.has_value()) << fields;
    policy::NetworkPolicy network = *wanted->network;
    network.floor = policy::Floor::kFixed;
    policy_ = policy::CompiledNetwork::compile(network).value();
  }
  bool operator()(std::string_view target, std::uint16_t port) const {
    const policy::Host host = policy::canonical_host(target).value();
    policy::NetworkDecision decision = policy_->raw_connection(host, port);
    for (const auto kind : {policy::ConnectionKind::kTls, policy::ConnectionKind::kHttp})
      if (!decision.allowed) decision = policy_->connection(host, port, kind);
    if (!decision.allowed || host.kind != policy::Host::Kind::kAddress) return decision.allowed;
    return policy_->address(host.address, port, false, decision).allowed;
  }

 private:
  std::shared_ptr<const policy::CompiledNetwork> policy_;
};

TEST(NewSandboxNetwork, AllOfTheInternetIsUsual) {
  const Reach reach(R"("secure":true)");
  EXPECT_TRUE(reach("1.1.1.1", 53));
  EXPECT_TRUE(reach("api.example.com", 443));
  EXPECT_FALSE(reach("10.0.0.1", 443));
  EXPECT_FALSE(reach("169.254.169.254", 80));
}

TEST(NewSandboxNetwork, TheOperatorMayCloseWhatNobodyAskedFor) {
  EXPECT_FALSE(Reach(R"("secure":true)", kClosed)("1.1.1.1", 443));
  EXPECT_FALSE(Reach(R"("allow_internet_access":true)", kClosed)("1.1.1.1", 443));
  EXPECT_TRUE(Reach(R"("network":{"denyOut":["8.8.8.8"]})", kClosed)("1.1.1.1", 443));
}

TEST(NewSandboxNetwork, WithoutTheInternetThereIsWhatIsAllowed) {
  for (const char* none : {R"("allow_internet_access":false,"network":{"allowOut":)",
                           R"("network":{"denyOut":["0.0.0.0/0"],"allowOut":)"}) {
    const Reach reach(std::string(none) +
                      R"(["1.1.1.1","192.0.8.0/21","a.example.com","*.b.example.com"]})");
    EXPECT_TRUE(reach("1.1.1.1", 853));
    EXPECT_TRUE(reach("192.0.9.1", 22));
    EXPECT_FALSE(reach("1.1.1.2", 443));
    EXPECT_FALSE(reach("[2606:4700::1]", 443));
    EXPECT_TRUE(reach("a.example.com", 443));
    EXPECT_TRUE(reach("a.example.com", 80));
    EXPECT_TRUE(reach("x.b.example.com", 443));
    EXPECT_FALSE(reach("b.example.com", 443));
    EXPECT_FALSE(reach("a.example.com", 22));
    EXPECT_FALSE(reach("c.example.com", 443));
  }
}

TEST(NewSandboxNetwork, WhatIsAllowedIsCutOutOfWhatIsDenied) {
  const Reach reach(R"("network":{"denyOut":["8.8.0.0/16","2001:4860::/32"],
                                  "allowOut":["8.8.8.8","8.8.4.0/24","2001:4860:4860::8888"]})");
  for (const char* open : {"1.1.1.1", "8.8.8.8", "8.8.4.4", "[2001:4860:4860::8888]", "8.9.0.0"})
    EXPECT_TRUE(reach(open, 443)) << open;
  for (const char* closed : {"8.8.0.0", "8.8.8.7", "8.8.8.9", "8.8.5.0", "8.8.255.255",
                             "[2001:4860:4860::8889]", "[2001:4860::1]"})
    EXPECT_FALSE(reach(closed, 443)) << closed;
}

TEST(NewSandboxNetwork, AnAddressInsideABlockMeansTheBlock) {
  EXPECT_FALSE(Reach(R"("network":{"denyOut":["8.8.8.8/16"]})")("8.8.1.1", 443));
  EXPECT_TRUE(Reach(R"("network":{"denyOut":["8.8.8.8/16"]})")("8.9.1.1", 443));
  EXPECT_FALSE(Reach(R"("network":{"denyOut":["::ffff:8.8.8.8/112"]})")("8.8.1.1", 443));
}

TEST(NewSandboxNetwork, AllInPiecesIsAll) {
  for (const char* pieces : {R"(["0.0.0.0/1","128.0.0.0/1"])", R"(["1.2.3.4/0"])",
                             R"(["128.0.0.0/1","64.0.0.0/2","0.0.0.0/2","8.8.8.8"])"}) {
    const Reach reach(R"("network":{"denyOut":)" + std::string(pieces) + "}");
    EXPECT_FALSE(reach("1.1.1.1", 443)) << pieces;
    EXPECT_FALSE(reach("[2606:4700::1]", 443)) << pieces;
  }
  EXPECT_TRUE(Reach(R"("network":{"denyOut":["128.0.0.0/1","0.0.0.0/2"]})")("64.1.1.1", 443));
}

TEST(NewSandboxNetwork, NothingLiftsTheFloor) {
  const Reach reach(
      R"("network":{"denyOut":["0.0.0.0/0"],"allowOut":["10.0.0.1","169.254.169.254","127.0.0.0/8"]})");
  EXPECT_FALSE(reach("10.0.0.1", 443));
  EXPECT_FALSE(reach("169.254.169.254", 80));
}

TEST(NewSandboxNetwork, ManyEntriesAreAsManyRulesAsTheyNeed) {
  std::string list;
  for (int i = 0; i < 600; ++i)
    list += (i == 0 ? "\"" : ",\"") + std::string("h") + std::to_string(i) + ".example.com\"";
  const Reach reach(R"("allow_internet_access":false,"network":{"allowOut":[)" + list + "]}");
  EXPECT_TRUE(reach("h0.example.com", 443));
  EXPECT_TRUE(reach("h599.example.com", 443));
  EXPECT_FALSE(reach("h600.example.com", 443));
}

TEST(NewSandboxNetwork, WhatCannotBeHeldIsRefused) {
  const auto refused = [](std::string_view network) {
    const auto wanted = parse(R"({"templateID":"base","network":)" + std::string(network) + "}",
                              Dialect::kV1, kPublic);
    return wanted.has_value() ? "" : wanted.error().message();
  };
  EXPECT_THAT(refused(R"({"denyOut":["0.0.0.0/0"],"allowOut":["*.com"]})"),
              testing::HasSubstr("network.allowOut[0]"));
  EXPECT_THAT(refused(R"({"denyOut":["::/1","0.0.0.0/1"],"allowOut":["1.1.1.1"]})"), "");
}

TEST(NewSandboxTest, RulesAreChecked) {
  const auto with = [](std::string_view rules) {
    return refusal(R"({"templateID":"base","network":{"rules":)" + std::string(rules) + "}}");
  };
  EXPECT_EQ(
      with(R"({"no domain":[]})"),
      "invalid_argument: network.rules: found the key \"no domain\"; allowed is a domain such "
      "as api.example.com");
  EXPECT_EQ(
      with(R"({"a.example.com":[{},{}]})"),
      "invalid_argument: network.rules[\"a.example.com\"]: found 2 items; allowed is at most 1");
  EXPECT_NE(with(R"({"a.example.com":[{"transform":{"headers":{"a b":"c"}}}]})"), "");
  EXPECT_NE(with(R"({"a.example.com":[{"transform":{"headers":{"a":"c\r\nd: e"}}}]})"), "");
  std::string headers, domains;
  for (int index = 0; index < 21; ++index) {
    headers += (index > 0 ? ",\"h" : "\"h") + std::to_string(index) + "\":\"v\"";
    domains += (index > 0 ? ",\"d" : "\"d") + std::to_string(index) + ".example.com\":[]";
  }
  EXPECT_NE(with(R"({"a.example.com":[{"transform":{"headers":{)" + headers + "}}}]}"), "");
  EXPECT_EQ(with("{" + domains + "}"),
            "invalid_argument: network.rules: found 21 domains; allowed is at most 10");
}

TEST(NewSandboxTest, AProxyHasAnAddressWithAPort) {
  for (const char* proxy :
       {"{}", R"({"address":"example.com"})", R"({"address":"example.com:x"})",
        R"({"address":"http://example.com:1"})", R"({"address":":1"})", R"({"address":7})",
        R"({"address":"10.0.0.1:1080"})", R"({"address":"[::1]:1080"})",
        R"({"address":"example.com:1","password":"p"})",
        R"({"address":"example.com:1","username":7})"}) {
    EXPECT_TRUE(
        refusal(R"({"templateID":"base","network":{"egressProxy":)" + std::string(proxy) + "}}")
            .starts_with("invalid_argument: network.egressProxy"))
        << proxy;
  }
}

TEST(NewSandboxNetwork, AProxyIsToldAgainWithoutItsPassword) {
  const auto body = json::parse(
      R"({"templateID":"base","network":{"egressProxy":
          {"address":"proxy.example.com:1080","username":"u","password":"pw CANARY"}}})");
  const auto wanted = parse_new_sandbox(*body, Dialect::kV2, kPublic);
  ASSERT_TRUE(wanted.has_value()) << wanted.error().message();
  EXPECT_THAT(
      wanted->network_fields,
      testing::HasSubstr(R"("egressProxy":{"address":"proxy.example.com:1080","username":"u"})"));
  EXPECT_THAT(wanted->network_fields, testing::Not(testing::HasSubstr("CANARY")));
  ASSERT_TRUE(wanted->network->upstream_proxy.has_value());
  const policy::UpstreamProxy& proxy = *wanted->network->upstream_proxy;
  EXPECT_EQ(proxy.address, "proxy.example.com:1080");
  ASSERT_EQ(wanted->secrets.size(), 1u);
  EXPECT_EQ(wanted->secrets[0].name, proxy.password->text);
  EXPECT_EQ(wanted->secrets[0].value->bytes(), "pw CANARY");
}

TEST(NewSandboxTest, AMaskIsAHost) {
  for (const char* mask :
       {"localhost", "localhost:${PORT}", "${PORT}.example.com", "127.0.0.1:80"}) {
    EXPECT_TRUE(parse(R"({"templateID":"base","network":{"maskRequestHost":")" + std::string(mask) +
                      R"("}})")
                    .has_value())
        << mask;
  }
  for (const char* mask : {"a b", "http://example.com", "a/b", "x:${PORT}${PORT}", "-x"}) {
    EXPECT_NE(refusal(R"({"templateID":"base","network":{"maskRequestHost":")" + std::string(mask) +
                      R"("}})"),
              "")
        << mask;
  }
}

TEST(NewSandboxTest, IdentitiesAndVolumesAreCheckedAndThenRefused) {
  EXPECT_NE(refusal(R"({"templateID":"base","iam":{"tokens":{"t":{"audience":"a",
                        "tokenType":"JWT"}}}})")
                .find("invalid_argument: iam.tokens.t.tokenType: found \"JWT\""),
            std::string::npos);
  EXPECT_TRUE(refusal(R"({"templateID":"base","iam":{"tokens":{"t":{"tokenType":"JWT-SVID"}}}})")
                  .starts_with("invalid_argument: iam.tokens.t.audience"));
  EXPECT_TRUE(refusal(R"({"templateID":"base","iam":{"tokens":{"a":{},"b":{},"c":{},"d":{},
                          "e":{},"f":{}}}})")
                  .starts_with("invalid_argument: iam.tokens: found 6 tokens"));
  EXPECT_TRUE(refusal(R"({"templateID":"base","iam":{"tokens":{"t":{"audience":"a",
                          "tokenType":"JWT-SVID"}}}})")
                  .starts_with("unimplemented: iam"));
  EXPECT_TRUE(refusal(R"({"templateID":"base","volumeMounts":[{"name":"v"}]})")
                  .starts_with("invalid_argument: volumeMounts[0].path"));
  EXPECT_TRUE(refusal(R"({"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]})")
                  .starts_with("unimplemented: volumeMounts"));
  EXPECT_TRUE(
      parse(R"({"templateID":"base","iam":{},"volumeMounts":[],"mcp":{"x":{}}})").has_value());
  EXPECT_NE(refusal(R"({"templateID":"base","mcp":7})"), "");
}

}  // namespace
}  // namespace caisson::api::e2b
