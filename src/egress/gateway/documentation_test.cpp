// docs/network.md says what the program says: its tables have every key of a policy, every reason
// and every field of a record, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "egress/audit_chain.h"
#include "egress/gateway/audit.h"
#include "egress/reasons.h"
#include "egress/secrets/substitute.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"

namespace caisson::egress {
namespace {

using testing::ContainerEq;
using Words = std::vector<std::string>;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lines of the table between <!-- NAME: begin --> and <!-- NAME: end -->, without its head.
std::string table(const std::string& name) {
  const std::string text = contents(CAISSON_NETWORK_DOCUMENT);
  const std::string begin = "<!-- " + name + ": begin -->", head = "---|\n";
  std::size_t from = text.find(begin);
  from = text.find(head, from) + head.size();
  const std::size_t end = text.find("\n<!-- " + name + ": end -->");
  EXPECT_TRUE(from != std::string::npos && end != std::string::npos && from < end) << name;
  return text.substr(from, end - from);
}

// What stands in backticks in the first column of a table.
Words first_column(const std::string& name) {
  const std::string text = table(name);
  Words words;
  static const std::regex row("(^|\n)\\|([^|\n]*)\\|"), word("`([^`]+)`");
  for (std::sregex_iterator line(text.begin(), text.end(), row), none; line != none; ++line) {
    const std::string cell = (*line)[2];
    for (std::sregex_iterator at(cell.begin(), cell.end(), word); at != none; ++at)
      words.push_back((*at)[1]);
  }
  return words;
}

void collect_keys(const json::Value& value, const std::string& path, std::set<std::string>& keys) {
  if (const auto* members = value.as_object()) {
    for (const json::Member& member : *members)
      collect_keys(member.value, path.empty() ? member.key : path + "." + member.key, keys);
    return;
  }
  keys.insert(path);
  const auto* items = value.as_array();
  if (items != nullptr && !items->empty() && items->front().as_object() != nullptr)
    collect_keys(items->front(), path + "[]", keys);
}

TEST(NetworkDocumentation, HasEveryKeyOfAPolicy) {
  const auto policy = policy::parse_network_policy(R"(
dns: {services: [_db._tcp.example.com]}
upstream_proxy: {address: "proxy.example.com:1080", username: me}
audit: {fsync: none, segment: 1MiB}
rules:
  - id: a
    hosts: [a.example.com]
    cidrs: [10.0.0.0/8]
    ports: [80]
    tls: plaintext
    http: [{methods: [GET], paths: [/a], max_body: 1}]
)",
                                                   policy::Format::kYaml);
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  // What is read and never written, and a source as a secret has it.
  std::set<std::string> keys = {"version", "upstream_proxy.password"};
  collect_keys(policy::network_tree(*policy), "", keys);
  const Words documented = first_column("keys");
  EXPECT_THAT(std::set<std::string>(documented.begin(), documented.end()), ContainerEq(keys));
}

TEST(NetworkDocumentation, HasEveryKeyOfASecret) {
  const auto policy = policy::parse_network_policy(R"(
rules: [{hosts: [a.example.com]}]
secrets:
  a: {env: A, source: {env: A}, hosts: [a.example.com], in: [path], passthrough: [b.example.com]}
  b: {source: {env: A}, hosts: [a.example.com], inject: {header: x-key}}
  c: {kind: sigv4, access_key: {env: A}, secret_key: {env: A}, session_token: {env: A}, hosts: [a.example.com], services: [s], regions: [r]}
)",
                                                   policy::Format::kYaml);
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  std::set<std::string> keys;
  const json::Value tree = policy::network_tree(*policy);
  for (const json::Member& secret : *tree.find("secrets")->as_object()) {
    for (const json::Member& member : *secret.value.as_object()) keys.insert(member.key);
  }
  const Words documented = first_column("secrets");
  EXPECT_THAT(std::set<std::string>(documented.begin(), documented.end()), ContainerEq(keys));
}

TEST(NetworkDocumentation, HasEveryReason) {
  std::string expected;
  for (const Reason& reason : reasons())
    expected += "| `" + std::string(reason.word) + "` | " + std::string(reason.meaning) + " |\n";
  EXPECT_EQ(table("reasons"), expected);
}

TEST(NetworkDocumentation, EveryReasonOfThePolicyHasAMeaning) {
  std::size_t index = 0;
  for (auto reason = policy::NetworkReason::kMatch; reason <= policy::NetworkReason::kFloor;
       reason = static_cast<policy::NetworkReason>(static_cast<int>(reason) + 1))
    EXPECT_EQ(reasons()[index++].word, policy::to_string(reason));
  EXPECT_EQ(meaning_of("floor"), reasons()[index - 1].meaning);
  for (auto fault = SecretFault::kRevoked; fault <= SecretFault::kSignedBody;
       fault = static_cast<SecretFault>(static_cast<int>(fault) + 1))
    EXPECT_NE(meaning_of("secret_" + std::string(to_string(fault))), "") << to_string(fault);
  EXPECT_EQ(meaning_of("no such reason"), "");
}

TEST(NetworkDocumentation, EveryReasonInTheGatewaysSourcesHasAMeaning) {
  std::set<std::string> found;
  static const std::regex word("\"([a-z_]+)\"");
  for (const auto& entry : std::filesystem::directory_iterator(CAISSON_GATEWAY_SOURCES)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".cpp") || name.ends_with("_test.cpp")) continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (!line.contains("reason = ")) continue;
      for (std::sregex_iterator at(line.begin(), line.end(), word), none; at != none; ++at)
        found.insert((*at)[1]);
    }
  }
  EXPECT_TRUE(found.contains("timeout") && found.contains("bad_hello"));
  for (const std::string& reason : found) EXPECT_NE(meaning_of(reason), "") << reason;
}

TEST(NetworkDocumentation, HasEveryFieldOfARecord) {
  const AuditRecord record{
      .kind = AuditKind::kHttp,
      .reason = "a",
      .rule = "a",
      .host = "a",
      .port = 1,
      .destination = "a",
      .upstream = "a",
      .proto = "h2",
      .method = "a",
      .path = "a",
      .query = "?a",
      .status = 1,
      .bytes_up = 1,
      .bytes_down = 1,
      .time = std::chrono::milliseconds(1),
      .tls = "inspect",
      .hides_name = true,
      .secrets = std::vector<AuditRecord::SecretPart>(kMostAuditSecrets + 1, {"a", "a", 1}),
      .scrubbed = 1,
      .detail = "a"};
  AuditChain chain =
      std::move(AuditChain::create(AuditChainKey::of("key", AuditChainKey::new_id()), {}, "torn"))
          .value();
  chain.lose();
  const auto line = json::parse(std::string_view(chain.next(audit_line(record, "a", 1, {}))));
  ASSERT_TRUE(line.has_value());
  Words fields;
  for (const json::Member& member : *line->as_object()) fields.push_back(member.key);
  EXPECT_THAT(first_column("fields"), ContainerEq(fields));
}

}  // namespace
}  // namespace caisson::egress
