#include "box/accounts.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace caisson::box
