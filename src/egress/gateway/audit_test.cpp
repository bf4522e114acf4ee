#include "egress/gateway/audit.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "egress/audit_chain.h"
#include "egress/audit_entry.h"

namespace caisson::egress {
namespace {

constexpr auto kTime = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));

json::Value line_of(const AuditRecord& record) {
  const std::string line = audit_line(record, "sb1", 7, kTime);
  EXPECT_TRUE(line.ends_with("\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  auto value = json::parse(line);
  EXPECT_TRUE(value.has_value()) << line;
  return std::move(*value);
}

std::string text(const json::Value& line, std::string_view key) {
  const json::Value* value = line.find(key);
  return value == nullptr ? "(none)" : json::serialize(*value);
}

TEST(Audit, ARecordIsOneLine) {
  const json::Value line = line_of({.kind = AuditKind::kHttp,
                                    .allowed = true,
                                    .reason = "match",
                                    .rule = "api",
                                    .host = "api.example.com",
                                    .port = 80,
                                    .destination = "198.18.0.9:80",
                                    .upstream = "192.0.2.1:80",
                                    .method = "GET",
                                    .path = "/v1",
                                    .status = 201,
                                    .bytes_up = 812,
                                    .bytes_down = 3021,
                                    .time = std::chrono::milliseconds(143)});
  EXPECT_EQ(json::serialize(line),
            R"({"ts":"2023-11-14T22:13:20.000000Z","v":2,"sandbox":"sb1","rev":7,)"
            R"("kind":"http","decision":"allow","rule":"api","reason":"match",)"
            R"("host":"api.example.com","port":80,"dst":"198.18.0.9:80",)"
            R"("upstream":"192.0.2.1:80","method":"GET","path":"/v1","status":201,)"
            R"("bytes_up":812,"bytes_down":3021,"ms":143})");
}

TEST(Audit, SaysWhatWasDoneWithTls) {
  EXPECT_EQ(text(line_of({.kind = AuditKind::kHttp, .tls = "inspect"}), "tls"), "\"inspect\"");
  EXPECT_EQ(text(line_of({.kind = AuditKind::kHttp}), "tls"), "(none)");
}

TEST(Audit, AQueryIsNeverWritten) {
  const AuditRecord record{.kind = AuditKind::kHttp, .path = "/a", .query = "?token=geheim"};
  const std::string line = audit_line(record, "sb1", 1, kTime);
  EXPECT_FALSE(line.contains("geheim"));
  EXPECT_EQ(text(line_of(record), "query_sha256").size(), 66u);
}

TEST(Audit, ARecordWithManySecretsIsReadAgain) {
  AuditRecord record{.kind = AuditKind::kSecretViolation};
  for (int use = 0; use < 64; ++use)
    record.secrets.push_back({std::string(64, 'n'), "json:/" + std::string(200, 'p'), 1});
  AuditChain chain =
      std::move(AuditChain::create(AuditChainKey::of("key", AuditChainKey::new_id()), {})).value();
  std::string line = chain.next(audit_line(record, "sb1", 1, kTime));
  ASSERT_TRUE(line.ends_with("\n"));
  line.pop_back();
  const auto entry = parse_audit_line(line);
  EXPECT_TRUE(entry.has_value()) << entry.error().message();
}

TEST(Audit, ManySecretsAreNamedUpToABound) {
  AuditRecord record{.kind = AuditKind::kHttp};
  // The longest that there can be.
  const std::string long_text(1000, '\x01');
  record.secrets.assign(100, {long_text, long_text, 64});
  const json::Value line = line_of(record);
  EXPECT_EQ(line.find("secrets")->as_array()->size(), kMostAuditSecrets);
  EXPECT_EQ(text(line, "secrets_left_out"), std::to_string(100 - kMostAuditSecrets));
  for (std::string* part : {&record.host, &record.rule, &record.path, &record.method,
                            &record.destination, &record.upstream, &record.detail, &record.reason})
    *part = long_text;
  EXPECT_LT(audit_line(record, "sb1", 1, kTime).size(), 2 * kMostAuditLine / 3);
  record.secrets.resize(1);
  EXPECT_EQ(text(line_of(record), "secrets_left_out"), "(none)");
}

TEST(Audit, WhatASandboxChoseIsCutAndEscaped) {
  const json::Value line =
      line_of({.host = "a\nb\x1b[0m", .path = std::string(10'000, 'x'), .detail = "\xff"});
  EXPECT_EQ(text(line, "host"), "\"a\\nb\\u001b[0m\"");
  EXPECT_EQ(text(line, "path").size(), 257u);
}

TEST(Audit, TheReportCountsWhatWasLetThroughAndSaysWhatWasNot) {
  Report report;
  add_to_report({.kind = AuditKind::kTls, .allowed = true}, report);
  add_to_report({.kind = AuditKind::kPolicyUpdate, .allowed = true}, report);
  for (int i = 0; i < 2; ++i) {
    add_to_report(
        {.kind = AuditKind::kTls, .reason = "no_rule", .host = "b.example.com", .port = 443},
        report);
  }
  add_to_report({.kind = AuditKind::kHttp,
                 .reason = "path",
                 .host = "c.example.com",
                 .port = 80,
                 .method = "GET",
                 .path = "/x",
                 .detail = "why"},
                report);
  add_to_report({.reason = "unknown_address", .destination = "198.18.0.9:443"}, report);
  EXPECT_EQ(report.connections, 1u);
  EXPECT_EQ(report.refused, 4u);
  ASSERT_EQ(report.refusals.size(), 3u);
  EXPECT_EQ(report.refusals[0].target, "b.example.com:443");
  EXPECT_EQ(report.refusals[0].count, 2u);
  EXPECT_EQ(report.refusals[1].target, "GET c.example.com:80/x");
  EXPECT_EQ(report.refusals[1].reason, "path: why");
  EXPECT_EQ(report.refusals[2].target, "198.18.0.9:443");
}

}  // namespace
}  // namespace caisson::egress
