#include "egress/audit_chain.h"

#include <charconv>
#include <utility>

#include "base/encoding.h"
#include "base/json.h"
#include "launcher/gateway_protocol.h"

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

std::string audit_hash(const SecretValue& key, std::string_view before, std::string_view body) {
  std::string message = bytes_of_hex(before);
  message += body;
  return hex_encode(hmac_sha256(key.bytes(), message));
}

bool is_seal(std::string_view kind) {
  return kind == "seal" || kind == "end" || kind == "aside";
}

std::string audit_link(std::string_view kind, const AuditHead& head, std::string_view time) {
  json::Value record = json::Value::object();
  record.set("ts", time).set("v", 2).set("kind", kind).set("before", head.hash);
  return json::serialize(record) + "\n";
}

std::string audit_aside(std::string_view time) {
  json::Value record = json::Value::object();
  record.set("ts", time).set("v", 2).set("kind", "aside");
  return json::serialize(record) + "\n";
}

std::string AuditHead::bytes() const {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(sequence >> shift);
  return bytes + bytes_of_hex(hash);
}

Result<AuditHead> AuditHead::from_bytes(std::string_view bytes) {
  if (bytes.size() != launcher::kAuditHeadBytes)
    return fail(Error(Code::kDataLoss, "a head of the audit's chain has " +
                                           std::to_string(bytes.size()) + " bytes, and not 40"));
  AuditHead head;
  for (const char byte : bytes.substr(0, 8))
    head.sequence = head.sequence << 8 | static_cast<unsigned char>(byte);
  head.hash = hex_encode(bytes.substr(8));
  return head;
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

AuditChain::AuditChain(const AuditChainKey& chain, AuditHead head, std::string_view torn)
    : id_(chain.id),
      keys_(chain.key.bytes()),
      head_(std::move(head)),
      names_chain_(head_.sequence == 0),
      torn_(torn.size()) {
  torn_hash_.update(torn);
  // The keys of what is written are gone from now on.
  if (head_.sequence > 0) (void)keys_.take(head_.sequence);
}

Result<AuditChain> AuditChain::create(const AuditChainKey& chain, AuditHead head,
                                      std::string_view torn) {
  if (head.sequence >= kMostAuditSequence)
    return fail(Error::exhausted("the chain has as many records as it can; begin a new file"));
  return AuditChain(chain, std::move(head), torn);
}

std::string AuditChain::next(std::string_view record) {
  bytes_.clear();
  if (lost_ >= kMostAuditSequence - head_.sequence) return bytes_;
  // Without "}\n".
  std::string body(record.substr(0, record.rfind('}')));
  if (names_chain_) body += R"(,"chain":")" + id_ + '"';
  if (torn_ > 0) {
    const std::string digest = Sha256(torn_hash_).finish();
    body += R"(,"torn":)" + std::to_string(torn_) + R"(,"torn_sha256":")" + digest + '"';
  }
  if (lost_ > 0) body += R"(,"lost":)" + std::to_string(lost_);
  next_.sequence = head_.sequence + lost_ + 1;
  body += R"(,"seq":)" + std::to_string(next_.sequence);
  next_.hash = audit_hash(keys_.take(next_.sequence), head_.hash, body);
  // The end of a record that was cut off is not the beginning of this one.
  bytes_ = torn_ > 0 ? "\n" : "";
  bytes_ += body + R"(,"hash":")" + next_.hash + "\"}\n";
  return bytes_;
}

void AuditChain::appended(std::size_t count) {
  if (count == bytes_.size() && count > 0) {
    head_ = next_;
    names_chain_ = false;
    lost_ = torn_ = 0;
    torn_hash_ = Sha256();
    return;
  }
  ++lost_;
  torn_ += count;
  torn_hash_.update(std::string_view(bytes_).substr(0, count));
}

}  // namespace caisson::egress
