// Each test confines a forked child of its own inside a user namespace of its own, so that the
// suite is the same for root and for an ordinary user, and nothing of the caller changes.
#include "guest/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "base/kernel_abi.h"

namespace caisson::guest {
namespace {

// What a child wrote, and how it ended.
struct Outcome {
  std::string text;
  int status = -1;
};

// Runs `body` in a forked child whose standard output and error are the outcome's text.
Outcome in_child(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    body();
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    outcome.text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(waitpid(child, &outcome.status, 0), child);
  return outcome;
}

void say(const std::string& text) {
  if (write(1, text.data(), text.size()) < 0) _exit(99);
}
void say_number(const char* name, long number) {
  say(std::string(name) + "=" + std::to_string(number) + "\n");
}
void say_error(const char* name, bool done) {
  say_number(name, done ? 0 : errno);
}

void put(const char* path, const std::string& text) {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  if (!file.valid() || write(file.get(), text.data(), text.size()) < 0) {
    say(std::string("cannot write ") + path + "\n");
    _exit(98);
  }
}

// Makes this process `uid` of a new user namespace with that single id.
void enter_new_userns(uid_t uid) {
  const uid_t outer_uid = geteuid();
  const gid_t outer_gid = getegid();
  if (unshare(CLONE_NEWUSER) != 0) {
    say("unshare: errno " + std::to_string(errno) + "\n");
    _exit(97);
  }
  put("/proc/self/setgroups", "deny");
  put("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(outer_uid) + " 1");
  put("/proc/self/gid_map", std::to_string(uid) + " " + std::to_string(outer_gid) + " 1");
}

ConfineOptions options_for(uid_t uid) {
  ConfineOptions options;
  options.uid = uid;
  options.gid = uid;
  return options;
}

// Confines or ends the child with the error's message.
Confined confine_or_exit(const ConfineOptions& options) {
  Result<Confined> confined = confine(options);
  if (!confined.has_value()) {
    say(confined.error().message() + "\n");
    _exit(96);
  }
  return std::move(*confined);
}

void say_status() {
  execl("/bin/cat", "cat", "/proc/self/status", nullptr);
  _exit(95);
}

std::string field(const std::string& status, const std::string& name) {
  const std::size_t start = status.find("\n" + name + ":\t");
  if (start == std::string::npos) return "no " + name;
  const std::size_t value = start + name.size() + 3;
  return status.substr(value, status.find('\n', value) - value);
}

constexpr char kNoCapability[] = "0000000000000000";

TEST(Confine, AnOrdinaryCommandHasNothingLeft) {
  const Outcome outcome = in_child([] {
    enter_new_userns(1000);
    confine_or_exit(options_for(1000));
    say_status();
  });
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_EQ(field(outcome.text, set), kNoCapability) << set;
  }
  EXPECT_EQ(field(outcome.text, "Uid"), "1000\t1000\t1000\t1000");
  EXPECT_EQ(field(outcome.text, "Gid"), "1000\t1000\t1000\t1000");
  EXPECT_EQ(field(outcome.text, "NoNewPrivs"), "1");
  EXPECT_EQ(field(outcome.text, "Seccomp"), "2");
}

TEST(Confine, RootOfTheNamespaceIsAnOrdinaryUserAfterExecToo) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    confine_or_exit(options_for(0));
    say_number("securebits", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    say_error("unlock", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0);
    say_status();
  });
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.text.starts_with("securebits=239\nunlock=1\n")) << outcome.text;
  EXPECT_EQ(field(outcome.text, "CapEff"), kNoCapability);
  EXPECT_EQ(field(outcome.text, "CapBnd"), kNoCapability);
}

TEST(Confine, SudoKeepsInTheBoundingSetWhatItNamesAndNoMore) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    ConfineOptions options = options_for(0);
    options.privileges = Privileges::kSudo;
    confine_or_exit(options);
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    say_error("capget", syscall(SYS_capget, &header, data) == 0);
    say_number("before exec", data[0].permitted | data[0].effective | data[1].permitted);
    say_status();  // exec as uid 0 is what sudo does
  });
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(outcome.text.starts_with("capget=0\nbefore exec=0\n")) << outcome.text;
  EXPECT_EQ(field(outcome.text, "CapBnd"), "00000000000005fb");
  EXPECT_EQ(field(outcome.text, "CapEff"), "00000000000005fb");
  EXPECT_EQ(field(outcome.text, "CapInh"), kNoCapability);
  EXPECT_EQ(field(outcome.text, "CapAmb"), kNoCapability);
  EXPECT_EQ(field(outcome.text, "NoNewPrivs"), "0");
  EXPECT_EQ(field(outcome.text, "Seccomp"), "2");
}

