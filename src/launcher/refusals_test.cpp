#include "launcher/refusals.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>

#include "base/sys.h"
#include "base/verdict.h"
#include "guest/seccomp/filters.h"
#include "launcher/command.h"

namespace caisson::launcher {
namespace {

namespace seccomp = guest::seccomp;

// A process behind the default profile that makes one refused call: mount(2), whose errno it ends
// with. Killed in the destructor.
class Refused {
 public:
  Refused() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd here(ends[0]);
    Fd there(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      auto listener = seccomp::install_with_listener(
          seccomp::table(seccomp::Profile::kDefault, seccomp::Reporting::kListener));
      if (!listener) ::_exit(200);
      const int fd = listener->get();
      if (sys::send_part(there.get(), "l", {&fd, 1}) != 1) ::_exit(201);
      listener->reset();
      ::_exit(::mount("a", "/tmp", "tmpfs", 0, nullptr) == 0 ? 0 : errno);
    }
    there.reset();
    auto message = sys::recv_message(here.get(), 8);
    EXPECT_TRUE(message.has_value());
    if (message && message->descriptors.size() == 1) listener_ = std::move(message->descriptors[0]);
  }
  ~Refused() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Refused(const Refused&) = delete;
  Refused& operator=(const Refused&) = delete;

  Fd take_listener() { return std::move(listener_); }
  // The wait status of its end.
  int wait() {
    int status = -1;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  Fd listener_;
};

short wait_for(int fd) {
  pollfd entry{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  return entry.revents;
}

TEST(Refusals, ARefusedCallFailsAndIsCounted) {
  Refused process;
  Refusals refusals;
  refusals.set_listener(process.take_listener());
  EXPECT_EQ(refusals.take(wait_for(refusals.fd()), Refusals::Answer::kRefuse), "mount");
  const int status = process.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EPERM);
  EXPECT_EQ(refusals.list(), (std::vector<Refusal>{{SYS_mount, 1, "mount"}}));
  // Nobody is left: the listener goes, instead of waking us for ever.
  EXPECT_EQ(refusals.take(wait_for(refusals.fd()), Refusals::Answer::kRefuse), std::nullopt);
  EXPECT_EQ(refusals.fd(), -1);
}

TEST(Refusals, AHeldCallWaitsAndCanBeKilled) {
  Refused process;
  Refusals refusals;
  refusals.set_listener(process.take_listener());
  EXPECT_EQ(refusals.take(wait_for(refusals.fd()), Refusals::Answer::kHold), "mount");
  EXPECT_EQ(refusals.fd(), -1) << "a held call is not polled for again";
  EXPECT_EQ(::kill(process.pid(), SIGKILL), 0);
  const int status = process.wait();
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Refusals, AHeldCallNeverSucceedsWhenTheListenerGoes) {
  Refused process;
  {
    Refusals refusals;
    refusals.set_listener(process.take_listener());
    EXPECT_EQ(refusals.take(wait_for(refusals.fd()), Refusals::Answer::kHold), "mount");
  }
  const int status = process.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), ENOSYS);
}

TEST(Refusals, WhatIsNoListenerIsLetGo) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd writer(ends[1]);
  Refusals refusals;
  refusals.set_listener(Fd(ends[0]));
  EXPECT_EQ(refusals.take(POLLIN, Refusals::Answer::kRefuse), std::nullopt);
  EXPECT_EQ(refusals.fd(), -1);
}

// The numbers table of the seccomp compiler: name and number.
std::map<std::string, int> numbers() {
  std::map<std::string, int> found;
  std::ifstream file(CAISSON_SECCOMP_FOLDER "/numbers_x86_64.def");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    int number = 0;
    std::string name;
    if (words >> number >> name) found[name] = number;
  }
  return found;
}

