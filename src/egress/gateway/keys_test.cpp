#include "egress/gateway/keys.h"

#include <gtest/gtest.h>

#include <string>

#include "base/sys.h"
#include "egress/secrets/sealed.h"

namespace caisson::egress {
namespace {

const std::string kSealing(kSealingKey, 's');

std::shared_ptr<io::Authority> authority() {
  return io::Authority::make("Caisson sandbox abc").value();
}

TEST(SandboxKeys, AreTheSameForTheNextGateway) {
  const auto made = authority();
  const auto file = write_keys(kSealing, *made);
  ASSERT_TRUE(file.has_value());
  for (int time = 0; time < 2; ++time) {
    const auto keys = read_keys(file->get());
    ASSERT_TRUE(keys.has_value()) << keys.error().message();
    EXPECT_EQ(keys->sealing.bytes(), kSealing);
    EXPECT_EQ(keys->authority->certificate(), made->certificate());
  }
}

TEST(SandboxKeys, NeedASealingKeyOfItsSize) {
  EXPECT_FALSE(write_keys("short", *authority()).has_value());
}

TEST(SandboxKeys, OfAnotherFileAreRefused) {
  const std::string secret(authority()->secret().value().bytes());
  const std::string other(authority()->secret().value().bytes());
  const std::size_t key = other.find("-----BEGIN PRIVATE");
  for (const std::string& text :
       {std::string(), kSealing, kSealing + "no PEM", kSealing.substr(1) + secret,
        kSealing + secret.substr(0, secret.find("-----BEGIN PRIVATE")),
        kSealing + secret.substr(0, secret.find("-----BEGIN PRIVATE")) + other.substr(key)}) {
    const auto file = sys::memory_file("caisson-test", text);
    ASSERT_TRUE(file.has_value());
    EXPECT_FALSE(read_keys(file->get()).has_value()) << text.size();
  }
}

}  // namespace
}  // namespace caisson::egress