TEST(Confine, SudoIsHeldByTheFilterAndLandlock) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    ConfineOptions options = options_for(0);
    options.privileges = Privileges::kSudo;
    const Confined confined = confine_or_exit(options);
    say_error("mount", mount("x", "/", "tmpfs", 0, nullptr) == 0);
    say_error("unshare", unshare(CLONE_NEWUSER) == 0);
    say_number("landlock", confined.landlock_abi > 0 ? 1 : 0);
  });
  EXPECT_EQ(outcome.text, "mount=1\nunshare=1\nlandlock=1\n");
}

TEST(Confine, EntersTheNestedNamespace) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);  // U; its capabilities reach N
    int ready[2], done[2];
    if (pipe(ready) != 0 || pipe(done) != 0) _exit(90);
    const pid_t holder = fork();
    char byte = 0;
    if (holder == 0) {
      enter_new_userns(1000);  // N: its 1000 is U's 0
      if (write(ready[1], "x", 1) != 1 || read(done[0], &byte, 1) < 0) _exit(91);
      _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1) _exit(92);
    const std::string path = "/proc/" + std::to_string(holder) + "/ns/user";
    const Fd nested(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ConfineOptions options = options_for(1000);
    options.userns_fd = nested.get();
    confine_or_exit(options);
    kill(holder, SIGKILL);
    say_status();
  });
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(field(outcome.text, "Uid"), "1000\t1000\t1000\t1000");
  EXPECT_EQ(field(outcome.text, "CapEff"), kNoCapability);
}

TEST(Confine, AWantedListenerComesBack) {
  const Outcome outcome = in_child([] {
    enter_new_userns(1000);
    ConfineOptions options = options_for(1000);
    options.want_listener = true;
    const Confined confined = confine_or_exit(options);
    say_number("listener", confined.listener.valid() ? 1 : 0);
    say_number("close-on-exec", fcntl(confined.listener.get(), F_GETFD));
  });
  EXPECT_EQ(outcome.text, "listener=1\nclose-on-exec=1\n");
}

TEST(Confine, NoSetidIsAnOption) {
  for (const bool no_setid : {false, true}) {
    const Outcome outcome = in_child([&] {
      char path[] = "/tmp/caisson-confine-XXXXXX";
      const Fd file(mkstemp(path));
      unlink(path);
      enter_new_userns(1000);
      ConfineOptions options = options_for(1000);
      options.no_setid = no_setid;
      confine_or_exit(options);
      say_error("fchmod", fchmod(file.get(), 04755) == 0);
    });
    EXPECT_EQ(outcome.text, no_setid ? "fchmod=1\n" : "fchmod=0\n");
  }
}

// Errors: each step says its name and what failed.

void expect_failure(const std::function<void(ConfineOptions&)>& change, const std::string& begins,
                    const std::string& contains) {
  const Outcome outcome = in_child([&] {
    enter_new_userns(1000);
    ConfineOptions options = options_for(1000);
    change(options);
    confine_or_exit(options);
  });
  EXPECT_EQ(WEXITSTATUS(outcome.status), 96) << outcome.text;
  EXPECT_TRUE(outcome.text.starts_with(begins)) << outcome.text;
  EXPECT_NE(outcome.text.find(contains), std::string::npos) << outcome.text;
}

TEST(ConfineError, ADescriptorThatIsNoNamespace) {
  expect_failure([](ConfineOptions& options) { options.userns_fd = 0; },
                 "confine: identity: ", "setns (user namespace)");
}

TEST(ConfineError, AnIdThatTheNamespaceDoesNotHave) {
  expect_failure([](ConfineOptions& options) { options.uid = 7; },
                 "confine: identity: ", "setresuid 7");
  expect_failure([](ConfineOptions& options) { options.gid = 7; },
                 "confine: identity: ", "setresgid 7");
}

TEST(ConfineError, GroupsThatCannotBeSet) {
  const Outcome outcome = in_child([] {
    // Without a map that denies setgroups a refusal is not tolerated.
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(90);
    confine_or_exit(options_for(geteuid()));
  });
  EXPECT_TRUE(outcome.text.starts_with("confine: identity: setgroups")) << outcome.text;
}

TEST(ConfineError, NoRightToLimitCapabilities) {
  expect_failure(
      [](ConfineOptions&) {
        // Without CAP_SETPCAP; the ids can still be set to what they are.
        if (!clear_capabilities().has_value()) _exit(90);
      },
      "confine: capability bounds: ", "PR_CAPBSET_DROP");
}

