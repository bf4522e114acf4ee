#include "egress/audit_key.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace caisson::egress {
namespace {

const std::string kRoot(kAuditKey, 'r');

// Straight from the root, as the header describes it.
std::string leaf(std::uint64_t sequence) {
  std::string key = kRoot;
  for (int bit = 47; bit >= 0; --bit)
    key = hmac_sha256(key, (sequence >> bit & 1) != 0 ? "1" : "0");
  return key;
}

TEST(AuditKeys, EachRecordHasTheKeyOfItsLeaf) {
  AuditKeys keys(kRoot);
  for (std::uint64_t sequence = 1; sequence < 70; ++sequence)
    EXPECT_EQ(keys.take(sequence).bytes(), leaf(sequence)) << sequence;
  // Over others, near and far.
  for (const std::uint64_t sequence :
       {std::uint64_t{71}, std::uint64_t{128}, std::uint64_t{1'000'003}, kMostAuditSequence})
    EXPECT_EQ(keys.take(sequence).bytes(), leaf(sequence)) << sequence;
}

TEST(AuditKeysDeathTest, AKeyThatWasTakenIsGoneAndSoAreThoseBefore) {
  AuditKeys keys(kRoot);
  (void)keys.take(9);
  EXPECT_DEATH((void)keys.take(9), "");
  EXPECT_DEATH((void)keys.take(3), "");
  EXPECT_DEATH((void)keys.take(0), "");
  EXPECT_DEATH((void)keys.take(kMostAuditSequence + 1), "");
  EXPECT_EQ(keys.take(10).bytes(), leaf(10));
}

TEST(AuditChainKey, IsReadAsItWasWritten) {
  const std::string id = AuditChainKey::new_id();
  EXPECT_TRUE(is_audit_chain_id(id));
  EXPECT_NE(id, AuditChainKey::new_id());
  const AuditChainKey key = AuditChainKey::of("master", id);
  EXPECT_NE(key.key.bytes(), AuditChainKey::of("master", AuditChainKey::new_id()).key.bytes());
  EXPECT_NE(key.key.bytes(), AuditChainKey::of("other", id).key.bytes());
  const auto again = AuditChainKey::decode(key.encode().bytes());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->id, id);
  EXPECT_EQ(again->key.bytes(), key.key.bytes());
  const std::string bytes(key.encode().bytes());
  EXPECT_FALSE(AuditChainKey::decode("").has_value());
  EXPECT_FALSE(AuditChainKey::decode(bytes.substr(1)).has_value());
  EXPECT_FALSE(AuditChainKey::decode("X" + bytes.substr(1)).has_value());
  for (const char* text : {"", "0123456789abcdef0123456789abcdeF", "../x"})
    EXPECT_FALSE(is_audit_chain_id(text)) << text;
}

}  // namespace
}  // namespace caisson::egress
