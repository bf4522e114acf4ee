// What ties the records of an audit file together, so that a change, a removal, a move and a cut
// end show, and nobody but their writer can make them.
//
// A record is a line of JSON whose last members are its number and its hash:
//
//   {"ts":…,…,"seq":12,"hash":"64 hexadecimal digits"}
//
// The hash is HMAC-SHA-256, under the record's own key (audit_key.h), of the 32 bytes of the hash
// before it and the line's bytes as far as the comma before "hash"; the first record of all stands
// on 32 zero bytes. So the bytes are the canonical form, and whoever checks them needs no reading
// of JSON. The first record of each file names the chain ("chain"), by which its key is found.
//
// Some records are seals (is_seal()): what they stand on is on the disk, if the policy wants that,
// and whoever keeps the chain's head (audit_keys.h) has been told it. A file that ends before a
// head that is known was cut. The next record then is a "cut" that goes on behind that head, and
// says its hash ("before"), so that no number has two records and the gap stays.
//
// A record that the file took in part (a full disk, a crash) stays there. The next one begins on a
// line of its own, stands on the last whole one, and says how many bytes were cut off and their
// SHA-256 ("torn", "torn_sha256"); "lost" counts records that the file did not take. Pure; the
// reader of all this is audit_verify.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"
#include "egress/audit_key.h"

namespace caisson::egress {

// Of a line, without its line break. Ours are two thirds as long at most.
inline constexpr std::size_t kMostAuditLine = 64 * 1024;
// The secrets that one record names; of more it says how many.
inline constexpr std::size_t kMostAuditSecrets = 8;

// The record that the next one stands on.
struct AuditHead {
  std::uint64_t sequence = 0;  // 0: there is none
  std::string hash = std::string(64, '0');

  // "SEQUENCE HASH", for a report. Error of decode(): data_loss.
  std::string encode() const;
  static Result<AuditHead> decode(std::string_view text);
  // The number, 8 bytes with the highest first, and the hash's 32: for whoever keeps it
  // (launcher/gateway_protocol.h), who need not read it. Error of from_bytes(): data_loss.
  std::string bytes() const;
  static Result<AuditHead> from_bytes(std::string_view bytes);
  bool operator==(const AuditHead&) const = default;
};

// `before`: 64 hexadecimal digits; `body`: the line as far as the comma before "hash".
std::string audit_hash(const SecretValue& key, std::string_view before, std::string_view body);

// Of a record of this kind: whether it seals what is before it.
bool is_seal(std::string_view kind);

// Makes the lines of one file. One thread an object.
class AuditChain {
 public:
  // `torn`: what lies behind the last whole record of the file, which is `head`. Error:
  // resource_exhausted, where the numbers are used up.
  static Result<AuditChain> create(const AuditChainKey& chain, AuditHead head,
                                   std::string_view torn = {});

  // What is to be appended for `record`, a line "{…}\n" without number and hash. To be followed by
  // appended() with how much of it the file took: all is a record, less is one that is lost. Empty
  // where the numbers are used up.
  std::string next(std::string_view record);
  void appended(std::size_t count);
  // A record that is not even tried. It has a number all the same.
  void lose() { ++lost_; }
  // The next record is the first of a file: it names the chain.
  void begin_file() { names_chain_ = true; }

  // The last whole record.
  const AuditHead& head() const { return head_; }

 private:
  AuditChain(const AuditChainKey& chain, AuditHead head, std::string_view torn);

  std::string id_;
  AuditKeys keys_;
  AuditHead head_, next_;
  bool names_chain_ = false;
  std::string bytes_;       // of next()
  std::uint64_t torn_ = 0;  // bytes behind the last whole record, and their hash so far
  Sha256 torn_hash_;
  std::uint64_t lost_ = 0;
};

// The record "segment", first of a file that goes on behind `head`, or "cut", behind a head that
// the file has not; without number and hash.
std::string audit_link(std::string_view kind, const AuditHead& head, std::string_view time);
// The last record of a file that goes on in another one.
std::string audit_aside(std::string_view time);

}  // namespace caisson::egress