TEST(ConfineError, LandlockAndSeccompWithoutPermission) {
  const Outcome outcome = in_child([] {
    enter_new_userns(1000);
    if (!clear_capabilities().has_value()) _exit(90);
    const Result<int> abi = enter_landlock(LandlockScope::kFilesOnly);
    say((abi.has_value() ? "entered" : abi.error().message()) + "\n");
  });
  EXPECT_TRUE(outcome.text.starts_with("landlock_restrict_self")) << outcome.text;
}

TEST(ConfineError, ASecondListener) {
  expect_failure(
      [](ConfineOptions& options) {
        options.want_listener = true;
        const sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
        auto first = seccomp::install_with_listener(allow);
        // Kept open: a filter whose listener is gone does not count.
        if (!first.has_value() || first->take() < 0) _exit(90);
      },
      "confine: seccomp: ", "seccomp (listener)");
}

// Without no_new_privs every later step needs CAP_SYS_ADMIN, and says so where it is missing.
TEST(ConfineError, SudoWithoutTheRightToConfine) {
  struct Case {
    bool landlock, no_setid;
    const char* begins;
  };
  for (const Case& one : {Case{true, false, "confine: landlock: landlock_restrict_self"},
                          Case{false, true, "confine: no_setid: seccomp"},
                          Case{false, false, "confine: seccomp: seccomp"}}) {
    expect_failure(
        [&](ConfineOptions& options) {
          options.privileges = Privileges::kSudo;
          options.use_landlock = one.landlock;
          options.no_setid = one.no_setid;
          __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
          __user_cap_data_struct data[2] = {};
          if (syscall(SYS_capget, &header, data) != 0) _exit(90);
          data[0].effective &= ~(1u << CAP_SYS_ADMIN);
          data[0].permitted &= ~(1u << CAP_SYS_ADMIN);
          if (syscall(SYS_capset, &header, data) != 0) _exit(91);
        },
        one.begins, one.begins);
  }
}

// Landlock on its own.

TEST(Landlock, AKernelWithoutItIsReportedAndNoError) {
  for (const int error : {ENOSYS, EOPNOTSUPP, EPERM}) {
    const Outcome outcome = in_child([&] {
      const sock_filter refuse[] = {
          {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
          {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_landlock_create_ruleset},
          {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)},
          {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
      if (!set_no_new_privs().has_value() || !seccomp::install(refuse).has_value()) _exit(90);
      const Result<int> abi = enter_landlock(LandlockScope::kFilesOnly);
      say(abi.has_value() ? std::to_string(*abi) : "refused");
    });
    EXPECT_EQ(outcome.text, error == EPERM ? "refused" : "0") << error;
  }
}

TEST(Landlock, ADescriptorThatLeadsOutOfTheRootOpensNothing) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    const Fd outside(open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (chroot("/usr") != 0 || chdir("/") != 0) _exit(90);
    const auto try_all = [&] {
      say_error("outside", openat(outside.get(), "passwd", O_RDONLY) >= 0);
      say_error("inside", open("/bin/cat", O_RDONLY) >= 0);
      int ends[2];
      say_error("pipe", pipe(ends) == 0);
    };
    try_all();
    const Result<int> abi = enter_landlock(LandlockScope::kFilesOnly);
    if (!abi.has_value() || *abi < 1) _exit(91);
    try_all();
  });
  EXPECT_EQ(outcome.text, "outside=0\ninside=0\npipe=0\noutside=13\ninside=0\npipe=0\n");
}

TEST(Landlock, NoMountCanBeMade) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    if (unshare(CLONE_NEWNS) != 0) _exit(90);
    say_error("before", mount("x", "/tmp", "tmpfs", 0, nullptr) == 0);
    if (!enter_landlock(LandlockScope::kFilesOnly).has_value()) _exit(91);
    say_error("after", mount("x", "/tmp", "tmpfs", 0, nullptr) == 0);
    say_error("unmount", umount2("/tmp", 0) == 0);
  });
  EXPECT_EQ(outcome.text, "before=0\nafter=1\nunmount=1\n");
}

