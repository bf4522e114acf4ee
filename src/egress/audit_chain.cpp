#include "egress/audit_chain.h"

#include <charconv>
#include <utility>

namespace caisson::egress {
namespace {

std::string bytes_of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

}  // namespace

std::string audit_hash(std::string_view before, std::string_view body) {
  Sha256 hash;
  hash.update(bytes_of_hex(before));
  hash.update(body);
  return hash.finish();
}

std::string AuditHead::encode() const {
  return std::to_string(sequence) + " " + hash;
}

Result<AuditHead> AuditHead::decode(std::string_view text) {
  AuditHead head;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), head.sequence);
  const std::string_view rest(end, text.data() + text.size());
  if (error != std::errc() || !rest.starts_with(' ') || !is_sha256(rest.substr(1)))
    return fail(Error(Code::kDataLoss, "the head of the audit's chain is malformed"));
  head.hash = rest.substr(1);
  return head;
}

AuditChain::AuditChain(AuditHead head, std::string_view torn)
    : head_(std::move(head)), torn_(torn.size()) {
  torn_hash_.update(torn);
}

std::string AuditChain::next(std::string_view record) {
  // Without "}\n".
  std::string body(record.substr(0, record.rfind('}')));
  if (torn_ > 0) {
    const std::string digest = Sha256(torn_hash_).finish();
    body += R"(,"torn":)" + std::to_string(torn_) + R"(,"torn_sha256":")" + digest + '"';
  }
  if (lost_ > 0) body += R"(,"lost":)" + std::to_string(lost_);
  next_.sequence = head_.sequence + lost_ + 1;
  body += R"(,"seq":)" + std::to_string(next_.sequence);
  next_.hash = audit_hash(head_.hash, body);
  // The end of a record that was cut off is not the beginning of this one.
  bytes_ = torn_ > 0 ? "\n" : "";
  bytes_ += body + R"(,"hash":")" + next_.hash + "\"}\n";
  return bytes_;
}

void AuditChain::appended(std::size_t count) {
  if (count == bytes_.size()) {
    head_ = next_;
    lost_ = torn_ = 0;
    torn_hash_ = Sha256();
    return;
  }
  ++lost_;
  torn_ += count;
  torn_hash_.update(std::string_view(bytes_).substr(0, count));
}

}  // namespace caisson::egress
