#include "policy/upstream_proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/document.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"

namespace caisson::policy {
namespace {

using testing::HasSubstr;

std::shared_ptr<const CompiledNetwork> compiled(const std::string& text) {
  return CompiledNetwork::compile(parse_network_policy(text, Format::kYaml).value()).value();
}

std::string refusal(const std::string& proxy) {
  const auto read = parse_network_policy("upstream_proxy: " + proxy, Format::kYaml);
  return read.has_value() ? "" : read.error().message();
}

IpAddress at(std::string_view text) {
  return IpAddress::parse(text).value();
}

TEST(UpstreamProxy, IsWrittenAsItWasRead) {
  const auto read = parse_network_policy(
      "upstream_proxy: {address: \"[2001:db8::1]:1080\", username: me, password: {env: PW}}",
      Format::kYaml);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(parse_written_network_policy(written(*read)).value(), *read);
  EXPECT_EQ(
      compiled("upstream_proxy: {address: \"Proxy.Example.com:1080\"}")->upstream_proxy()->text(),
      "proxy.example.com:1080");
}

TEST(UpstreamProxy, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("[]"), HasSubstr("upstream_proxy"));
  EXPECT_THAT(refusal("{}"), HasSubstr("upstream_proxy.address: found nothing"));
  for (const char* address : {"proxy.example.com", "proxy.example.com:0", "u@proxy.example.com:1",
                              "socks5://proxy.example.com:1", ":1080", "1.2.3:1080"})
    EXPECT_THAT(refusal("{address: \"" + std::string(address) + "\"}"),
                HasSubstr("HOST:PORT of a SOCKS5 proxy"))
        << address;
  EXPECT_THAT(refusal("{address: \"a.test:1\", scheme: http}"), HasSubstr("upstream_proxy.scheme"));
  EXPECT_THAT(refusal("{address: \"a.test:1\", password: {env: PW}}"),
              HasSubstr("a password without a username"));
  EXPECT_THAT(refusal("{address: \"a.test:1\", username: u, password: {env: \"1\"}}"),
              HasSubstr("upstream_proxy.password.env"));
  EXPECT_THAT(refusal("{address: \"a.test:1\", username: u, password: plain}"),
              HasSubstr("upstream_proxy.password"));
  EXPECT_THAT(refusal("{address: \"a.test:1\", username: " + std::string(256, 'u') + "}"),
              HasSubstr("upstream_proxy.username: found 256 bytes"));
}

TEST(UpstreamProxy, ItsPasswordIsForItsAddressAlone) {
  const UpstreamProxy proxy{.address = "a.test:1", .username = "u", .password = SecretSource()};
  NetworkPolicy policy;
  policy.upstream_proxy = proxy;
  const auto rules = rules_with_values(policy);
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_TRUE(is_proxy_password(rules[0]));
  EXPECT_EQ(key_of(rules[0]), "network.upstream_proxy.password");
  EXPECT_EQ(password_rule(proxy_of(rules[0])), rules[0]);
  policy.upstream_proxy->address = "b.test:1";
  EXPECT_NE(rules_with_values(policy)[0], rules[0]);
  policy.upstream_proxy->password.reset();
  EXPECT_TRUE(rules_with_values(policy).empty());
  EXPECT_TRUE(check_proxy_password("x").has_value());
  EXPECT_FALSE(check_proxy_password("").has_value());
  EXPECT_FALSE(check_proxy_password(std::string(256, 'x')).has_value());
}

TEST(UpstreamProxy, IsJudgedByTheFloor) {
  const auto by_name = compiled("upstream_proxy: {address: \"proxy.test:1\"}");
  const auto by_address = compiled("upstream_proxy: {address: \"127.0.0.1:1\"}");
  const auto fixed = compiled("{floor: fixed, upstream_proxy: {address: \"10.0.0.1:1\"}}");
  EXPECT_TRUE(by_name->allows_proxy_at(at("93.184.10.9"), false));
  EXPECT_FALSE(by_name->allows_proxy_at(at("93.184.10.9"), true));
  EXPECT_TRUE(by_name->allows_proxy_at(at("10.0.0.1"), false));
  for (const char* address : {"127.0.0.1", "169.254.169.254", "::1", "0.0.0.0", "169.254.1.1"})
    EXPECT_FALSE(by_name->allows_proxy_at(at(address), false)) << address;
  EXPECT_FALSE(by_name->allows_proxy_at(at("10.0.0.1"), true));
  EXPECT_TRUE(by_address->allows_proxy_at(at("127.0.0.1"), true));
  EXPECT_FALSE(by_address->allows_proxy_at(at("127.0.0.2"), true));
  EXPECT_FALSE(fixed->allows_proxy_at(at("10.0.0.1"), false));
  EXPECT_TRUE(fixed->allows_proxy_at(at("93.184.10.9"), false));
}

TEST(UpstreamProxy, ResolvesWhatARuleNamesWhereNoAddressIsDenied) {
  const NetworkDecision rule{.allowed = true, .reason = NetworkReason::kMatch, .rule = "r"};
  const NetworkDecision usual{.allowed = true, .reason = NetworkReason::kDefault};
  const std::string names = "{rules: [{hosts: [a.test]}, {action: deny, hosts: [b.test]}]}";
  EXPECT_TRUE(compiled(names)->proxy_resolves(rule));
  EXPECT_FALSE(compiled(names)->proxy_resolves(usual));
  for (const char* denied : {"cidrs: [\"192.0.2.0/24\"]", "hosts: [192.0.2.1]"})
    EXPECT_FALSE(
        compiled("{rules: [{hosts: [a.test]}, {action: deny, " + std::string(denied) + "}]}")
            ->proxy_resolves(rule));
}

}  // namespace
}  // namespace caisson::policy