TEST(Landlock, OrdinaryWorkOnFilesGoesOn) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    if (!enter_landlock(LandlockScope::kSignalsAndSockets).has_value()) _exit(91);
    char folder[] = "/tmp/caisson-landlock-XXXXXX";
    say_error("mkdtemp", mkdtemp(folder) != nullptr);
    if (chdir(folder) != 0) _exit(92);
    say_error("mkdir", mkdir("a", 0700) == 0 && mkdir("b", 0700) == 0);
    say_error("write", close(open("a/x", O_CREAT | O_WRONLY | O_TRUNC, 0700)) == 0);
    say_error("link across", link("a/x", "b/y") == 0);
    say_error("rename across", rename("a/x", "b/x") == 0);
    say_error("truncate", truncate("b/x", 10) == 0);
    say_error("symlink", symlink("b/x", "s") == 0);
    say_error("fifo", mknod("p", S_IFIFO | 0600, 0) == 0);
    say_error("remove", unlink("b/x") == 0 && unlink("b/y") == 0 && unlink("s") == 0 &&
                            unlink("p") == 0 && rmdir("a") == 0 && rmdir("b") == 0);
    say_error("rmdir", chdir("/") == 0 && rmdir(folder) == 0);
    execl("/bin/true", "true", nullptr);
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text,
            "mkdtemp=0\nmkdir=0\nwrite=0\nlink across=0\nrename across=0\ntruncate=0\nsymlink=0\n"
            "fifo=0\nremove=0\nrmdir=0\n");
}

TEST(Landlock, TheScopeKeepsSignalsAndAbstractSocketsIn) {
  // Both ends of one abstract socket in one process: what counts is that the listener was bound
  // outside the domain.
  for (const LandlockScope scope : {LandlockScope::kFilesOnly, LandlockScope::kSignalsAndSockets}) {
    int abi = 0;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const Outcome outcome = in_child([&] {
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      const std::string name = "caisson-scope-" + std::to_string(getpid());
      std::copy(name.begin(), name.end(), address.sun_path + 1);
      const socklen_t length =
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      const auto* generic = reinterpret_cast<const sockaddr*>(&address);
      const Fd listener(socket(AF_UNIX, SOCK_STREAM, 0));
      if (bind(listener.get(), generic, length) != 0 || listen(listener.get(), 4) != 0) _exit(90);
      enter_new_userns(0);
      const Result<int> entered = enter_landlock(scope);
      if (!entered.has_value()) _exit(91);
      const int version = *entered;
      if (write(ends[1], &version, sizeof version) != sizeof version) _exit(92);
      const Fd client(socket(AF_UNIX, SOCK_STREAM, 0));
      say_error("connect", connect(client.get(), generic, length) == 0);
      say_error("signal", kill(getppid(), 0) == 0);
      say_error("own", kill(getpid(), 0) == 0);
    });
    ASSERT_EQ(read(ends[0], &abi, sizeof abi), static_cast<ssize_t>(sizeof abi));
    close(ends[0]);
    close(ends[1]);
    const bool held = scope == LandlockScope::kSignalsAndSockets && abi >= 6;
    EXPECT_EQ(outcome.text, held ? "connect=1\nsignal=1\nown=0\n" : "connect=0\nsignal=0\nown=0\n");
  }
}

#if defined(CAISSON_TEST_SWITCHES)
// With one mechanism off, exactly that one is missing.
std::string status_without(Mechanism mechanism) {
  const Outcome outcome = in_child([&] {
    enter_new_userns(0);
    ConfineOptions options = options_for(0);
    options.disabled_mechanisms = bit_of(mechanism);
    confine_or_exit(options);
    say_status();
  });
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  return outcome.text;
}

TEST(ConfineSwitches, EachLeavesOneOut) {
  const std::string no_filter = status_without(Mechanism::kSeccomp);
  EXPECT_EQ(field(no_filter, "Seccomp"), "0");
  EXPECT_EQ(field(no_filter, "NoNewPrivs"), "1");
  const std::string no_nnp = status_without(Mechanism::kNoNewPrivs);
  EXPECT_EQ(field(no_nnp, "NoNewPrivs"), "0");
  EXPECT_EQ(field(no_nnp, "Seccomp"), "2");
  EXPECT_EQ(field(no_nnp, "CapEff"), kNoCapability);
  const std::string with_capabilities = status_without(Mechanism::kCapabilities);
  EXPECT_NE(field(with_capabilities, "CapEff"), kNoCapability);
  EXPECT_EQ(field(with_capabilities, "Seccomp"), "2");
}

TEST(ConfineSwitches, LandlockAndIdentity) {
  const Outcome outcome = in_child([] {
    enter_new_userns(0);
    ConfineOptions options = options_for(12345);  // no such id: would fail
    options.userns_fd = 0;                        // no namespace: would fail
    options.disabled_mechanisms = bit_of(Mechanism::kLandlock) | bit_of(Mechanism::kUidSplit) |
                                  bit_of(Mechanism::kNestedUserns);
    say_number("abi", confine_or_exit(options).landlock_abi);
  });
  EXPECT_EQ(outcome.text, "abi=0\n");
}
#endif

}  // namespace
}  // namespace caisson::guest
