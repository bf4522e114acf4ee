// Whether the lines of an audit file are what was written to it: every record there, in its order
// and unchanged, up to the last one that is known and to a closing record. Fed line by line, in
// bounded memory, whatever the file holds; the first thing that is broken ends it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/audit_chain.h"
#include "egress/audit_entry.h"

namespace caisson::egress {

// A remark about a line, counted from 1; 0: about the file as a whole.
struct AuditFinding {
  std::uint64_t line = 0;
  std::string sentence;
  bool operator==(const AuditFinding&) const = default;
};

class AuditVerifier {
 public:
  // `after`: the last record of the file before, where that is known. `known`: a record that was
  // written, as whoever keeps the chain's head has it; sequence 0: none.
  explicit AuditVerifier(AuditChainKey chain, std::optional<AuditHead> after = {},
                         AuditHead known = {});

  // The next line, without its line break; false: it is broken, and nothing more is to be fed.
  // `ended`: whether there was a line break.
  enum class Ended : bool { kNo, kYes };
  bool feed(std::string_view line, Ended ended);
  // After the last line. `still_written`: a gateway writes on, so that the end may be missing.
  enum class StillWritten : bool { kNo, kYes };
  void finish(StillWritten still_written);

  // What is broken: a line that was changed, removed, moved or added.
  const std::optional<AuditFinding>& broken() const { return broken_; }
  // Records that were there, and that an end was cut off with.
  const std::vector<AuditFinding>& cut() const { return cut_; }
  // What is not proven: runs without a closing record, whose last records may be missing.
  const std::vector<AuditFinding>& incomplete() const { return incomplete_; }
  // What is explained by the file itself.
  const std::vector<AuditFinding>& remarks() const { return remarks_; }

  std::uint64_t records() const { return records_; }
  // The number of the last seal; 0: there is none.
  std::uint64_t sealed() const { return sealed_; }
  const AuditHead& head() const { return head_; }
  // The entry of the line that was fed last; nullptr where it is none.
  const AuditEntry* entry() const { return entry_ ? &*entry_ : nullptr; }

 private:
  bool break_at(std::uint64_t line, std::string sentence);
  bool take(const AuditEntry& entry, std::string_view line);
  bool check_torn(const AuditEntry& entry);
  bool check_place(const AuditEntry& entry);
  bool check_first(const AuditEntry& entry);
  bool check_cut(const AuditEntry& entry);
  bool check_known();
  std::string how_far() const;
  void follow_runs(const AuditEntry& entry);
  void add(std::vector<AuditFinding>& findings, std::uint64_t line, std::string sentence);

  std::string chain_;
  AuditKeys keys_;
  std::optional<AuditHead> after_;
  AuditHead known_;
  AuditHead head_;
  std::uint64_t line_ = 0, records_ = 0;
  std::uint64_t sealed_ = 0, unsealed_ = 0;  // the last seal, and records behind it
  bool put_aside_ = false;                   // the last record closes the file
  std::optional<AuditEntry> entry_;
  // Lines that are no records, until a record explains them.
  std::uint64_t torn_line_ = 0, torn_bytes_ = 0;
  std::string torn_fault_;
  Sha256 torn_hash_;
  bool torn_ended_ = false;
  // The run that has begun and not ended.
  std::uint64_t run_line_ = 0;
  std::string run_sandbox_;

  std::optional<AuditFinding> broken_;
  std::vector<AuditFinding> cut_, incomplete_, remarks_;
};

// The last record of a file, to go on behind it.
struct AuditEnd {
  AuditHead head;
  std::string torn;        // behind it, without a line break
  bool put_aside = false;  // it closes its file
};
// From the last bytes of a file, which are all of it or kMostAuditTail. Error: invalid_argument, as
// of a file that is something else, and where the last record was not made with the chain's key.
inline constexpr std::size_t kMostAuditTail = 3 * kMostAuditLine;
enum class AuditTail : bool { kEndOnly, kWholeFile };
Result<AuditEnd> find_audit_end(const AuditChainKey& chain, std::string_view tail, AuditTail kind);
// The name of the chain, from a file's first bytes, which are all of it or kMostAuditTail; empty
// where there is no whole record yet. Error: invalid_argument, of a file that is something else.
Result<std::string> find_audit_chain(std::string_view beginning, AuditTail kind);

}  // namespace caisson::egress
