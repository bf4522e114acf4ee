// What the fetcher's filter lets through of calls whose arguments it looks at.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>

#include "base/kernel_abi.h"
#include "image/fetch/confine.h"

namespace caisson::image {
namespace {

constexpr int kNotConfined = 77;

// The status of a confined process that does this.
int confined(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(confine_fetcher({}).has_value() ? work() : kNotConfined);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class FetchConfine : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    GTEST_SKIP() << "the sanitizers' build has no filter";
#endif
#endif
    if (confined([] { return 0; }) == kNotConfined) GTEST_SKIP() << "no Landlock";
  }
};

TEST_F(FetchConfine, ThreadsAreMadeAndProcessesAreNot) {
  EXPECT_EQ(confined([] {
              int ran = 1;
              std::thread([&] { ran = 0; }).join();
              return ran;
            }),
            0);
  for (const unsigned long flags : {0ul, static_cast<unsigned long>(CLONE_NEWUSER)}) {
    EXPECT_EQ(confined([flags] {
                const long pid = ::syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
                if (pid == 0) ::_exit(0);
                return pid < 0 && errno == EPERM ? 0 : 1;
              }),
              0);
  }
}

TEST_F(FetchConfine, OnlyItsOwnLimitsAreItsToSee) {
  EXPECT_EQ(confined([] {
              rlimit limit{};
              return ::getrlimit(RLIMIT_NOFILE, &limit);
            }),
            0);
  EXPECT_EQ(confined([] {
              rlimit limit{};
              const long done =
                  ::syscall(SYS_prlimit64, ::getpid(), RLIMIT_NOFILE, nullptr, &limit);
              return done < 0 && errno == EPERM ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace caisson::image
