#include "egress/audit_verify.h"

#include <utility>

#include "base/secret.h"

namespace caisson::egress {
namespace {

constexpr std::size_t kMostFindings = 100;

std::string numbers(std::uint64_t from, std::uint64_t to) {
  if (from == to) return "record " + std::to_string(from) + " is";
  return "records " + std::to_string(from) + " to " + std::to_string(to) + " are";
}

std::string visible(std::string_view id) {
  std::string shown;
  for (const char c : id.substr(0, 64)) shown += c > 0x20 && c < 0x7f ? c : '?';
  return shown;
}

}  // namespace

AuditVerifier::AuditVerifier(AuditChainKey chain, std::optional<AuditHead> after, AuditHead known)
    : chain_(std::move(chain.id)),
      keys_(chain.key.bytes()),
      after_(std::move(after)),
      known_(std::move(known)) {}

void AuditVerifier::add(std::vector<AuditFinding>& findings, std::uint64_t line,
                        std::string sentence) {
  if (findings.size() == kMostFindings) sentence = "there is more of this kind";
  if (findings.size() <= kMostFindings) findings.push_back({line, std::move(sentence)});
}

bool AuditVerifier::break_at(std::uint64_t line, std::string sentence) {
  broken_ = AuditFinding{line, std::move(sentence)};
  return false;
}

bool AuditVerifier::feed(std::string_view line, Ended ended) {
  ++line_;
  entry_.reset();
  auto entry = parse_audit_line(line);
  // Without its line break it was not written whole.
  if (entry.has_value() && ended == Ended::kYes) {
    if (!take(*entry, line)) return false;
    entry_ = std::move(*entry);
    return true;
  }
  if (line.size() > kMostAuditLine) return break_at(line_, entry.error().message());
  if (torn_line_ != 0) {
    torn_hash_.update("\n");
    ++torn_bytes_;
  } else {
    torn_line_ = line_;
    torn_fault_ = entry.has_value() ? "" : entry.error().message();
  }
  torn_hash_.update(line);
  torn_bytes_ += line.size();
  torn_ended_ = ended == Ended::kYes;
  return true;
}

bool AuditVerifier::check_torn(const AuditEntry& entry) {
  if (torn_line_ == 0 && entry.torn == 0) return true;
  if (torn_line_ == 0) {
    return break_at(line_, "the record says that " + std::to_string(entry.torn) +
                               " bytes before it were cut off, and they are not there");
  }
  if (entry.torn == 0) return break_at(torn_line_, "the line was changed or added: " + torn_fault_);
  if (entry.torn != torn_bytes_ || entry.torn_sha256 != torn_hash_.finish()) {
    return break_at(torn_line_, "what was cut off here is not what the next record says of it");
  }
  add(remarks_, torn_line_,
      "a record was cut off here, by a crash or a full disk; the next record says so");
  torn_line_ = torn_bytes_ = 0;
  torn_hash_ = Sha256();
  return true;
}

// Of a file's first record.
bool AuditVerifier::check_first(const AuditEntry& entry) {
  if (entry.chain.empty() || entry.chain != chain_)
    return break_at(line_, "the first record of a file names its chain, and this one does not");
  if (entry.kind == "segment") {
    if (after_ && (entry.before != after_->hash || entry.sequence != after_->sequence + 1))
      return break_at(line_, "the file does not go on from the end of the one before it");
    if (!after_)
      add(remarks_, line_, "it goes on from another file, whose last hash was " + entry.before);
    head_ = {.sequence = entry.sequence - 1, .hash = entry.before};
    return check_known();
  }
  if (after_)
    return break_at(line_, "the file does not go on from the one before it: it begins anew");
  return true;
}

// Of a record that goes on behind others that are missing. That it says so its hash proves.
bool AuditVerifier::check_cut(const AuditEntry& entry) {
  const std::uint64_t last = entry.sequence - 1;
  if (last < head_.sequence || last == 0 || (last == head_.sequence && entry.before == head_.hash))
    return break_at(line_, "a record says that the end before it was cut off, and it was not");
  add(cut_, line_,
      last == head_.sequence
          ? "record " + std::to_string(last) + ", before this line, was another one"
          : "before this line " + numbers(head_.sequence + 1, last) +
                " missing: the end was cut off, and was known when the file was gone on with");
  head_ = {.sequence = last, .hash = entry.before};
  return true;
}

bool AuditVerifier::check_place(const AuditEntry& entry) {
  if (records_ == 0 && !check_first(entry)) return false;
  if (put_aside_)
    return break_at(line_, "the record before it closed the file: it was added, or moved");
  if (entry.kind == "cut") return check_cut(entry);
  if (entry.kind == "segment" && records_ > 0)
    return break_at(line_, "the first record of another file: lines were moved");
  const std::uint64_t expected = head_.sequence + 1;
  // Against what would not fit a number any more.
  if (entry.lost >= entry.sequence || entry.sequence - entry.lost < expected) {
    return break_at(line_, "record " + std::to_string(entry.sequence) + " comes after record " +
                               std::to_string(head_.sequence) + ": lines were moved or doubled");
  }
  if (entry.sequence - entry.lost > expected) {
    return break_at(line_, "before this line " +
                               numbers(expected, entry.sequence - entry.lost - 1) + " missing");
  }
  return true;
}

bool AuditVerifier::check_known() {
  if (known_.sequence == 0 || head_.sequence != known_.sequence || head_.hash == known_.hash)
    return true;
  return break_at(line_, "record " + std::to_string(known_.sequence) +
                             " is not the one that was known to be written: its hash was " +
                             known_.hash);
}

bool AuditVerifier::take(const AuditEntry& entry, std::string_view line) {
  if (!check_torn(entry) || !check_place(entry)) return false;
  // Its number fits, so it is the line itself that is not as it was.
  const SecretValue key = keys_.take(entry.sequence);
  if (!same_secret(audit_hash(key, head_.hash, line.substr(0, entry.hashed)), entry.hash)) {
    if (entry.kind == "cut") cut_.pop_back();
    return break_at(line_, "the line was changed: its hash does not fit what it says");
  }
  if (head_.sequence < known_.sequence && entry.sequence > known_.sequence)
    return break_at(line_, "record " + std::to_string(known_.sequence) +
                               ", which was known to be written, is not among those before");
  head_.sequence = entry.sequence;
  head_.hash = entry.hash;
  ++records_;
  if (!check_known()) return false;
  if (entry.lost > 0) {
    add(remarks_, line_,
        std::to_string(entry.lost) + " records before it were not written: the file took no more");
  }
  put_aside_ = entry.kind == "aside";
  ++unsealed_;
  if (is_seal(entry.kind)) {
    sealed_ = entry.sequence;
    unsealed_ = 0;
  }
  follow_runs(entry);
  return true;
}

std::string AuditVerifier::how_far() const {
  std::string text = "it is whole as far as record " + std::to_string(head_.sequence);
  if (sealed_ == 0) return text + ", and none of it is sealed";
  text += ", and sealed as far as record " + std::to_string(sealed_);
  if (unsealed_ > 0) text += "; " + std::to_string(unsealed_) + " behind that are not sealed yet";
  return text;
}

void AuditVerifier::follow_runs(const AuditEntry& entry) {
  const auto unfinished = [&] {
    add(incomplete_, run_line_,
        "the run of " + visible(run_sandbox_) +
            " that begins here has no closing record: it was killed, or its last records are "
            "missing");
  };
  if (entry.kind == "begin") {
    if (run_line_ != 0) unfinished();
    run_line_ = line_;
    run_sandbox_ = entry.sandbox;
  } else if (entry.kind == "end") {
    run_line_ = 0;
  } else if (entry.kind == "aside" && run_line_ != 0) {
    unfinished();
    run_line_ = 0;
  }
}

void AuditVerifier::finish(StillWritten still_written) {
  if (broken_) return;
  if (torn_line_ != 0 && torn_ended_) {
    break_at(torn_line_, "the line was changed or added: " + torn_fault_);
    return;
  }
  if (known_.sequence > head_.sequence && put_aside_) {
    add(incomplete_, line_,
        "the file was put aside with record " + std::to_string(head_.sequence) +
            " and goes on in another, which was not given; record " +
            std::to_string(known_.sequence) + " is known to have been written");
  } else if (known_.sequence > head_.sequence) {
    add(cut_, line_,
        "the file ends with record " + std::to_string(head_.sequence) + ", and record " +
            std::to_string(known_.sequence) +
            " is known to have been written: the end was cut off, or lost in a crash of the host");
  }
  if (still_written == StillWritten::kYes) {
    add(remarks_, 0, "a gateway is writing to the file, so its end is not there yet; " + how_far());
    return;
  }
  if (torn_line_ != 0)
    add(incomplete_, torn_line_, "the file ends within a record, by a crash or because it was cut");
  if (run_line_ != 0) {
    add(incomplete_, run_line_,
        "the run of " + visible(run_sandbox_) +
            " that begins here has no closing record, and the file ends: it was killed, or its "
            "last records were cut off; " +
            how_far());
  }
  if (records_ == 0 && torn_line_ == 0) add(incomplete_, 0, "there is no record in it");
}

namespace {

// Whether the last of `lines` was made with the chain's key; true where that cannot be told.
bool stands(const AuditChainKey& chain, const AuditEntry& last, std::string_view line,
            std::string_view before) {
  AuditHead head;
  if (!last.before.empty()) {
    head.hash = last.before;
  } else if (!before.empty()) {
    const auto entry = parse_audit_line(before.substr(before.rfind('\n') + 1));
    if (!entry.has_value()) return true;
    head.hash = entry->hash;
  }
  const SecretValue key = AuditKeys(chain.key.bytes()).take(last.sequence);
  return same_secret(audit_hash(key, head.hash, line.substr(0, last.hashed)), last.hash);
}

}  // namespace

Result<AuditEnd> find_audit_end(const AuditChainKey& chain, std::string_view tail, AuditTail kind) {
  AuditEnd end;
  if (tail.empty()) return end;
  const bool cut_off = !tail.ends_with('\n');
  // The line that ends before `behind`; several that are no records only where the last is cut off.
  std::size_t behind = cut_off ? tail.rfind('\n') + 1 : tail.size();
  while (behind > 0) {
    const std::size_t begin = behind == 1 ? 0 : tail.rfind('\n', behind - 2) + 1;
    const std::string_view line = tail.substr(begin, behind - 1 - begin);
    auto entry = parse_audit_line(line);
    if (entry.has_value()) {
      const bool first = begin == 0;
      if (!(first && kind == AuditTail::kEndOnly) &&
          !stands(chain, *entry, line, first ? "" : tail.substr(0, begin - 1)))
        return fail(Error::invalid("its last record does not fit the one before it"));
      end.head = {.sequence = entry->sequence, .hash = entry->hash};
      end.torn = tail.substr(behind);
      end.put_aside = entry->kind == "aside";
      return end;
    }
    if (!cut_off) return fail(std::move(entry).error().with("its last line is no record"));
    behind = begin;
  }
  // The very first record was cut off.
  if (kind != AuditTail::kWholeFile || tail.size() > kMostAuditLine || !tail.starts_with('{'))
    return fail(Error::invalid("it is no audit file"));
  end.torn = tail;
  return end;
}

Result<std::string> find_audit_chain(std::string_view beginning, AuditTail kind) {
  std::string_view rest = beginning;
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    const auto entry = parse_audit_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    // What was cut off before the first.
    if (!entry.has_value()) continue;
    if (!entry->chain.empty()) return entry->chain;
    return fail(Error::invalid("its first record does not name its chain"));
  }
  if (beginning.empty()) return std::string();
  if (kind == AuditTail::kWholeFile && beginning.size() <= kMostAuditLine &&
      beginning.starts_with('{') && !beginning.ends_with('\n'))
    return std::string();
  return fail(Error::invalid("it is no audit file"));
}

}  // namespace caisson::egress
