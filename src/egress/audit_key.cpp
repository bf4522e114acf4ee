#include "egress/audit_key.h"

#include <algorithm>
#include <utility>

#include "base/sha256.h"

namespace caisson::egress {
namespace {

constexpr unsigned kHeight = 48;

SecretValue derived(std::string_view key, std::string_view message) {
  std::string bytes = hmac_sha256(key, message);
  return SecretValue::take(bytes);
}

}  // namespace

AuditChainKey AuditChainKey::of(std::string_view master, std::string_view id) {
  return {.id = std::string(id), .key = derived(master, "audit chain " + std::string(id))};
}

std::string AuditChainKey::new_id() {
  return random_hex(kAuditChainId);
}

SecretValue AuditChainKey::encode() const {
  std::string bytes;
  bytes.reserve(kAuditChainId + kAuditKey);  // no copy is left where it grew
  bytes += id;
  bytes += key.bytes();
  return SecretValue::take(bytes);
}

Result<AuditChainKey> AuditChainKey::decode(std::string_view bytes) {
  if (bytes.size() != kAuditChainId + kAuditKey ||
      !is_audit_chain_id(bytes.substr(0, kAuditChainId)))
    return fail(Error(Code::kDataLoss, "the key of the audit's chain is malformed"));
  return AuditChainKey{.id = std::string(bytes.substr(0, kAuditChainId)),
                       .key = SecretValue(bytes.substr(kAuditChainId))};
}

bool is_audit_chain_id(std::string_view text) {
  return text.size() == kAuditChainId && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

AuditKeys::AuditKeys(std::string_view chain_key) {
  nodes_.push_back({.first = 0, .height = kHeight, .key = SecretValue(chain_key)});
}

SecretValue AuditKeys::take(std::uint64_t sequence) {
  VERIFY(sequence > 0 && sequence <= kMostAuditSequence);
  const auto ends_before = [&](const Node& node) {
    return node.first + (1ull << node.height) <= sequence;
  };
  while (!nodes_.empty() && ends_before(nodes_.back())) nodes_.pop_back();
  VERIFY(!nodes_.empty() && nodes_.back().first <= sequence);
  Node node = std::move(nodes_.back());
  nodes_.pop_back();
  while (node.height > 0) {
    --node.height;
    const std::uint64_t middle = node.first + (1ull << node.height);
    SecretValue right = derived(node.key.bytes(), "1");
    if (sequence < middle) {
      SecretValue left = derived(node.key.bytes(), "0");
      nodes_.push_back({.first = middle, .height = node.height, .key = std::move(right)});
      node.key = std::move(left);
    } else {
      node.key = std::move(right);
      node.first = middle;
    }
  }
  return std::move(node.key);
}

}  // namespace caisson::egress
