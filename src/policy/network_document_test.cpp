#include "policy/network_document.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policy/names.h"

namespace caisson::policy {
namespace {

constexpr std::string_view kWhole = R"(version: 1
default: allow-public
dns: {unmatched: nodata, ttl: 60}
limits: {connections: 10, connections_per_second: unlimited, dns_per_second: 5/s, bytes_up: 1GiB,
         bytes_down: 2GiB, rate_up: 1MiB/s, rate_down: 2MiB, idle: 1m}
rules:
  - id: api
    hosts: [api.example.com, "*.example.org"]
    ports: [80, 8080]
    tls: plaintext
    http:
      - {methods: [GET], paths: ["/a/**"], max_body: 1KiB}
    websocket: allow
  - {action: deny, cidrs: [10.0.0.0/8]}
  - {hosts: [db.example.com], ports: [5432], proto: tcp}
)";

NetworkPolicy whole() {
  NetworkPolicy policy;
  policy.unmatched = NetworkDefault::kAllowPublic;
  policy.dns = {.unmatched = UnmatchedName::kNodata, .ttl = 60};
  policy.limits = {.connections = 10,
                   .connections_per_second = std::nullopt,
                   .dns_per_second = 5,
                   .bytes_up = 1ull << 30,
                   .bytes_down = 2ull << 30,
                   .rate_up = 1ull << 20,
                   .rate_down = 2ull << 20,
                   .idle_ms = 60'000};
  policy.rules = {{.id = "api",
                   .hosts = {"api.example.com", "*.example.org"},
                   .ports = {80, 8080},
                   .tls = TlsMode::kPlaintext,
                   .http = {{.methods = {"GET"}, .paths = {"/a/**"}, .max_body = 1024}},
                   .websocket = true},
                  {.action = RuleAction::kDeny, .cidrs = {"10.0.0.0/8"}},
                  {.hosts = {"db.example.com"}, .ports = {5432}, .protocol = RuleProtocol::kTcp}};
  return policy;
}

TEST(NetworkDocument, ReadsEveryKey) {
  const auto read = parse_network_policy(kWhole, Format::kYaml);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, whole());
}

TEST(NetworkDocument, WhatIsWrittenIsReadAgainAsTheSame) {
  for (const NetworkPolicy& policy : {whole(), NetworkPolicy()}) {
    const auto read = parse_network_policy(json::serialize(network_tree(policy)), Format::kJson);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(*read, policy);
  }
}

TEST(NetworkDocument, WhatIsSaidOfRequestsMeansThatTlsIsOpened) {
  const auto mode = [](const std::string& rest) {
    const auto read = parse_network_policy(
        "rules: [{hosts: [a.example.com]" + rest + "}, {hosts: [b.example.com]}]", Format::kYaml);
    if (!read.has_value()) return read.error().message();
    EXPECT_EQ(read->rules[1].tls, TlsMode::kSplice);
    return std::string(kTlsModeNames[static_cast<std::size_t>(read->rules[0].tls)]);
  };
  EXPECT_EQ(mode(""), "splice");
  EXPECT_EQ(mode(", tls: inspect"), "inspect");
  EXPECT_EQ(mode(", http: [{methods: [GET]}]"), "inspect");
  EXPECT_EQ(mode(", websocket: allow"), "inspect");
  EXPECT_EQ(mode(", http: [{methods: [GET]}], tls: plaintext"), "plaintext");
  EXPECT_EQ(mode(", http: [{methods: [GET]}], action: deny"), "splice");
}

TEST(NetworkDocument, HasSecretsAndWritesThemAgain) {
  constexpr std::string_view kText = R"(
rules: [{hosts: [api.example.com]}]
secrets:
  gh: {env: GH_TOKEN, source: {file: /run/token}, shape: "prefix:ghp_", hosts: [api.example.com],
       in: [{header: authorization}]}
)";
  const auto read = parse_network_policy(kText, Format::kYaml);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  ASSERT_EQ(read->secrets.size(), 1u);
  EXPECT_EQ(read->secrets[0].env, "GH_TOKEN");
  const auto again = parse_written_network_policy(json::serialize(network_tree(*read)));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, *read);
}

TEST(NetworkDocument, MayBeBelowTheKeyThatASpecHas) {
  const auto read =
      parse_network_policy("network: {rules: [{hosts: [a.example.com]}]}", Format::kYaml);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->rules.size(), 1u);
}

struct Case {
  std::string text, key, allowed;
};

TEST(NetworkDocument, RefusesWithKeyAndWhatIsAllowed) {
  const std::vector<Case> cases = {
      {"", "network policy", "a mapping"},
      {"[1]", "network policy", "deny, allow-public"},
      {"rule: []", "rule", "perhaps rules"},
      {"version: 2", "version", "allowed is 1"},
      {"default: allow", "default", "deny or allow-public"},
      {"dns: {ttl: 0}", "dns.ttl", "1 to 3600"},
      {"dns: {services: _db._tcp.example.com}", "dns.services", "[_mongodb._tcp"},
      {"dns: {services: [db.example.com]}", "dns.services[0]", "_mongodb._tcp"},
      {"dns: {service: []}", "dns.service", "services"},
      {"dns: {unmatched: nxdomain}", "dns.unmatched", "synthetic, nodata or refused"},
      {"limits: {connections: 0}", "limits.connections", ""},
      {"limits: {speed: 1}", "limits.speed", "rate_up"},
      {"secrets: [gh]", "secrets", "a mapping"},
      {"secrets: {gh: {hosts: [a.example.com]}}", "secrets.gh.source", "variable"},
      {"rules: {}", "rules", "a list"},
      {"rules: [1]", "rules[0]", "a rule such as"},
      {"rules: [{host: a}]", "rules[0].host", "perhaps hosts"},
      {"rules: [{hosts: a}]", "rules[0].hosts", "a list"},
      {"rules: [{hosts: [a.example.com], tls: open}]", "rules[0].tls",
       "splice, plaintext or inspect"},
      {"rules: [{hosts: [a.example.com], tls: splice, http: [{methods: [GET]}]}]", "rules[0].http",
       "tls: splice"},
      {"rules: [{hosts: [a.example.com], proto: udp}]", "rules[0].proto", "http or tcp"},
      {"rules: [{hosts: [a.example.com], ports: [443, https]}]", "rules[0].ports[1]", "1 to 65535"},
      {"rules: [{hosts: [a.example.com], ports: [0443]}]", "rules[0].ports[0]", "1 to 65535"},
      {"rules: [{hosts: [a.example.com], http: [{method: [GET]}]}]", "rules[0].http[0].method",
       "perhaps methods"},
      {"rules: [{hosts: [a.example.com], websocket: yes}]", "rules[0].websocket", "allow or deny"},
      {"rules: [{hosts: [\"*\"]}]", "rules[0].hosts[0]", "allow-public"},
  };
  for (const Case& wrong : cases) {
    const auto read = parse_network_policy(wrong.text, Format::kYaml);
    ASSERT_FALSE(read.has_value()) << wrong.text;
    EXPECT_TRUE(read.error().message().contains(wrong.key)) << read.error().message();
    EXPECT_TRUE(read.error().message().contains(wrong.allowed)) << read.error().message();
  }
}

}  // namespace
}  // namespace caisson::policy
