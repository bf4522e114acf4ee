#include "base/sys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace caisson::sys {
namespace {

std::pair<Fd, Fd> sockets(int type) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string read_all(const Fd& file) {
  char bytes[64];
  const ssize_t count = ::read(file.get(), bytes, sizeof bytes);
  return count < 0 ? "" : std::string(bytes, static_cast<std::size_t>(count));
}

// The far end of a pipe that holds `text`.
Fd pipe_with(const std::string& text) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd write_end(ends[1]);
  EXPECT_EQ(::write(write_end.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return Fd(ends[0]);
}

TEST(MemoryFile, HasItsBytesFromTheStartAndKeepsThem) {
  auto file = memory_file("caisson-test", "some bytes");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(read_all(*file), "some bytes");
  EXPECT_EQ(::pwrite(file->get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(file->get(), 0), -1);
  EXPECT_EQ(::fcntl(file->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Passing, DescriptorsArriveInOrderAndCloseOnExec) {
  const auto [here, there] = sockets(SOCK_STREAM);
  const Fd one = pipe_with("one");
  const Fd two = pipe_with("two");
  const int both[] = {one.get(), two.get()};
  ASSERT_EQ(send_part(here.get(), "hello", both), 5);
  char room[64];
  const ReceivedPart part = receive_part(there.get(), room);
  ASSERT_EQ(part.count, 5);
  EXPECT_EQ(std::string(room, 5), "hello");
  EXPECT_FALSE(part.cut);
  ASSERT_EQ(part.descriptors.size(), 2u);
  EXPECT_EQ(read_all(part.descriptors[0]), "one");
  EXPECT_EQ(read_all(part.descriptors[1]), "two");
  EXPECT_EQ(::fcntl(part.descriptors[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST(Passing, ManyDescriptorsFitOneMessage) {
  const auto [here, there] = sockets(SOCK_SEQPACKET);
  const Fd one = pipe_with("x");
  const std::vector<int> many(kMaxPassedDescriptors, one.get());
  ASSERT_TRUE(send_message(here.get(), "all", many).has_value());
  const auto message = recv_message(there.get(), 16);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->bytes, "all");
  EXPECT_EQ(message->descriptors.size(), kMaxPassedDescriptors);
}

// In a process of an ordinary user, since the kernel makes no such count for root: 0 where a send
// with so many descriptors under way already does what is said of it, else the line that differs.
int send_beside_many(rlim_t soft, rlim_t hard, int wanted_error) {
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return __LINE__;
  const auto [here, there] = sockets(SOCK_SEQPACKET);
  const auto [one, other] = sockets(SOCK_SEQPACKET);
  const std::vector<int> many(100, 0);
  if (send_part(here.get(), "x", many) != 1) return __LINE__;
  const rlimit files{soft, hard};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return __LINE__;
  errno = 0;
  const ssize_t sent = send_part(one.get(), "x", {{0}});
  if (wanted_error == 0 && sent != 1) return __LINE__;
  if (wanted_error != 0 && (sent != -1 || errno != wanted_error)) return __LINE__;
  rlimit after{};
  if (::getrlimit(RLIMIT_NOFILE, &after) != 0 || after.rlim_cur != soft) return __LINE__;
  return 0;
}

TEST(Passing, HowManyDescriptorsOthersSendIsHeldAgainstTheHardLimitAlone) {
  const auto in_child = [](rlim_t soft, rlim_t hard, int wanted_error) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(std::min(send_beside_many(soft, hard, wanted_error), 255));
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  };
  EXPECT_EQ(in_child(50, 1000, 0), 0);
  EXPECT_EQ(in_child(50, 50, ETOOMANYREFS), 0);
}

TEST(Passing, ACutMessageIsAnError) {
  const auto [here, there] = sockets(SOCK_SEQPACKET);
  ASSERT_TRUE(send_message(here.get(), "longer than that", {}).has_value());
  const auto message = recv_message(there.get(), 4);
  ASSERT_FALSE(message.has_value());
  EXPECT_NE(message.error().message().find("longer than allowed"), std::string::npos);
}

TEST(Passing, WhatAPeerSaidBeforeItLeftOursUnreadIsRead) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Fd here(ends[0]);
  Fd there(ends[1]);
  ASSERT_TRUE(send_message(here.get(), "never read", {}));
  ASSERT_TRUE(send_message(there.get(), "the reason", {}));
  there.reset();
  const auto last = recv_message(here.get(), 64);
  ASSERT_TRUE(last.has_value()) << last.error().message();
  EXPECT_EQ(last->bytes, "the reason");
  const auto end = recv_message(here.get(), 64);
  ASSERT_TRUE(end.has_value()) << end.error().message();
  EXPECT_EQ(end->bytes, "");
}

TEST(Passing, NothingToReadAndNobodyThereAreErrnos) {
  auto [here, there] = sockets(SOCK_STREAM);
  char room[4];
  EXPECT_EQ(receive_part(there.get(), room).count, -1);
  EXPECT_EQ(errno, EAGAIN);
  there.reset();
  EXPECT_EQ(send_part(here.get(), "x", {}), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(receive_part(here.get(), room).count, 0);
  EXPECT_FALSE(send_message(here.get(), "x", {}).has_value());
}

}  // namespace
}  // namespace caisson::sys
