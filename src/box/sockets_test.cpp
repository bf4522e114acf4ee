#include "box/sockets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.h"

namespace caisson::box {
namespace {

class Sockets : public ::testing::Test {
 protected:
  Sockets() {
    char name[] = "/tmp/caisson-sockets-XXXXXX";
    path_ = ::mkdtemp(name);
    fd_ = Fd(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~Sockets() override { std::filesystem::remove_all(path_); }

  void make_socket(const std::string& name) {
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (path_ + "/" + name).c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }

  std::string path_;
  Fd fd_;
};

TEST_F(Sockets, AreFoundAtAnyDepthAndThroughNoLink) {
  std::filesystem::create_directories(path_ + "/a/b");
  make_socket("one");
  make_socket("a/b/two");
  std::filesystem::create_directory_symlink("/tmp", path_ + "/elsewhere");
  const auto found = find_sockets(fd_.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(*found, ::testing::UnorderedElementsAre("one", "a/b/two"));
}

TEST_F(Sockets, TooManyAreRefusedByName) {
  for (std::size_t i = 0; i <= kMostSockets; ++i) make_socket(std::to_string(i));
  const auto found = find_sockets(fd_.get());
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message(), ::testing::HasSubstr("more than 32 sockets"));
}

TEST_F(Sockets, NoneIsNoError) {
  const auto found = find_sockets(fd_.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->empty());
}

}  // namespace
}  // namespace caisson::box
