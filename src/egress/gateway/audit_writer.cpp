#include "egress/gateway/audit_writer.h"

#include <unistd.h>

#include <utility>

#include "egress/audit_file.h"

namespace caisson::egress {

using policy::AuditSync;

AuditWriter::AuditWriter(io::Loop& loop, Fd file, std::optional<AuditChain> chain, Options options)
    : loop_(loop),
      file_(std::make_shared<const Fd>(std::move(file))),
      chain_(std::move(chain)),
      options_(std::move(options)) {}

AuditHead AuditWriter::head() const {
  return wrote_ ? chain_->head() : AuditHead();
}

void AuditWriter::append(std::string_view line) {
  const std::uint64_t count = egress::append(file_->get(), *chain_, line);
  written_ += count;
  wrote_ = wrote_ || count > 0;
}

void AuditWriter::write(AuditKind kind, const std::string& line) {
  if (!chain_ || line.empty()) return;
  // Whoever reads learns of the end in any case.
  if (written_ >= options_.most && kind != AuditKind::kEnd) return chain_->lose();
  append(line);
  if (options_.sync == AuditSync::kEach) (void)::fdatasync(file_->get());
  if (is_seal(to_string(kind))) return;
  ++unsealed_;
  if (unsealed_ >= kRecordsASeal) return seal();
  wake_later();
}

void AuditWriter::wake_later() {
  if (waking_) return;
  waking_ = true;
  loop_.spawn(wake(*this));
}

io::Async<void> AuditWriter::wake(AuditWriter& self) {
  co_await io::Loop::sleep(kSealAfter);
  self.waking_ = false;
  if (self.unsealed_ > 0) self.seal();
}

void AuditWriter::seal() {
  unsealed_ = 0;
  write(AuditKind::kSeal, audit_line({.kind = AuditKind::kSeal}, options_.sandbox, 0,
                                     std::chrono::system_clock::now()));
  if (options_.sync != AuditSync::kInterval) return told(chain_->head());
  sync_again_ = syncing_;
  if (!syncing_) loop_.spawn(sync_and_tell(*this));
}

// A disk that is slow holds up nothing but the word.
io::Async<void> AuditWriter::sync_and_tell(AuditWriter& self) {
  self.syncing_ = true;
  do {
    self.sync_again_ = false;
    const AuditHead head = self.chain_->head();
    auto work = [file = self.file_] { return ::fdatasync(file->get()) == 0; };
    const bool synced = co_await self.loop_.in_pool(std::move(work));
    if (synced) self.told(head);
  } while (self.sync_again_);
  self.syncing_ = false;
}

void AuditWriter::told(const AuditHead& head) {
  if (options_.sealed) options_.sealed(head);
}

void AuditWriter::close() {
  if (!wrote_) return;
  if (options_.sync != AuditSync::kNone) (void)::fdatasync(file_->get());
  told(chain_->head());
}

}  // namespace caisson::egress
