#include "guest/users.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/fd.h"

namespace caisson::guest {
namespace {

class Users : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-users-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    std::filesystem::create_directory(root_ + "/etc");
    root_fd_ = Fd(::open(name, O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/etc/" + name, std::ios::binary) << text;
  }
  Result<Account> resolve(std::string_view user) { return resolve_user(user, root_fd_.get()); }
  std::string error(std::string_view user) {
    const Result<Account> account = resolve(user);
    return account ? "" : account.error().message();
  }

  std::string root_;
  Fd root_fd_;
};

TEST_F(Users, NamedUserHasHisEntryAndHisGroups) {
  write("passwd", "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1001:U:/home/user:/bin/zsh\n");
  write("group", "root:x:0:\nstaff:x:50:other,user\nsuper:x:51:username\nplain:x:52:user\n");
  const Account account = resolve("user").value();
  EXPECT_EQ(account.uid, 1000u);
  EXPECT_EQ(account.gid, 1001u);
  EXPECT_EQ(account.name, "user");
  EXPECT_EQ(account.home, "/home/user");
  EXPECT_EQ(account.shell, "/bin/zsh");
  EXPECT_EQ(account.groups, (std::vector<gid_t>{50, 52}));
}

TEST_F(Users, GroupCanBeNamedOrANumber) {
  write("passwd", "user:x:1000:1000::/home/user:/bin/sh\n");
  write("group", "wheel:x:10:\n");
  EXPECT_EQ(resolve("user:wheel").value().gid, 10u);
  EXPECT_EQ(resolve("user:77").value().gid, 77u);
  EXPECT_EQ(resolve("5:wheel").value().gid, 10u);
  EXPECT_EQ(error("user:nogroup"), "group 'nogroup': no such entry in /etc/group");
}

TEST_F(Users, NumbersNeedNoFile) {
  const Account account = resolve("1234").value();
  EXPECT_EQ(account.uid, 1234u);
  EXPECT_EQ(account.gid, 1234u);
  EXPECT_EQ(account.home, "/");
  EXPECT_EQ(resolve("1:2").value().gid, 2u);
  EXPECT_EQ(resolve("").value().uid, 0u);
}

TEST_F(Users, ANumberWithAnEntryHasItsHome) {
  write("passwd", "user:x:1000:1001::/home/user:/bin/sh\n");
  EXPECT_EQ(resolve("1000").value().home, "/home/user");
  EXPECT_EQ(resolve("1000").value().gid, 1001u);
  EXPECT_EQ(resolve("1000:5").value().gid, 5u);
  EXPECT_TRUE(resolve("1000").value().groups.empty());
  write("group", "audio:x:29:other,user\nuser:x:1001:\n");
  EXPECT_EQ(resolve("1000").value().groups, (std::vector<gid_t>{29}));
  EXPECT_TRUE(resolve("1000:5").value().groups.empty());
  EXPECT_TRUE(resolve("1234").value().groups.empty());
}

TEST_F(Users, UnknownNameIsNotFound) {
  EXPECT_EQ(resolve("ghost").error().code(), Code::kNotFound);
  write("passwd", "root:x:0:0::/root:/bin/sh\n");
  EXPECT_EQ(error("ghost"), "user 'ghost': no such entry in /etc/passwd");
}

TEST_F(Users, MalformedSpecIsRefused) {
  for (const char* user : {":", "a:", ":b", "a:b:c"})
    EXPECT_EQ(resolve(user).error().code(), Code::kInvalidArgument) << user;
  EXPECT_EQ(error("\n:"), "user '?:': allowed are NAME, UID, NAME:GROUP and UID:GID");
}

TEST_F(Users, LinesThatAreNotWellFormedCountAsAbsent) {
  write("passwd",
        std::string("a:x:1:1:::/bin/sh:more\nb:x:-1:1::/:/bin/sh\nc:x:4294967295:1::/:/bin/sh\n"
                    "d:x:1 :1::/:/bin/sh\n:x:5:5::/:/bin/sh\ne:x:0x10:1::/:/bin/sh\nf:x:1\n"
                    "g:x:99999999999:1::/:/bin/sh\n") +
            "h:x:1:1::/" + std::string(1, '\0') + ":/bin/sh\n" + std::string(300, 'i') +
            ":x:1:1::/:/bin/sh\nok:x:7:8::relative:noshell");
  for (const char* user : {"a", "b", "c", "d", "e", "f", "g", "h"})
    EXPECT_EQ(resolve(user).error().code(), Code::kNotFound) << user;
  const Account account = resolve("ok").value();
  EXPECT_EQ(account.uid, 7u);
  EXPECT_EQ(account.home, "/");
  EXPECT_EQ(account.shell, "/bin/sh");
}

TEST_F(Users, LinksAreNotFollowed) {
  std::ofstream(root_ + "/real") << "user:x:1000:1000::/:/bin/sh\n";
  ASSERT_EQ(::symlink("../real", (root_ + "/etc/passwd").c_str()), 0);
  EXPECT_EQ(resolve("user").error().code(), Code::kInvalidArgument);
  std::filesystem::remove_all(root_ + "/etc");
  std::filesystem::create_directory(root_ + "/other");
  std::ofstream(root_ + "/other/passwd") << "user:x:1000:1000::/:/bin/sh\n";
  ASSERT_EQ(::symlink("other", (root_ + "/etc").c_str()), 0);
  EXPECT_FALSE(resolve("user").has_value());
}

TEST_F(Users, AFifoIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((root_ + "/etc/passwd").c_str(), 0600), 0);
  EXPECT_EQ(error("user"), "user 'user': /etc/passwd is not a regular file");
  EXPECT_EQ(resolve("0").value().uid, 0u);
}

TEST_F(Users, AHugeFileIsRefused) {
  write("passwd", "");
  ASSERT_EQ(::truncate((root_ + "/etc/passwd").c_str(), kMaxAccountFile + 1), 0);
  EXPECT_EQ(error("user"), "user 'user': /etc/passwd is longer than 1 MiB");
}

TEST_F(Users, GroupsAreBounded) {
  write("passwd", "user:x:1000:1000::/:/bin/sh\n");
  std::string groups;
  for (int i = 0; i < 1000; ++i)
    groups += "g" + std::to_string(i) + ":x:" + std::to_string(i + 2) + ":user\n";
  write("group", groups);
  EXPECT_EQ(resolve("user").value().groups.size(), kMaxSupplementaryGroups);
}

TEST_F(Users, NamesOfIds) {
  EXPECT_EQ(AccountNames::read(root_fd_.get()).user(0), "");
  write("passwd", "user:x:1000:1000::/:/bin/sh\nalias:x:1000:1000::/:/bin/sh\nbad:x:-1:1::/:\n");
  write("group", "staff:x:50:\n");
  const AccountNames names = AccountNames::read(root_fd_.get());
  EXPECT_EQ(names.user(1000), "user");
  EXPECT_EQ(names.group(50), "staff");
  EXPECT_EQ(names.user(1), "");
  EXPECT_EQ(names.group(1000), "");
}

}  // namespace
}  // namespace caisson::guest
