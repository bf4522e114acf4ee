// libraries: egress policy base
// parser: src/egress/audit_entry.cpp src/egress/audit_verify.cpp src/egress/audit_chain.cpp
// parser: src/egress/audit_key.cpp
//
// An audit file that holds anything: it is read in bounded memory, what is shown of it is
// printable, and what the chain makes out of the same bytes is whole, cut off or not.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "egress/audit_chain.h"
#include "egress/audit_entry.h"
#include "egress/audit_verify.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

// The seeds are made with it.
AuditChainKey key() {
  return AuditChainKey::of(std::string(kAuditKey, 'm'), std::string(kAuditChainId, 'a'));
}

AuditVerifier verify(std::string_view text, AuditHead known = {}) {
  AuditVerifier verifier(key(), {}, std::move(known));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const bool ended = end < text.size();
    const auto word = ended ? AuditVerifier::Ended::kYes : AuditVerifier::Ended::kNo;
    if (!verifier.feed(text.substr(0, end), word)) break;
    if (const AuditEntry* entry = verifier.entry()) {
      for (const char c : audit_sentence(*entry)) VERIFY(c >= 0x20 && c < 0x7f);
      VERIFY(entry->sequence == verifier.head().sequence);
    }
    text.remove_prefix(end + (ended ? 1 : 0));
  }
  verifier.finish(AuditVerifier::StillWritten::kNo);
  return verifier;
}

// What is kept beside the file, read back; and the records between two files.
void check_kept(std::string_view bytes) {
  const auto head = AuditHead::from_bytes(bytes.substr(0, 40));
  VERIFY(head.has_value() == (bytes.size() >= 40));
  if (head.has_value()) VERIFY(head->bytes() == bytes.substr(0, 40));
  const auto chain = AuditChainKey::decode(bytes);
  if (chain.has_value()) VERIFY(chain->encode().bytes() == bytes);
  if (!head.has_value() || head->sequence == 0) return;
  auto behind = AuditChain::create(key(), *head);
  VERIFY(behind.has_value() == (head->sequence < kMostAuditSequence));
  if (!behind.has_value()) return;
  // Whoever goes on behind a head that the file has not says so, and closes it.
  behind->begin_file();
  std::string file;
  const auto append = [&](const std::string& record) {
    const std::string line = behind->next(record);
    behind->appended(line.size());
    file += line;
  };
  append(audit_link("cut", *head, "2023-11-14T22:13:20Z"));
  append(audit_aside("2023-11-14T22:13:20Z"));
  const AuditVerifier verifier = verify(file, *head);
  VERIFY(!verifier.broken() && verifier.cut().size() == 1);
  VERIFY(verifier.head() == behind->head());
  VERIFY(find_audit_chain(file, AuditTail::kWholeFile).value() == key().id);
}

// The bytes as what a sandbox chose and as how much a file takes of each record.
void check_written(std::string_view bytes) {
  AuditChain chain = std::move(AuditChain::create(key(), {})).value();
  std::string file;
  for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 16); ++i) {
    json::Value record = json::Value::object();
    record.set("ts", "2023-11-14T22:13:20Z").set("v", 2);
    record.set("kind", i == 0 ? "begin" : "tcp").set("host", bytes.substr(i, 64));
    const std::string line = chain.next(json::serialize(record) + "\n");
    const auto share = static_cast<unsigned char>(bytes[i]);
    const std::size_t count = share < 128 ? line.size() : line.size() * (share - 128) / 128;
    file += line.substr(0, count);
    chain.appended(count);
  }
  const AuditVerifier verifier = verify(file);
  VERIFY(verifier.head() == chain.head());
  // Of a record that was cut off behind the line break before it nothing can be told.
  const bool ends_between = file.ends_with('\n') && !file.ends_with("}\n");
  VERIFY(!verifier.broken() || ends_between);
  const auto end = find_audit_end(key(), file, AuditTail::kWholeFile);
  VERIFY(end.has_value() ? end->head == chain.head() : ends_between);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const AuditVerifier verifier = verify(text);
  const auto end = find_audit_end(key(), text, AuditTail::kWholeFile);
  (void)find_audit_end(key(), text, AuditTail::kEndOnly);
  // Whoever goes on behind what is whole goes on from the same record.
  if (!verifier.broken() && verifier.records() > 0 && end.has_value() && end->torn.empty())
    VERIFY(end->head == verifier.head());
  (void)find_audit_chain(text, AuditTail::kWholeFile);
  (void)find_audit_chain(text, AuditTail::kEndOnly);
  check_kept(text);
  const auto head = AuditHead::decode(text);
  VERIFY(!head.has_value() || AuditHead::decode(head->encode()).value() == *head);
  check_written(text);
  return 0;
}
