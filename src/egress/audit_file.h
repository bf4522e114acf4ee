// An audit file: claimed for one writer by whoever makes a sandbox, and gone on with by its
// gateway, which opens a reader before it shuts itself in, reads the end afterwards, and has the
// file for appending alone when the sandbox's first byte comes.
//
// A file that has grown past kMostAuditSegment is put aside as FILE.1, FILE.2, … before a run, and
// FILE begins anew with a record that names the hash it goes on from.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "egress/audit_chain.h"
#include "egress/audit_verify.h"

namespace caisson::egress {

inline constexpr std::uint64_t kMostAuditSegment = 64u << 20;

// Opens or makes the file (0600), for appending, and locks it as claim_audit() does; `most` as
// kMostAuditSegment. Error: that of the system, and as of claim_audit().
Result<Fd> open_audit(const std::string& path, std::uint64_t most = kMostAuditSegment);

// `audit_fd`: a file that is open for appending. It is locked for as long as that opening or a copy
// of it lasts, and its end is looked at. Errors: invalid_argument for what is no file of audit
// records or is not open for appending alone; unavailable where somebody else writes to it.
Status claim_audit(int audit_fd);
// A reader of the same file. Error: the system's.
Result<Fd> open_audit_reader(int audit_fd);
// What the next record stands on, and what was cut off behind it. Reads at its own pace: nothing
// but lseek() and read(). Error: invalid_argument, as of claim_audit().
Result<AuditEnd> read_audit_end(int reader_fd);
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
