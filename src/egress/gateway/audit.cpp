#include "egress/gateway/audit.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/json.h"
#include "base/sha256.h"
#include "base/time_text.h"
#include "egress/audit_chain.h"

namespace caisson::egress {
namespace {

constexpr std::size_t kMostText = 255;
constexpr std::array<std::string_view, 10> kKindNames = {
    "dns", "tcp", "tls", "http", "policy_update", "limit", "begin", "end", "secret_violation",
    "seal"};

std::string_view cut(std::string_view text) {
  return text.substr(0, kMostText);
}

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

void set_text(json::Value& line, std::string_view key, std::string_view text) {
  if (!text.empty()) line.set(key, cut(text));
}

std::size_t named_of(const AuditRecord& record) {
  return std::min(record.secrets.size(), kMostAuditSecrets);
}

json::Value secrets_of(const AuditRecord& record) {
  json::Value list = json::Value::array();
  for (const AuditRecord::SecretPart& part : std::span(record.secrets).first(named_of(record))) {
    json::Value item = json::Value::object();
    set_text(item, "name", part.name);
    set_text(item, "where", part.where);
    if (part.count != 0) item.set("n", part.count);
    list.push(std::move(item));
  }
  return list;
}

}  // namespace

std::string_view to_string(AuditKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

std::string audit_line(const AuditRecord& record, std::string_view sandbox, std::uint64_t revision,
                       std::chrono::system_clock::time_point now) {
  json::Value line = json::Value::object();
  line.set("ts", time_text(now)).set("v", 2).set("sandbox", sandbox).set("rev", revision);
  line.set("kind", to_string(record.kind));
  const bool decides = record.kind != AuditKind::kBegin && record.kind != AuditKind::kEnd &&
                       record.kind != AuditKind::kSeal;
  if (decides) line.set("decision", record.allowed ? "allow" : "deny");
  set_text(line, "rule", record.rule);
  set_text(line, "reason", record.reason);
  set_text(line, "host", record.host);
  if (record.port != 0) line.set("port", record.port);
  set_text(line, "dst", record.destination);
  set_text(line, "upstream", record.upstream);
  set_text(line, "proto", record.proto);
  set_text(line, "method", record.method);
  set_text(line, "path", record.path);
  if (!record.query.empty()) line.set("query_sha256", digest(record.query));
  if (record.status != 0) line.set("status", record.status);
  const bool passed = record.bytes_up != 0 || record.bytes_down != 0;
  if (passed) line.set("bytes_up", record.bytes_up).set("bytes_down", record.bytes_down);
  if (record.time.count() != 0) line.set("ms", record.time.count());
  set_text(line, "tls", record.tls);
  if (!record.secrets.empty()) line.set("secrets", secrets_of(record));
  if (const std::size_t more = record.secrets.size() - named_of(record); more > 0)
    line.set("secrets_left_out", more);
  if (record.scrubbed != 0) line.set("scrubbed", record.scrubbed);
  if (record.hides_name) line.set("ech", true);
  set_text(line, "detail", record.detail);
  return json::serialize(line) + "\n";
}

void add_to_report(const AuditRecord& record, Report& report) {
  // What the gateway says of itself.
  if (record.kind == AuditKind::kLimit && record.reason == kRecordsReason) return;
  if (record.allowed) {
    if (record.kind != AuditKind::kPolicyUpdate) ++report.connections;
    return;
  }
  std::string target = record.host.empty() ? record.destination : record.host;
  if (record.port != 0 && !record.host.empty()) target += ":" + std::to_string(record.port);
  if (!record.method.empty()) target = record.method + " " + target + record.path;
  add_refusal(report, target,
              record.detail.empty() ? record.reason : record.reason + ": " + record.detail);
}

}  // namespace caisson::egress
