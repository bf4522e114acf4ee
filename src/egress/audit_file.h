// An audit file as whoever starts a gateway has it: claimed for one writer, its end looked at, so
// that the chain goes on where it ended. The gateway then has it for appending alone.
//
// A file that has grown past kMostAuditSegment is put aside as FILE.1, FILE.2, … before a run, and
// FILE begins anew with a record that names the hash it goes on from.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "egress/audit_chain.h"

namespace caisson::egress {

inline constexpr std::uint64_t kMostAuditSegment = 64u << 20;

// Opens or makes the file (0600), for appending, and locks it as claim_audit() does; `most` as
// kMostAuditSegment. Error: that of the system, and as of claim_audit().
Result<Fd> open_audit(const std::string& path, std::uint64_t most = kMostAuditSegment);

// `audit_fd`: a file that is open for appending. It is locked for as long as that opening or a copy
// of it lasts. Where its end was cut off, a record is appended that says so. Gives what the next
// record stands on. Error: invalid_argument for what is no file of audit records or is not open for
// appending; unavailable where somebody else writes to it.
Result<AuditHead> claim_audit(int audit_fd);
// Whether somebody has it claimed. Error: the system's.
Result<bool> is_audit_claimed(int file_fd);

// The lines of a file from where it is read, in bounded memory.
class AuditLines {
 public:
  explicit AuditLines(int file_fd) : file_fd_(file_fd) {}
  struct Line {
    std::string_view text;  // until the next call; longer than kMostAuditLine: only its beginning
    bool ended = false;     // with a line break; false: there is nothing more yet
  };
  // false: the end, behind a line break or at the beginning. After a line that was not ended it may
  // be asked again; the line then comes once more, with what was appended. Error: the system's.
  Result<bool> next(Line& line);

 private:
  int file_fd_;
  std::string buffer_;
  std::size_t at_ = 0;
};

}  // namespace caisson::egress
