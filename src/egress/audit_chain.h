// What ties the records of an audit file together, so that a change, a removal, a move and (by the
// closing record of each run) a cut end show.
//
// A record is a line of JSON whose last members are its number and its hash:
//
//   {"ts":…,…,"seq":12,"hash":"64 hexadecimal digits"}
//
// The hash is SHA-256 over the 32 bytes of the hash before it and over the line's bytes as far as
// the comma before "hash"; the first record of all stands on 32 zero bytes. So the bytes are the
// canonical form, and whoever checks them needs no reading of JSON. There is no key in it: who may
// write the file can make another chain, so what has to hold against him is the last hash, kept
// elsewhere (the run's result has it).
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

namespace caisson::egress {

// Of a line, without its line break. Ours are two thirds as long at most.
inline constexpr std::size_t kMostAuditLine = 64 * 1024;
// The secrets that one record names; of more it says how many.
inline constexpr std::size_t kMostAuditSecrets = 8;

// The record that the next one stands on.
struct AuditHead {
  std::uint64_t sequence = 0;  // 0: there is none
  std::string hash = std::string(64, '0');

  // "SEQUENCE HASH", for the process that goes on. Error of decode(): data_loss.
  std::string encode() const;
  static Result<AuditHead> decode(std::string_view text);
  bool operator==(const AuditHead&) const = default;
};

// `body`: the line as far as the comma before "hash". `before`: 64 hexadecimal digits.
std::string audit_hash(std::string_view before, std::string_view body);

// Makes the lines of one file. One thread an object.
class AuditChain {
 public:
  // `torn`: what lies behind the last whole record of the file.
  explicit AuditChain(AuditHead head, std::string_view torn = {});

  // What is to be appended for `record`, a line "{…}\n" without number and hash. To be followed by
  // appended() with how much of it the file took: all is a record, less is one that is lost.
  std::string next(std::string_view record);
  void appended(std::size_t count);
  // A record that is not even tried. It has a number all the same.
  void lose() { ++lost_; }

  // The last whole record.
  const AuditHead& head() const { return head_; }

 private:
  AuditHead head_, next_;
  std::string bytes_;       // of next()
  std::uint64_t torn_ = 0;  // bytes behind the last whole record, and their hash so far
  Sha256 torn_hash_;
  std::uint64_t lost_ = 0;
};

}  // namespace caisson::egress