TEST(Refusals, EveryCallThatIsReportedHasAName) {
  const auto all = numbers();
  ASSERT_GT(all.size(), 300u);
  std::ifstream file(CAISSON_SECCOMP_FOLDER "/policy.def");
  int checked = 0;
  std::string call;
  const auto check = [&](const std::string& name) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_FALSE(refused_call_name(all.at(name), 0).starts_with("system call ")) << name;
    ++checked;
  };
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, name;
    words >> first;
    if (first == "call") {
      words >> call;
    } else if (first == "report" && line.starts_with("report")) {
      while (words >> name) check(name);
    } else if (line.starts_with(" ") && line.contains("report")) {
      check(call);  // a rule below `call NAME`
    }
  }
  EXPECT_GT(checked, 30);
  EXPECT_EQ(refused_call_name(SYS_socket, AF_VSOCK), "socket AF_VSOCK");
  EXPECT_EQ(refused_call_name(SYS_socket, 99), "socket family 99");
  EXPECT_EQ(refused_call_name(100'000, 0), "system call 100000");
}

class NoSlot final : public wall::ExecSlot {
 public:
  explicit NoSlot(std::uint64_t pids_now = 0) { usage_.pids_now = pids_now; }
  std::span<const int> descriptors() const override { return {}; }
  bool born_in_last() const override { return false; }
  Result<wall::Usage> sample() override { return usage_; }
  Status kill() override { return {}; }

 private:
  wall::Usage usage_;
};

std::string exited(std::uint32_t code) {
  return proto::Fields().put_u32(proto::Tag::kExitCode, code).bytes();
}

// No sample need see all of them: the first to be refused may be the command's own process.
TEST(CommandLimits, TheEndedProcessIsOneOfThoseThatAnRlimitCounted) {
  wall::Plan plan;
  plan.pids = 32;
  wall::HeldLimits by_rlimit{}, by_group{};
  by_rlimit[static_cast<std::size_t>(Limit::kPids)] = HeldBy::kRlimit;
  by_group[static_cast<std::size_t>(Limit::kPids)] = HeldBy::kCgroup;
  const auto verdict = [&](std::uint64_t left, const wall::HeldLimits& held) {
    Command command(plan, {}, std::make_unique<NoSlot>(left));
    return command.finish(exited(1), held).verdict;
  };
  EXPECT_EQ(verdict(31, by_rlimit), Verdict::kProcessLimit);
  EXPECT_EQ(verdict(30, by_rlimit), Verdict::kExited);
  EXPECT_EQ(verdict(31, by_group), Verdict::kExited) << "a group tells of each refusal";
}

TEST(CommandRefusal, EndsTheCommandWhereThePlanSaysSo) {
  Refused process;
  wall::Plan plan;
  plan.on_refusal = 1;
  Command command(plan, {}, std::make_unique<NoSlot>());
  command.set_listener(process.take_listener());
  EXPECT_TRUE(command.take_refusal(wait_for(command.refusals_fd())));
  EXPECT_TRUE(command.ending());
  EXPECT_EQ(command.refusals_fd(), -1);
  // A limit that is met while it dies is not the reason.
  command.end_for(Verdict::kTimeLimit, "elapsed", "");
  const Outcome outcome = command.finish(exited(0), {});
  EXPECT_EQ(outcome.verdict, Verdict::kPolicyViolation);
  EXPECT_EQ(outcome.cause, "syscall");
  EXPECT_EQ(outcome.detail, "called mount, which is refused (on_refusal: kill)");
  EXPECT_EQ(outcome.refusals.size(), 1u);
  EXPECT_TRUE(outcome.limits_hit.empty());
  EXPECT_EQ(exit_status(outcome), 119);
}

TEST(CommandRefusal, GoesOnWhereThePlanDoesNotSaySo) {
  Refused process;
  const wall::Plan plan;
  Command command(plan, {}, std::make_unique<NoSlot>());
  command.set_listener(process.take_listener());
  EXPECT_FALSE(command.take_refusal(wait_for(command.refusals_fd())));
  EXPECT_FALSE(command.ending());
  const Outcome outcome = command.finish(exited(3), {});
  EXPECT_EQ(outcome.verdict, Verdict::kExited);
  EXPECT_EQ(outcome.exit_code, 3u);
  EXPECT_EQ(outcome.refusals.size(), 1u);
}

TEST(CommandRefusal, ThatWaitsWhenTheEndIsToldCameFirst) {
  Refused process;
  wall::Plan plan;
  plan.on_refusal = 1;
  Command command(plan, {}, std::make_unique<NoSlot>());
  command.set_listener(process.take_listener());
  wait_for(command.refusals_fd());  // it waits, and nobody has looked
  EXPECT_EQ(command.finish(exited(0), {}).verdict, Verdict::kPolicyViolation);
}

TEST(CommandRefusal, AfterALimitIsNotTheReason) {
  Refused process;
  wall::Plan plan;
  plan.on_refusal = 1;
  Command command(plan, {}, std::make_unique<NoSlot>());
  command.set_listener(process.take_listener());
  command.end_for(Verdict::kTimeLimit, "elapsed", "");
  EXPECT_FALSE(command.take_refusal(wait_for(command.refusals_fd())));
  const Outcome outcome = command.finish(exited(0), {});
  EXPECT_EQ(outcome.verdict, Verdict::kTimeLimit);
  EXPECT_EQ(outcome.refusals.size(), 1u);
}

}  // namespace
}  // namespace caisson::launcher
