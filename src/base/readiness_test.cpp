#include "base/readiness.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace caisson {
namespace {

// A service manager's socket of this name ('@': without a file).
Fd listen_at(std::string name) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  if (name[0] == '@') address.sun_path[0] = '\0';
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  return socket;
}

std::string heard(const Fd& socket) {
  char room[256];
  const ssize_t count = ::recv(socket.get(), room, sizeof room, 0);
  return count < 0 ? "" : std::string(room, static_cast<std::size_t>(count));
}

TEST(Readiness, IsToldToTheSocketOfTheEnvironment) {
  const std::string unique = std::to_string(::getpid());
  const std::string path = std::filesystem::temp_directory_path() / ("notify-" + unique);
  for (const std::string& name : {path, "@caisson-notify-" + unique}) {
    const Fd socket = listen_at(name);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const auto readiness = Readiness::open();
    ASSERT_TRUE(readiness.has_value()) << readiness.error().message();
    EXPECT_EQ(::getenv("NOTIFY_SOCKET"), nullptr);
    readiness->tell("READY=1");
    EXPECT_EQ(heard(socket), "READY=1");
  }
  std::filesystem::remove(path);
}

TEST(Readiness, WithoutAManagerNothingIsTold) {
  ::unsetenv("NOTIFY_SOCKET");
  const auto readiness = Readiness::open();
  ASSERT_TRUE(readiness.has_value());
  readiness->tell("READY=1");
}

TEST(Readiness, ANameThatIsNoneIsAnError) {
  for (const std::string& name : {std::string("relative"), "/" + std::string(200, 'x'),
                                  std::string("/nobody/listens/here")}) {
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const auto readiness = Readiness::open();
    ASSERT_FALSE(readiness.has_value()) << name;
    EXPECT_TRUE(readiness.error().message().contains("NOTIFY_SOCKET"));
  }
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace caisson
