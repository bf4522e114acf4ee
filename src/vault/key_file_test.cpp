#include "vault/key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "db/database.h"
#include "db/server_secret.h"

namespace caisson::vault {
namespace {

class KeyFileTest : public ::testing::Test {
 protected:
  KeyFileTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "key-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    state_ = pattern;
  }
  ~KeyFileTest() override { std::filesystem::remove_all(state_); }

  MasterKeys keys() const {
    const auto folder = prepare_keys(state_);
    EXPECT_TRUE(folder.has_value()) << folder.error().message();
    auto read = read_keys(folder->get());
    EXPECT_TRUE(read.has_value()) << read.error().message();
    return std::move(read).value_or(MasterKeys());
  }

  std::string state_;
};

TEST_F(KeyFileTest, ANewOneIsRandomAndStays) {
  const MasterKeys made = keys();
  EXPECT_EQ(made.key.bytes().size(), 32u);
  EXPECT_EQ(made.earlier.bytes(), "");
  EXPECT_EQ(keys().key.bytes(), made.key.bytes());
  // A server that comes afterwards has never sealed anything itself.
  const auto secret = db::ServerSecret::open(db::server_directory(state_));
  ASSERT_TRUE(secret.has_value());
  EXPECT_EQ(keys().earlier.bytes(), "");
}

TEST_F(KeyFileTest, AServerOfBeforeLeavesWhatItSealedWith) {
  const auto secret = db::ServerSecret::open(db::server_directory(state_));
  ASSERT_TRUE(secret.has_value());
  const MasterKeys made = keys();
  EXPECT_EQ(made.earlier.bytes(), secret->token(db::TokenPurpose::kEarlierVault, ""));
  EXPECT_NE(made.key.bytes(), made.earlier.bytes());
  // Once: what the server's user writes there later is not taken up.
  std::filesystem::remove(db::server_directory(state_) + "/secret");
  ASSERT_TRUE(db::ServerSecret::open(db::server_directory(state_)).has_value());
  EXPECT_EQ(keys().earlier.bytes(), made.earlier.bytes());
}

TEST_F(KeyFileTest, WhatOthersCouldChangeOrReadIsRefused) {
  EXPECT_TRUE(prepare_keys(state_).has_value());
  ASSERT_EQ(::chmod((state_ + "/vault").c_str(), 0777), 0);
  EXPECT_EQ(prepare_keys(state_).error().code(), Code::kFailedPrecondition);
  ASSERT_EQ(::chmod((state_ + "/vault").c_str(), 0700), 0);
  ASSERT_EQ(::truncate((state_ + "/vault/key").c_str(), 5), 0);
  EXPECT_THAT(prepare_keys(state_).error().message(), ::testing::HasSubstr("found 5 bytes"));
}

}  // namespace
}  // namespace caisson::vault
