#include "box/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace caisson::box {
namespace {

TEST(Connection, GivesUpOnAPeerThatIsSilent) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd peer(ends[1]);
  Connection connection{Fd(ends[0])};
  ASSERT_TRUE(connection.flush().has_value());
  const auto frame = connection.wait(20);
  ASSERT_FALSE(frame.has_value());
  EXPECT_EQ(frame.error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(frame.error().message(), "the sandbox has not answered for 20 ms");
}

}  // namespace
}  // namespace caisson::box
