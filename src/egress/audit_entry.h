// One line of an audit file, read back. Whoever writes the file may write anything, so the reader
// is bounded and takes what audit_chain.h makes and nothing else; whether the hash fits is
// audit_verify.h's matter. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::egress {

struct AuditEntry {
  std::uint64_t sequence = 0;
  std::string hash;
  std::size_t hashed = 0;  // bytes of the line that the hash stands for
  std::string time, sandbox, kind;
  bool decides = false, allowed = false;
  std::string rule, reason, host, destination, upstream, method, path, detail;
  std::uint64_t revision = 0, port = 0, status = 0, bytes_up = 0, bytes_down = 0, milliseconds = 0;
  std::uint64_t lost = 0, torn = 0;
  std::string torn_sha256;
  std::string chain;                 // of the first record of a file: the chain's name
  std::string before;                // of a segment or a cut: the hash that it goes on from
  std::vector<std::string> secrets;  // "NAME in WHERE"

  // What it was about: "GET a.example.com:80/x", "a.example.com:443", "198.18.0.9:443"; empty:
  // nothing.
  std::string target() const;
};

// A line without its line break. Error: invalid_argument, with what was found and what is allowed.
Result<AuditEntry> parse_audit_line(std::string_view line);

// A record for a person, on one line of printable ASCII: when, what, to where, why. The reason is
// put in words.
std::string audit_sentence(const AuditEntry& entry);

}  // namespace caisson::egress
