#include "egress/audit_keyring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace caisson::egress {
namespace {

using testing::HasSubstr;

class AuditKeyringTest : public testing::Test {
 protected:
  AuditKeyringTest() {
    std::string name = testing::TempDir() + "/keys-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    keys_ = folder_ / "state" / "audit";
  }
  ~AuditKeyringTest() override { std::filesystem::remove_all(folder_); }
  std::string refusal() {
    const auto keyring = AuditKeyring::open(keys_);
    return keyring.has_value() ? "" : keyring.error().message();
  }
  std::filesystem::path folder_, keys_;
};

TEST_F(AuditKeyringTest, TheKeyIsMadeOnceAndNobodyElses) {
  EXPECT_EQ(AuditKeyring::find(keys_).error().code(), Code::kNotFound);
  const std::string id = AuditChainKey::new_id();
  const auto first = AuditKeyring::open(keys_);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  const auto again = AuditKeyring::find(keys_);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(first->key_of(id).key.bytes(), again->key_of(id).key.bytes());
  EXPECT_EQ(AuditKeyring::open(keys_)->key_of(id).key.bytes(), first->key_of(id).key.bytes());
  struct stat info = {};
  ASSERT_EQ(::stat((keys_ / "key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_size, 32);
  ASSERT_EQ(::stat(keys_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(AuditKeyringTest, WhatOthersMayTouchIsRefused) {
  ASSERT_EQ(refusal(), "");
  std::filesystem::permissions(keys_ / "key", std::filesystem::perms(0640));
  EXPECT_THAT(refusal(), HasSubstr("others may read it"));
  std::filesystem::permissions(keys_ / "key", std::filesystem::perms(0600));
  std::ofstream(keys_ / "key") << "short";
  EXPECT_THAT(refusal(), HasSubstr("found 5 bytes; allowed are 32"));
  std::filesystem::remove(keys_ / "key");
  std::filesystem::create_symlink("elsewhere", keys_ / "key");
  EXPECT_NE(refusal(), "");
  std::filesystem::permissions(keys_, std::filesystem::perms(0777));
  EXPECT_THAT(refusal(), HasSubstr("others may write to the folder"));
}

TEST_F(AuditKeyringTest, AHeadIsKeptForEachChain) {
  const AuditKeyring keyring = AuditKeyring::open(keys_).value();
  const std::string id = AuditChainKey::new_id();
  EXPECT_EQ(keyring.known(id).value(), AuditHead());
  const Fd file = keyring.make_head_file(id).value();
  EXPECT_EQ(keyring.known(id).value(), AuditHead());
  const AuditHead head{.sequence = 12, .hash = std::string(64, 'a')};
  ASSERT_TRUE(write_head(file.get(), head).has_value());
  EXPECT_EQ(keyring.known(id).value(), head);
  EXPECT_EQ(read_head(keyring.head_file(id).value().get()).value(), head);
  std::ofstream(keys_ / "heads" / id) << "x";
  EXPECT_EQ(keyring.known(id).error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace caisson::egress
