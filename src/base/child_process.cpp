#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/guards.h"
#include "base/kernel_abi.h"

namespace caisson {
namespace {

constexpr int kFirstChildFd = 3;

// Runs in a forked child of a process that may have threads: system calls only.
[[noreturn]] void become(const char* path, char* const* arguments,
                         std::span<const int> descriptors) {
  char* environment[] = {nullptr, nullptr};
#if defined(CAISSON_TEST_SWITCHES)
  environment[0] = const_cast<char*>(guard_variable());
#endif
  // First out of each other's way, then to the numbers that the program expects.
  int moved[8] = {};
  std::size_t count = 0;
  for (int fd : descriptors) moved[count++] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 64);
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null_fd, fd);
  int top = kFirstChildFd;
  for (std::size_t i = 0; i < count; ++i, ++top) {
    if (moved[i] >= 0) {
      dup2(moved[i], top);
    } else {
      close(top);
    }
  }
  close_range(static_cast<unsigned>(top), ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_IGN);
  execve(path, arguments, environment);
  _exit(127);
}

}  // namespace

Result<SocketPair> make_socket_pair(int type) {
  int fds[2] = {-1, -1};
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return fail_errno("socketpair");
  return SocketPair{Fd(fds[0]), Fd(fds[1])};
}

Status ChildProcess::start(const std::string& path, const std::vector<std::string>& arguments,
                           std::span<const int> descriptors) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) return fail_errno("fork");
  if (pid_ == 0) become(path.c_str(), pointers.data(), descriptors);
  return {};
}

int ChildProcess::end() {
  if (pid_ <= 0) return status_;
  kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
  return wait();
}

int ChildProcess::wait() {
  rusage usage = {};
  if (pid_ > 0 && TEMP_FAILURE_RETRY(wait4(pid_, &status_, 0, &usage)) == pid_) {
    peak_memory_ = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  }
  pid_ = -1;
  return status_;
}

}  // namespace caisson
