#include "box/sockets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fd.h"
#include "base/sys.h"

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

TEST_F(Sockets, AreFoundOnWhatIsMountedBelow) {
  std::filesystem::create_directory(path_ + "/below");
  // A mount of its own needs namespaces of its own.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
    const std::string group = "0 " + std::to_string(::getegid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        !sys::write_file(AT_FDCWD, "/proc/self/uid_map", user) ||
        !sys::write_file(AT_FDCWD, "/proc/self/setgroups", "deny") ||
        !sys::write_file(AT_FDCWD, "/proc/self/gid_map", group) ||
        ::mount("tmpfs", (path_ + "/below").c_str(), "tmpfs", 0, "mode=777") != 0)
      ::_exit(1);
    make_socket("below/three");
    const Fd here(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto found = find_sockets(here.get());
    ::_exit(found.has_value() && *found == std::vector<std::string>{"below/three"} ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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
