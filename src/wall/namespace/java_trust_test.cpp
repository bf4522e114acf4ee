#include "wall/namespace/java_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/encoding.h"

// That a Java reads it: tests/integration/test_gateway_inspect.py.
namespace caisson::wall {
namespace {

using ::testing::HasSubstr;

std::string armoured(std::string_view bytes) {
  return "-----BEGIN CERTIFICATE-----\n" + base64_encode(bytes) + "\n-----END CERTIFICATE-----\n";
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

TEST(JavaTrust, AnEmptyStoreIsItsHeadAndItsDigest) {
  // The digest: printf of the password in UTF-16, the words and the head, through sha1sum.
  EXPECT_EQ(hex_of(java_trust_store("").value()),
            "feedfeed0000000200000000"
            "e2686e45fb43dfa4d992dd41ceb6b21c6330d792");
}

TEST(JavaTrust, TheDigestIsOfAllOfIt) {
  // As above, and the entries, through sha1sum: of lengths around a block of the digest's.
  std::string pem;
  for (const std::size_t size : {40u, 41u, 47u, 48u, 49u, 200u, 5000u})
    pem += armoured("\x30" + std::string(size, 'x'));
  const std::string store = java_trust_store(pem).value();
  EXPECT_EQ(hex_of(store.substr(store.size() - 20)), "c520286e64ff6d5cdd2b658074fb77c617e271ec");
}

TEST(JavaTrust, EachCertificateIsAnEntry) {
  const std::string one("\x30\x01", 2), other("\x30\x02\x03", 3);
  const std::string store =
      java_trust_store("# first\n" + armoured(one) + "second\r\n" + armoured(other)).value();
  EXPECT_EQ(hex_of(store.substr(0, 12)), "feedfeed0000000200000002");
  EXPECT_THAT(store, HasSubstr("authority-1"));
  EXPECT_THAT(store, HasSubstr(std::string("X.509\0\0\0\x02", 9) + one));
  EXPECT_THAT(store, HasSubstr("authority-2"));
  EXPECT_THAT(store, HasSubstr(std::string("X.509\0\0\0\x03", 9) + other));
}

TEST(JavaTrust, WhatIsNoCertificateIsLeftOut) {
  const std::string good("\x30\x01", 2);
  for (const std::string& text :
       {std::string("no armour"), std::string("-----BEGIN CERTIFICATE-----\nMAE=\n"),
        std::string("-----BEGIN CERTIFICATE-----\n***\n-----END CERTIFICATE-----\n"),
        armoured("not a sequence"), std::string("-----BEGIN X509 CRL-----\nMAE=\n")}) {
    const auto store = java_trust_store(text.ends_with("MAE=\n") ? text : text + armoured(good));
    ASSERT_TRUE(store.has_value());
    EXPECT_EQ(store->at(11), text.ends_with("MAE=\n") ? 0 : 1) << text;
  }
}

TEST(JavaTrust, IsBounded) {
  EXPECT_THAT(java_trust_store(armoured("\x30" + std::string(64 * 1024, 'x'))).error().message(),
              HasSubstr("allowed are 65536"));
  std::string many;
  for (int n = 0; n < 4097; ++n) many += armoured("\x30");
  EXPECT_THAT(java_trust_store(many).error().message(), HasSubstr("allowed are 4096"));
}

}  // namespace
}  // namespace caisson::wall
