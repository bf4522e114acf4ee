// An audit file: claimed for one writer by whoever makes a sandbox, and gone on with by its
// gateway, which opens a reader before it shuts itself in, reads the end afterwards, and has the
// file for appending alone when the sandbox's first byte comes.
//
// A file that has grown past `segment` of its policy is put aside as FILE.1, FILE.2, … before a
// run: its last record then says so, and FILE begins anew with a record that names the hash it goes
// on from.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "egress/audit_chain.h"
#include "egress/audit_keyring.h"
#include "egress/audit_verify.h"

namespace caisson::egress {

// Opens or makes the file (0600), for appending, and locks it as claim_audit() does; put aside when
// it has more than `most` bytes. Error: that of the system, and as of claim_audit().
Result<Fd> open_audit(const std::string& path, const AuditKeyring& keyring, std::uint64_t most);

// What whoever writes to a claimed file needs.
struct AuditClaim {
  AuditChainKey chain;
  Fd head;  // of the chain, as AuditKeyring::head_file()
};
// `audit_fd`: a file that is open for appending. It is locked for as long as that opening or a copy
// of it lasts, and its end is looked at; where it was cut a record says so. Errors:
// invalid_argument for what is no file of audit records, was not written with these keys, or is not
// open for appending alone; unavailable where somebody else writes to it.
Result<AuditClaim> claim_audit(int audit_fd, const AuditKeyring& keyring);
// A reader of the same file. Error: the system's.
Result<Fd> open_audit_reader(int audit_fd);
// What the next record stands on, and what was cut off behind it. Reads at its own pace: nothing
// but lseek() and read(). Error: invalid_argument, as of claim_audit().
Result<AuditEnd> read_audit_end(int reader_fd, const AuditChainKey& chain);
// The chain of a file; empty where it has no record yet. Reads as above. Error: invalid_argument.
Result<std::string> read_audit_chain(int reader_fd);

// The chain of a claimed file behind its end. Where a later record is `known`, or another one with
// the number of the last, the end was cut off: that is appended as a record. Error: the system's,
// and as of AuditChain::create().
Result<AuditChain> go_on(int audit_fd, const AuditChainKey& chain, const AuditEnd& end,
                         const AuditHead& known);
// Appends the next record, and has it lost where the file does not take it. The number of bytes
// that it took.
std::uint64_t append(int audit_fd, AuditChain& chain, std::string_view record);

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
