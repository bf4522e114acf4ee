#include "api/e2b/new_sandbox.h"

#include <gtest/gtest.h>

#include "api/e2b/network.h"

namespace caisson::api::e2b {
namespace {

Result<fleet::NewSandbox> parse(std::string_view text, Dialect dialect = Dialect::kV1) {
  const Result<json::Value> body = json::parse(text);
  EXPECT_TRUE(body.has_value()) << text;
  if (!body.has_value()) return fail(body.error());
  return parse_new_sandbox(*body, dialect);
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
  for (const char* network :
       {R"("network":{"allowOut":["192.0.2.1"]})",
        R"("network":{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"]})",
        R"("allow_internet_access":false,"network":{"allowOut":["example.com"]})",
        R"("network":{"rules":{"api.example.com:8443":[{"transform":{"headers":{"A":"b"}}}]}})",
        R"("network":{"egressProxy":{"address":"proxy.example.com:1080","password":"p"}})"}) {
    EXPECT_TRUE(refusal(R"({"templateID":"base",)" + std::string(network) + "}")
                    .starts_with("unimplemented: network."))
        << network;
  }
  EXPECT_TRUE(
      parse(R"({"templateID":"base","network":{"egressProxy":null,"rules":{}}})").has_value());
  EXPECT_TRUE(parse(R"({"templateID":"base","allow_internet_access":true})").has_value());
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
        R"({"address":"http://example.com:1"})", R"({"address":":1"})", R"({"address":7})"}) {
    EXPECT_TRUE(
        refusal(R"({"templateID":"base","network":{"egressProxy":)" + std::string(proxy) + "}}")
            .starts_with("invalid_argument: network.egressProxy"))
        << proxy;
  }
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
