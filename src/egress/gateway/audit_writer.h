// Where a gateway's records go: appended to their chain, sealed, and brought to the disk as the
// policy says. A record that the file does not take is lost, and the next one says so.
//
// A seal comes behind kRecordsASeal records, or kSealAfter behind the first that is not sealed; it
// is told to whoever keeps the chain's head, once what it stands on is where the policy wants it.
// One loop, which outlives it; no coroutine of the loop's goes on behind it.
#pragma once

#include <caisson/network.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "egress/audit_chain.h"
#include "egress/gateway/audit.h"
#include "io/loop.h"

namespace caisson::egress {

class AuditWriter {
 public:
  static constexpr std::uint64_t kRecordsASeal = 128;
  static constexpr std::chrono::milliseconds kSealAfter{1000};

  struct Options {
    std::string sandbox;
    policy::AuditSync sync = policy::AuditSync::kInterval;
    // Of what is written here, in bytes; of what comes then the end alone is written, and the rest
    // is counted there.
    std::uint64_t most = 1u << 30;
    // What is written up to this record is not lost any more with this process; null: nobody wants
    // to know.
    std::function<void(const AuditHead&)> sealed = {};
  };
  // `chain`: nullopt: nobody reads the records.
  AuditWriter(io::Loop& loop, Fd file, std::optional<AuditChain> chain, Options options);
  AuditWriter(const AuditWriter&) = delete;
  AuditWriter& operator=(const AuditWriter&) = delete;

  // `line` as audit_line() makes it.
  void write(AuditKind kind, const std::string& line);
  // Once, behind the last record: waits until it is where the policy wants it.
  void close();
  // Of what was written here; sequence 0 where nothing was.
  AuditHead head() const;

 private:
  void append(std::string_view line);
  void seal();
  void told(const AuditHead& head);
  void wake_later();
  static io::Async<void> wake(AuditWriter& self);
  static io::Async<void> sync_and_tell(AuditWriter& self);

  io::Loop& loop_;
  std::shared_ptr<const Fd> file_;  // shared with a thread that syncs it
  std::optional<AuditChain> chain_;
  Options options_;
  std::uint64_t written_ = 0, unsealed_ = 0;
  bool wrote_ = false, waking_ = false;
  bool syncing_ = false, sync_again_ = false;
};

}  // namespace caisson::egress
