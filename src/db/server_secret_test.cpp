#include "db/server_secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(ServerSecret, IsMadeOnceForItsOwnerAlone) {
  const TemporaryFolder folder;
  const std::string directory = server_directory(folder.path());
  const ServerSecret first = ServerSecret::open(directory).value();
  const ServerSecret again = ServerSecret::open(directory).value();
  const std::string token = first.token(TokenPurpose::kEnvdAccess, "i1");
  EXPECT_THAT(token, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(again.token(TokenPurpose::kEnvdAccess, "i1"), token);
  struct stat status{};
  ASSERT_EQ(::stat((directory + "/secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files += entry.exists();
  EXPECT_EQ(files, 1);
}

TEST(ServerSecret, TokensDifferBySandboxPurposeAndServer) {
  const TemporaryFolder here, there;
  const ServerSecret secret = ServerSecret::open(here.path()).value();
  const std::string token = secret.token(TokenPurpose::kEnvdAccess, "i1");
  EXPECT_NE(secret.token(TokenPurpose::kEnvdAccess, "i2"), token);
  EXPECT_NE(secret.token(TokenPurpose::kTraffic, "i1"), token);
  EXPECT_NE(ServerSecret::open(there.path())->token(TokenPurpose::kEnvdAccess, "i1"), token);
  EXPECT_TRUE(secret.matches(TokenPurpose::kEnvdAccess, "i1", token));
  EXPECT_FALSE(secret.matches(TokenPurpose::kTraffic, "i1", token));
  EXPECT_FALSE(secret.matches(TokenPurpose::kEnvdAccess, "i1", ""));
}

TEST(ServerSecret, WhatOthersMayReadOrIsNotWholeIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/secret";
  ASSERT_TRUE(ServerSecret::open(folder.path()));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  auto secret = ServerSecret::open(folder.path());
  ASSERT_FALSE(secret);
  EXPECT_EQ(secret.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(secret.error().message(), HasSubstr(path));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::truncate(path.c_str(), 31), 0);
  secret = ServerSecret::open(folder.path());
  ASSERT_FALSE(secret);
  EXPECT_THAT(secret.error().message(), HasSubstr("31 bytes"));
}

TEST(ServerSecret, ALinkIsNotFollowed) {
  const TemporaryFolder folder;
  ASSERT_TRUE(ServerSecret::open(folder.path() + "/other"));
  ASSERT_EQ(::symlink("other/secret", (folder.path() + "/secret").c_str()), 0);
  EXPECT_FALSE(ServerSecret::open(folder.path()));
}

TEST(ServerSecret, ProcessesThatMakeItAtOnceAgree) {
  const TemporaryFolder folder;
  std::vector<int> ends;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    int pair[2];
    ASSERT_EQ(::pipe2(pair, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const auto secret = ServerSecret::open(folder.path());
      const std::string token =
          secret.has_value() ? secret->token(TokenPurpose::kTraffic, "i1") : "none";
      ::_exit(::write(pair[1], token.data(), token.size()) > 0 ? 0 : 1);
    }
    ::close(pair[1]);
    ends.push_back(pair[0]);
    children.push_back(pid);
  }
  const std::string expected =
      ServerSecret::open(folder.path())->token(TokenPurpose::kTraffic, "i1");
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[i], &status, 0), children[i]);
    char token[65] = {};
    EXPECT_EQ(::read(ends[i], token, 64), 64);
    EXPECT_EQ(token, expected);
    ::close(ends[i]);
  }
}

}  // namespace
}  // namespace caisson::db
