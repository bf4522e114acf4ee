// Whether the lines of an audit file are what was written to it: every record there, in its order
// and unchanged, up to a closing record. Fed line by line, in bounded memory, whatever the file
// holds; the first thing that is broken ends it. Pure.
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
  // `after`: the last record of the file before, where that is known.
  explicit AuditVerifier(std::optional<AuditHead> after = {});

  // The next line, without its line break; false: it is broken, and nothing more is to be fed.
  // `ended`: whether there was a line break.
  enum class Ended : bool { kNo, kYes };
  bool feed(std::string_view line, Ended ended);
  // After the last line. `still_written`: a gateway writes on, so that the end may be missing.
  enum class StillWritten : bool { kNo, kYes };
  void finish(StillWritten still_written);

  // What is broken: a line that was changed, removed, moved or added.
  const std::optional<AuditFinding>& broken() const { return broken_; }
  // What is not proven: runs without a closing record, whose last records may be missing.
  const std::vector<AuditFinding>& incomplete() const { return incomplete_; }
  // What is explained by the file itself.
  const std::vector<AuditFinding>& remarks() const { return remarks_; }

  std::uint64_t records() const { return records_; }
  const AuditHead& head() const { return head_; }
  // The entry of the line that was fed last; nullptr where it is none.
  const AuditEntry* entry() const { return entry_ ? &*entry_ : nullptr; }

 private:
  bool break_at(std::uint64_t line, std::string sentence);
  bool take(const AuditEntry& entry, std::string_view line);
  bool check_torn(const AuditEntry& entry);
  bool check_place(const AuditEntry& entry);
  void follow_runs(const AuditEntry& entry);
  void add(std::vector<AuditFinding>& findings, std::uint64_t line, std::string sentence);

  std::optional<AuditHead> after_;
  AuditHead head_;
  std::uint64_t line_ = 0, records_ = 0;
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
  std::vector<AuditFinding> incomplete_, remarks_;
};

// The last record of a file, to go on behind it.
struct AuditEnd {
  AuditHead head;
  std::string torn;  // behind it, without a line break
};
// From the last bytes of a file, which are all of it or kMostAuditTail. Error: invalid_argument, as
// of a file that is something else.
inline constexpr std::size_t kMostAuditTail = 3 * kMostAuditLine;
enum class AuditTail : bool { kEndOnly, kWholeFile };
Result<AuditEnd> find_audit_end(std::string_view tail, AuditTail kind);

}  // namespace caisson::egress
