// What proves audit files, in a folder that no sandbox reaches: a key from which the keys of all
// chains follow, and of each chain the last record that is known to be written.
//
//   FOLDER/key        32 random bytes, 0600; made when the first chain is
//   FOLDER/heads/ID   the head of a chain, AuditHead::bytes(); empty: nothing is known yet
//
// Without the key no record can be verified, and none be added to a file that it was made for. A
// head that is missing only costs that a cut end behind the last seal does not show: of more than
// kMostHeads the oldest are removed. Immutable, any thread; blocks.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "egress/audit_chain.h"
#include "egress/audit_key.h"

namespace caisson::egress {

class AuditKeyring {
 public:
  static constexpr std::size_t kMostHeads = 10'000;

  // Of this user: state_directory()/audit.
  static std::string usual_folder();
  // Makes what is not there. Errors: the system's; failed_precondition where others may write to
  // the folder or read the key.
  static Result<AuditKeyring> open(const std::string& folder);
  // Makes nothing. Error: also not_found.
  static Result<AuditKeyring> find(const std::string& folder);

  AuditChainKey key_of(std::string_view id) const { return AuditChainKey::of(key_->bytes(), id); }
  // The file of a chain's head, for reading and writing. Error: the system's.
  Result<Fd> head_file(const std::string& id) const;
  // Of a chain that is new: makes room for it too.
  Result<Fd> make_head_file(const std::string& id) const;
  // Sequence 0: nothing is known. Error: data_loss, and the system's.
  Result<AuditHead> known(const std::string& id) const;

 private:
  AuditKeyring(Fd heads, SecretValue key)
      : heads_(std::make_shared<const Fd>(std::move(heads))),
        key_(std::make_shared<const SecretValue>(std::move(key))) {}
  // Shared by copies.
  std::shared_ptr<const Fd> heads_;
  std::shared_ptr<const SecretValue> key_;
};

// Of a head's file, from its beginning.
Result<AuditHead> read_head(int head_fd);
// One write of a few bytes in place: who reads at the same time, or after a crash of this process,
// finds the one before or this one. Error: the system's.
Status write_head(int head_fd, const AuditHead& head);

}  // namespace caisson::egress
