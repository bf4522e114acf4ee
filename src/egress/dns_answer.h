// What the gateway's stub server answers to a query, and why. A query is answered by what is known
// here alone: nothing leaves the host because of a name that a sandbox asks for, so that a question
// carries nothing out. Which server a name really leads to is looked up when a connection is
// allowed.
//
// In short: a name gets its synthetic addresses (name_table.h), denied or not, so that a program
// meets a readable denial at the connection instead of a name that does not exist; every other type
// has no records (no HTTPS record means no key to hide a name from the gateway with); names that
// exist in no public DNS do not exist; `localhost` is the sandbox itself. The one question that is
// asked outside is for SRV records of a name that the policy has as a whole: what a program chooses
// is not in it.
//
// dns_decision() decides and dns_answer() writes, so that a way to answer with other addresses
// (real ones, looked up for it) takes the place of the first alone: it hands a decision with these
// addresses to the second. Pure; the table changes only by the name that is asked for.
#pragma once

#include <caisson/network.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/dns_message.h"
#include "egress/name_table.h"
#include "policy/ip_address.h"

namespace caisson::egress {

// localhost, and what is below it.
bool is_localhost(std::string_view name);

enum class NameVerdict : std::uint8_t {
  kMatched,    // some rule may allow a connection to this name
  kUnmatched,  // none can
};

// Who knows the policy's rules. Outlives the calls it is given to.
class DnsNames {
 public:
  virtual ~DnsNames() = default;
  // Of a canonical name (policy::canonical_host).
  virtual NameVerdict verdict(const std::string& name) const = 0;
};

enum class DnsOutcome : std::uint8_t {
  kSynthetic,   // the name's synthetic address
  kLoopback,    // localhost and what is below it
  kReverse,     // the name of a synthetic address
  kServices,    // SRV records of a name in DnsPolicy::services
  kNoData,      // no records of this type, or none for a name that no rule matches
  kNoSuchName,  // a name that exists in no public DNS, or the reverse name of another address
  kRefused,     // by the policy
  kNotAName,    // what cannot be a host's name: refused
  kTableFull,   // too many names have open connections: SERVFAIL
  kMalformed,   // no query at all: an error code, or no answer
};
// For the audit: "synthetic", "no_such_name".
std::string_view to_string(DnsOutcome outcome);

struct DnsDecision {
  DnsOutcome outcome = DnsOutcome::kRefused;
  // Canonical; where it is kNotAName what was asked for as text without control bytes, of at most
  // 255 bytes.
  std::string name;
  // Of kSynthetic and kLoopback: both families; the answer takes those of its type.
  std::vector<policy::IpAddress> addresses;
  std::string reverse_name;  // of kReverse
};

// What is known of a service. nullopt: nothing, since nobody answered.
using KnownServices = std::optional<std::vector<DnsService>>;

DnsDecision dns_decision(const DnsQuery& query, const policy::DnsPolicy& rules,
                         const DnsNames& names, NameTable& table);

std::string dns_answer(const DnsQuery& query, DnsTransport transport, const DnsDecision& decision,
                       std::uint32_t ttl);

// What a message gets, from the parser to the answer's bytes.
struct DnsReply {
  std::string answer;  // empty: none
  // For the audit. kMalformed has no name and no type, but `why`.
  DnsOutcome outcome = DnsOutcome::kMalformed;
  std::string name;
  std::optional<DnsType> type;
  std::string_view why;
  std::optional<DnsQuery> waiting;  // of kServices, which has no answer yet: services_answer()
};
DnsReply reply_to_dns(std::string_view message, DnsTransport transport,
                      const policy::DnsPolicy& rules, const DnsNames& names, NameTable& table);

// Records whose target no rule could allow are left out. SERVFAIL where nothing is known.
std::string services_answer(const DnsQuery& query, DnsTransport transport,
                            const KnownServices& services, const policy::DnsPolicy& rules,
                            const DnsNames& names);

}  // namespace caisson::egress
