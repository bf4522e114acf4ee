#include "box/accounts.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.h"

namespace caisson::box {
namespace {

constexpr std::string_view kPasswd =
    "root:x:0:0::/root:/bin/sh\nbroken\n:x:5\nuser:x:1000:1001::/home/user:/bin/sh\n"
    "odd:x:notanumber:1::/:\nweb:x:33:33::/:";
constexpr std::string_view kGroup = "root:x:0:\nstaff:x:50:user\n";

TEST(FindAccount, TheDefaultIsTheUserWithId1000OrElseRoot) {
  const Account account = find_account_in(kPasswd, kGroup, "");
  EXPECT_EQ(account.uid, 1000u);
  EXPECT_EQ(account.gid, 1001u);
  EXPECT_EQ(account.user, "user");
  EXPECT_EQ(find_account_in("root:x:0:0::/:\n", kGroup, "").user, "0");
  EXPECT_EQ(find_account_in("", "", "").uid, 0u);
}

TEST(FindAccount, NamesNumbersAndGroups) {
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "web").uid, 33u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "web:staff").gid, 50u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "1000").gid, 1001u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "77").gid, 77u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "77:88").gid, 88u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "web").user, "web");
  for (const char* user : {"", "web", "web:staff", "1000", "77", "77:88"})
    EXPECT_EQ(find_account_in(kPasswd, kGroup, user).unknown, "") << user;
}

TEST(FindAccount, WhatIsMalformedOrUnknownCountsAsAbsent) {
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "nobody").uid, 1000u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "odd").uid, 1000u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "web:nogroup").gid, 33u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "99999999999999999999").uid, 1000u);
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "nobody").unknown, "user nobody");
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "web:nogroup").unknown, "group nogroup");
  EXPECT_EQ(find_account_in(kPasswd, kGroup, "nobody:nogroup").unknown, "user nobody");
}

// An image's root directory.
class AccountFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "caisson-accounts-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directory(root_ / "etc");
    std::ofstream(root_ / "etc/passwd") << kPasswd;
    std::ofstream(root_ / "etc/group") << kGroup;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  Result<Account> find(const std::string& user) {
    const Fd root(::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const int fd = root.get();
    return find_account({&fd, 1}, user);
  }
  std::string error(const std::string& user) {
    const auto found = find(user);
    return found.has_value() ? "" : found.error().message();
  }

  std::filesystem::path root_;
};

TEST_F(AccountFiles, AreReadInTheImage) {
  EXPECT_EQ(find("web:staff")->gid, 50u);
  std::filesystem::remove(root_ / "etc/passwd");
  EXPECT_EQ(find("web:staff")->unknown, "user web");
}

TEST_F(AccountFiles, ThatAreTooLongAreRefusedWhereANameIsLookedFor) {
  std::ofstream(root_ / "etc/passwd", std::ios::app) << std::string((1 << 20) + 1, '\n');
  for (const char* user : {"", "web", "web:50"})
    EXPECT_EQ(error(user), "the image's /etc/passwd: it is longer than the 1 MiB that is allowed");
  EXPECT_EQ(find("1000")->gid, 1000u);
  EXPECT_EQ(find("33:staff")->gid, 50u);
}

TEST_F(AccountFiles, BehindTooManyLinksAreRefused) {
  std::filesystem::remove(root_ / "etc/group");
  std::filesystem::create_symlink("group", root_ / "etc/group");
  EXPECT_EQ(error("web:staff"),
            "the image's /etc/group: a file of the image: more links are on its way than the 40 "
            "that are allowed");
  EXPECT_EQ(find("web:50")->gid, 50u);
  EXPECT_EQ(find("web")->gid, 33u);
}

}  // namespace
}  // namespace caisson::box
