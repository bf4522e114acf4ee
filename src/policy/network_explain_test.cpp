#include "policy/network_explain.h"

#include <gtest/gtest.h>

#include "policy/network_document.h"

namespace caisson::policy {
namespace {

constexpr std::string_view kPolicy = R"(
version: 1
rules:
  - {id: api, hosts: [api.example.com]}
  - id: plain
    hosts: [plain.example.com]
    tls: plaintext
    http: [{methods: [GET], paths: ["/public/**"]}]
  - {id: read, hosts: [read.example.com], http: [{methods: [GET], paths: ["/public/**"]}]}
  - {id: db, hosts: [db.example.com], ports: [5432], proto: tcp}
  - {id: no-gist, action: deny, hosts: [gist.example.com]}
  - {id: keys, hosts: [keys.example.com]}
secrets:
  token: {source: {env: TOKEN}, hosts: [keys.example.com]}
)";

std::string explained(std::string_view url, std::string_view method = "GET") {
  const auto values = parse_network_policy(kPolicy, Format::kYaml);
  EXPECT_TRUE(values.has_value()) << values.error().message();
  const auto policy = CompiledNetwork::compile(*values);
  EXPECT_TRUE(policy.has_value());
  const auto explanation = explain(**policy, url, method);
  if (!explanation.has_value()) return explanation.error().message();
  return (explanation->decision.allowed ? "allowed: " : "denied: ") + explanation->sentence;
}

void expect_says(std::string_view url, std::string_view method, std::string_view begins,
                 std::string_view contains) {
  const std::string text = explained(url, method);
  EXPECT_TRUE(text.starts_with(begins)) << text;
  EXPECT_TRUE(text.contains(contains)) << text;
}

TEST(NetworkExplain, SaysByWhichRule) {
  expect_says("https://api.example.com/v1", "GET", "allowed: the rule api", "not looked at");
  expect_says("http://plain.example.com/public/a", "GET", "allowed: the rule plain",
              "GET /public/a");
  expect_says("tcp://db.example.com:5432", "GET", "allowed: the rule db", "TCP connection");
  expect_says("https://gist.example.com", "GET", "denied: the rule no-gist", "denies");
}

TEST(NetworkExplain, SaysWhatOfOpenedTlsIsAllowed) {
  expect_says("https://read.example.com/public/a?q", "GET",
              "allowed: the rule read allows GET /public/a of read.example.com:443",
              "opens the TLS connection and judges each request");
  expect_says("https://read.example.com/secret", "GET", "denied:", "the path /secret");
  expect_says("https://read.example.com/public/a", "POST", "denied:", "the method POST");
  expect_says("https://read.example.com:8443/", "GET", "denied:", "other ports than 8443");
  expect_says("http://read.example.com:443/", "GET", "denied:", "by TLS alone");
}

TEST(NetworkExplain, SaysWhichSecretsMayGoThere) {
  expect_says("https://keys.example.com/v1", "POST", "allowed: the rule keys allows POST /v1",
              "the secret token may go there");
}

TEST(NetworkExplain, SaysWhatIsMissing) {
  expect_says("https://www.example.com", "GET", "denied: no rule names www.example.com", "");
  expect_says("https://api.example.com:8443", "GET", "denied:", "other ports than 8443");
  expect_says("http://api.example.com:443/", "GET", "denied:", "by TLS alone");
  expect_says("http://plain.example.com/secret", "GET", "denied:", "the path /secret");
  expect_says("http://plain.example.com/public/../secret", "GET", "denied:", "the path /secret");
  expect_says("http://plain.example.com/public/a", "POST", "denied:", "the method POST");
  expect_says(
      "https:"
      "//169.254.169.254",
      "GET", "denied: no rule names 169.254.169.254", "");
}

TEST(NetworkExplain, RefusesWhatIsNoUrl) {
  expect_says("ftp://a.example.com", "GET", "URL: found", "HOST[:PORT]");
  expect_says("tcp://a.example.com", "GET", "URL: found", "tcp://HOST:PORT");
  expect_says(
      "https:"
      "//2130706433",
      "GET", "", "2130706433");
}

}  // namespace
}  // namespace caisson::policy
