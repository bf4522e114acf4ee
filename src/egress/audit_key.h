// The keys of one chain of audit records: one for each record, of which those of records that are
// written cannot be had any more.
//
// Whoever takes a process over that writes records finds the keys of those to come alone, so that
// what was written before cannot be written anew (Bellare and Yee, "Forward-Security in Private-Key
// Cryptography", CT-RSA 2003; Schneier and Kelsey, "Secure Audit Logs to Support Computer
// Forensics", 1999). The keys are the leaves of a binary tree, in which each node's two children
// are its HMAC-SHA-256 of "0" and "1" (Goldreich, Goldwasser and Micali, 1986): what is kept is the
// nodes to the right of the way to the next leaf, 48 at most. So a process that goes on with record
// 10 million is there as fast as one that begins. Pure; one thread an object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::egress {

inline constexpr std::size_t kAuditKey = 32;      // bytes
inline constexpr std::size_t kAuditChainId = 32;  // hexadecimal digits
// The number of the last record that a chain can have.
inline constexpr std::uint64_t kMostAuditSequence = (1ull << 48) - 1;

// One chain: its name, which its file says, and what its records' keys follow from.
struct AuditChainKey {
  std::string id;
  SecretValue key;

  // `master`: of whoever has the chains made. The key is HMAC(master, "audit chain " and the id).
  static AuditChainKey of(std::string_view master, std::string_view id);
  static std::string new_id();

  // For whoever is to write it, as the bytes of a file that nobody else reads. Error of decode():
  // data_loss.
  SecretValue encode() const;
  static Result<AuditChainKey> decode(std::string_view bytes);
};
// Whether it is what new_id() gives.
bool is_audit_chain_id(std::string_view text);

class AuditKeys {
 public:
  explicit AuditKeys(std::string_view chain_key);
  // The key of the record with this number, from 1 to kMostAuditSequence; that and those before
  // cannot be taken (again). VERIFYs that it was not.
  SecretValue take(std::uint64_t sequence);

 private:
  struct Node {
    std::uint64_t first = 0;  // of its leaves, of which it has 2 to the power of
    unsigned height = 0;
    SecretValue key;
  };
  std::vector<Node> nodes_;  // the nearest last
};

}  // namespace caisson::egress
