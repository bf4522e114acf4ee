// What the gateway decided, one JSON object a line: a record for each decision, with its reason.
//
// No record ever holds a header, a body or a query string: queries may be secrets, so their SHA-256
// stands there. What a sandbox chose (names, paths) is cut, and its control bytes are escaped.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/report.h"

namespace caisson::egress {

// kBegin and kEnd are the first and the last record of a run, kSeal stands between (audit_chain.h);
// they are no decisions.
enum class AuditKind : std::uint8_t {
  kDns,
  kTcp,
  kTls,
  kHttp,
  kPolicyUpdate,
  kLimit,
  kBegin,
  kEnd,
  kSecretViolation,
  kSeal
};
std::string_view to_string(AuditKind kind);

// Of a record that counts others that were not written.
inline constexpr std::string_view kRecordsReason = "records";

struct AuditRecord {
  AuditKind kind = AuditKind::kTcp;
  bool allowed = false;
  std::string reason;       // of policy::to_string(NetworkReason), or a word of the gateway's own
  std::string rule;         // its id; empty: none
  std::string host;         // canonical; or what was asked for, where it is no name
  std::uint16_t port = 0;   // 0: none, as of a name that was asked for
  std::string destination;  // the address that the sandbox connected to
  std::string upstream;     // the address that was dialed
  std::string_view proto = {};  // of a request of HTTP/2: "h2"
  std::string method, path;     // of HTTP
  std::string query;            // with its question mark; its digest is written
  int status = 0;               // of the answer; 0: none
  std::uint64_t bytes_up = 0, bytes_down = 0;
  std::chrono::milliseconds time{};
  std::string_view tls = {};  // what was done with TLS: "splice" or "inspect"; empty: there is none
  bool hides_name = false;    // a TLS hello that may hold another name for the server alone (ECH)
  // Of secrets that went into the request, or of the one that kept it back (count 0).
  struct SecretPart {
    std::string name, where;
    std::size_t count = 0;
  };
  std::vector<SecretPart> secrets = {};
  std::size_t scrubbed = 0;  // how often the answer had a secret's value
  std::string detail;        // a sentence, where something went wrong
};

// "{…}\n", to which audit_chain.h adds a number and a hash.
std::string audit_line(const AuditRecord& record, std::string_view sandbox, std::uint64_t revision,
                       std::chrono::system_clock::time_point now);

// Counts it: what was let through, and what was not, with the reason.
void add_to_report(const AuditRecord& record, Report& report);

}  // namespace caisson::egress
