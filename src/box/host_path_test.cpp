#include "box/host_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace caisson::box {
namespace {

class HostPathTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/caisson-host-path-XXXXXX";
    folder_ = ::mkdtemp(name);
    ASSERT_EQ(::mkdir((folder_ + "/dir").c_str(), 0755), 0);
    Fd file(::open((folder_ + "/dir/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_TRUE(file.valid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string fault(const std::string& path) const {
    const auto opened = open_host_path(folder_ + path);
    return opened.has_value() ? "" : opened.error().message();
  }
  std::string folder_;
};

TEST_F(HostPathTest, FilesAndDirectoriesOpen) {
  const auto directory = open_host_path(folder_ + "/dir");
  ASSERT_TRUE(directory.has_value());
  EXPECT_TRUE(directory->directory);
  EXPECT_EQ(directory->uid, ::geteuid());
  const auto file = open_host_path(folder_ + "/dir/file");
  ASSERT_TRUE(file.has_value());
  EXPECT_FALSE(file->directory);
  EXPECT_TRUE(reopen(file->fd.get(), O_RDONLY).has_value());
  EXPECT_TRUE(open_host_path(".").has_value());
}

TEST_F(HostPathTest, LinksAreNamedAndRefused) {
  ASSERT_EQ(::symlink("dir", (folder_ + "/link").c_str()), 0);
  for (const char* path : {"/link", "/link/file"})
    EXPECT_NE(fault(path).find("'" + folder_ + "/link' is a symbolic link to 'dir'"),
              std::string::npos)
        << fault(path);
}

TEST_F(HostPathTest, LinksDirectlyInTheRootAreTheHostsOwn) {
  // Debian has /bin -> usr/bin; elsewhere it is a folder, and opens as well.
  EXPECT_TRUE(open_host_path("/bin").has_value());
  EXPECT_TRUE(open_host_path("/bin/").has_value());
}

TEST_F(HostPathTest, WhatIsNoFileOrDirectoryIsRefused) {
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_NE(fault("/pipe").find("is a pipe"), std::string::npos);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_ + "/socket";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(fault("/socket").find("is a socket"), std::string::npos);
  EXPECT_NE(open_host_path("/dev/null").error().message().find("is a device"), std::string::npos);
}

TEST_F(HostPathTest, KernelFileSystemsAreRefused) {
  EXPECT_NE(open_host_path("/proc/sys").error().message().find("(proc)"), std::string::npos);
  EXPECT_NE(open_host_path("/sys/kernel").error().message().find("(sysfs)"), std::string::npos);
}

TEST_F(HostPathTest, WhatIsNotThereIsNotFound) {
  const auto opened = open_host_path(folder_ + "/nothing");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kNotFound);
  EXPECT_NE(opened.error().message().find("/nothing'"), std::string::npos);
  EXPECT_FALSE(open_host_path("").has_value());
}

TEST_F(HostPathTest, TargetsAreAFolderAndAName) {
  const auto made = open_host_target(folder_ + "/dir/new");
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->name, "new");
  EXPECT_FALSE(made->inside.valid());
  const auto existing = open_host_target(folder_ + "/dir/");
  ASSERT_TRUE(existing.has_value());
  EXPECT_TRUE(existing->inside.valid());
  EXPECT_EQ(existing->name, "dir");
  EXPECT_TRUE(open_host_target(".")->inside.valid());
  EXPECT_EQ(open_host_target(folder_ + "/none/x").error().code(), Code::kNotFound);
  EXPECT_EQ(open_host_target(folder_ + "/none/").error().code(), Code::kNotFound);
  ASSERT_EQ(::symlink("dir", (folder_ + "/link").c_str()), 0);
  EXPECT_FALSE(open_host_target(folder_ + "/link/x").has_value());
}

TEST(LastComponent, OfEveryForm) {
  EXPECT_EQ(last_component("a/b"), "b");
  EXPECT_EQ(last_component("a/b//"), "b");
  EXPECT_EQ(last_component("b"), "b");
  EXPECT_EQ(last_component("/b"), "b");
  EXPECT_EQ(last_component("/"), "");
  EXPECT_EQ(last_component(".."), "");
  EXPECT_EQ(last_component("a/."), "");
}

}  // namespace
}  // namespace caisson::box
