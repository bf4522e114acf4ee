// The tables that ship, in the kernel: each is installed in a forked child, which then calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "base/sys.h"
#include "guest/seccomp/filters.h"

namespace caisson::guest::seccomp {
namespace {

// The errno of a raw call, 0 where it succeeded.
int error_of(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  errno = 0;
  return syscall(number, a, b, c, d, e, f) < 0 ? errno : 0;
}

// Runs `body` in a child and returns the list of numbers that it made.
std::vector<int> in_child(const std::function<std::vector<int>()>& body) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<int> numbers = body();
    const std::size_t size = numbers.size() * sizeof(int);
    const bool written = write(ends[1], numbers.data(), size) == static_cast<ssize_t>(size);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::vector<int> numbers;
  int number = 0;
  while (read(ends[0], &number, sizeof number) == sizeof number) numbers.push_back(number);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return numbers;
}

// The same under a profile without a listener.
std::vector<int> under(Profile profile, const std::function<std::vector<int>()>& body) {
  return in_child([&]() -> std::vector<int> {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {-1};
    if (!install(table(profile, Reporting::kNone)).has_value()) return {-2};
    return body();
  });
}

using Numbers = std::vector<int>;

TEST(Live, EveryTableIsTakenByTheKernel) {
  for (const Profile profile : {Profile::kDefault, Profile::kBrowser, Profile::kDebug}) {
    const Numbers seen = under(profile, [] {
      return Numbers{error_of(SYS_getppid),
                     error_of(9999),
                     error_of(601),
                     error_of(SYS_clone3, 0, 0),
                     error_of(SYS_mount, 0, 0, 0, 0, 0),
                     error_of(SYS_setns, -1, 0),
                     error_of(SYS_bpf, 0, 0, 0),
                     error_of(SYS_io_uring_setup, 1, 0),
                     error_of(SYS_keyctl, 0, 0),
                     error_of(SYS_userfaultfd, 1),
                     error_of(SYS_perf_event_open, 0, 0, 0, 0, 0),
                     error_of(SYS_kcmp, 0, 0, 0, 0, 0),
                     error_of(SYS_memfd_secret, 0),
                     error_of(SYS_modify_ldt, 0, 0, 0),
                     error_of(SYS_personality, 0x40001),
                     error_of(SYS_ioctl, 0, 0x100005412),
                     error_of(SYS_mknod, reinterpret_cast<long>("/nowhere/x"), 0020644, 0x103),
                     error_of(SYS_sync)};
    });
    EXPECT_EQ(seen, (Numbers{0, ENOSYS, ENOSYS, ENOSYS, EPERM, EPERM, EPERM, ENOSYS, ENOSYS, EPERM,
                             EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM, 0}))
        << static_cast<int>(profile);
  }
}

TEST(Live, SocketsOfTheUsualKindsOpen) {
  const Numbers seen = under(Profile::kDefault, [] {
    return Numbers{error_of(SYS_socket, AF_UNIX, SOCK_STREAM, 0),
                   error_of(SYS_socket, AF_INET, SOCK_STREAM, 0),
                   error_of(SYS_socket, AF_INET, SOCK_DGRAM, 17),
                   error_of(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE),
                   error_of(SYS_socket, AF_NETLINK, SOCK_RAW, 9),
                   error_of(SYS_socket, AF_INET, SOCK_RAW, 1),
                   error_of(SYS_socket, AF_INET, SOCK_STREAM, 262),
                   error_of(SYS_socket, AF_VSOCK, SOCK_STREAM, 0),
                   error_of(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0),
                   error_of(SYS_socket, AF_PACKET, SOCK_RAW, 0)};
  });
  EXPECT_EQ(seen,
            (Numbers{0, 0, 0, 0, EPROTONOSUPPORT, EPERM, EPROTONOSUPPORT, EPERM, EPERM, EPERM}));
}

TEST(Live, DebuggingIsOpenOnlyWhereItIsNamed) {
  const auto body = [] { return Numbers{error_of(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0)}; };
  EXPECT_EQ(under(Profile::kDefault, body), (Numbers{EPERM}));
  EXPECT_EQ(under(Profile::kDebug, body), (Numbers{0}));
}

TEST(Live, BrowsersMayNestUserNamespaces) {
  const auto body = [] { return Numbers{error_of(SYS_unshare, CLONE_NEWUSER)}; };
  EXPECT_EQ(under(Profile::kDefault, body), (Numbers{EPERM}));
  EXPECT_EQ(under(Profile::kBrowser, body), (Numbers{0}));
}

TEST(Live, AProgramCanStackAFilterButNoListener) {
  const Numbers seen = under(Profile::kDefault, [] {
    const sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    return Numbers{install_with_listener(allow).has_value() ? 0 : errno,
                   install(allow).has_value() ? 0 : errno, error_of(SYS_mount, 0, 0, 0, 0, 0)};
  });
  EXPECT_EQ(seen, (Numbers{EPERM, 0, EPERM}));
}

#if defined(__x86_64__)
long through_int80(long number, long argument) {
  long result = number;
  asm volatile("int $0x80" : "+a"(result) : "b"(argument) : "memory", "r8", "r9", "r10", "r11");
  return result;
}

TEST(Live, TheOtherEntriesOfTheKernelEndProgramsAndDoNothingElse) {
  constexpr int kI386Getpid = 20, kI386Socketcall = 102;
  const Numbers seen = under(Profile::kDefault, [] {
    return Numbers{static_cast<int>(through_int80(kI386Getpid, 0)),
                   static_cast<int>(through_int80(kI386Socketcall, 1)),
                   error_of(SYS_getpid | 0x40000000L), error_of(SYS_ptrace | 0x40000000L)};
  });
  EXPECT_EQ(seen, (Numbers{-ENOSYS, -ENOSYS, ENOSYS, ENOSYS}));

  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (install(table(Profile::kDefault, Reporting::kNone)).has_value()) through_int80(1, 77);
    _exit(1);  // the i386 exit did not end it
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 77);
}
#endif

// A child under the default profile with a listener; the parent holds the listener.
class Reported : public testing::Test {
 protected:
  void start(const std::function<Numbers()>& body) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    socket_ = Fd(pair[0]);
    child_ = fork();
    if (child_ == 0) {
      close(pair[0]);
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      Result<Fd> listener = install_with_listener(table(Profile::kDefault, Reporting::kListener));
      if (!listener.has_value()) _exit(2);
      const int descriptor = listener->get();
      if (!sys::send_message(pair[1], "x", {&descriptor, 1}).has_value()) _exit(3);
      listener->reset();
      const Numbers numbers = body();
      const std::size_t size = numbers.size() * sizeof(int);
      _exit(write(pair[1], numbers.data(), size) == static_cast<ssize_t>(size) ? 0 : 4);
    }
    close(pair[1]);
    Result<sys::Message> message = sys::recv_message(socket_.get(), 16);
    ASSERT_TRUE(message.has_value() && message->descriptors.size() == 1);
    listener_ = std::move(message->descriptors[0]);
  }

  // Answers `count` calls with EPERM and returns their numbers.
  Numbers answer(int count) {
    Numbers numbers;
    for (int i = 0; i < count; ++i) {
      seccomp_notif request = {};
      if (ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) break;
      numbers.push_back(request.data.nr);
      seccomp_notif_resp response = {request.id, 0, -EPERM, 0};
      EXPECT_EQ(ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response), 0);
    }
    return numbers;
  }

  Numbers finish() {
    Numbers numbers;
    int number = 0;
    while (read(socket_.get(), &number, sizeof number) == sizeof number) numbers.push_back(number);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
    return numbers;
  }

  Fd socket_, listener_;
  pid_t child_ = -1;
};

TEST_F(Reported, CallsOfTheSetReachTheListenerAndOthersDoNot) {
  start([] {
    return Numbers{error_of(SYS_swapon, 0, 0),
                   error_of(SYS_mount, 0, 0, 0, 0, 0),
                   error_of(SYS_keyctl, 0, 0),
                   error_of(SYS_unshare, CLONE_NEWNET),
                   error_of(SYS_socket, AF_VSOCK, SOCK_STREAM, 0),
                   error_of(9999)};
  });
  EXPECT_EQ(answer(3), (Numbers{SYS_mount, SYS_unshare, SYS_socket}));
  EXPECT_EQ(finish(), (Numbers{EPERM, EPERM, ENOSYS, EPERM, EPERM, ENOSYS}));
}

TEST_F(Reported, WithoutAListenerTheSetIsStillRefused) {
  start([] {
    // Waits for the parent's close through its own first notification.
    return Numbers{error_of(SYS_mount, 0, 0, 0, 0, 0), error_of(SYS_bpf, 0, 0, 0)};
  });
  pollfd waiting = {listener_.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 5000), 1);
  listener_.reset();
  EXPECT_EQ(finish(), (Numbers{ENOSYS, ENOSYS}));
}

TEST(Live, NoSetidStopsEveryWayToMakeTheBits) {
  char folder[] = "/tmp/caisson-no-setid-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(directory, 0);
  const auto name = [](const char* text) { return reinterpret_cast<long>(text); };
  const Numbers seen = in_child([&]() -> Numbers {
    umask(0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {-1};
    if (!install(no_setid_table()).has_value()) return {-2};
    if (!install(table(Profile::kDefault, Reporting::kNone)).has_value()) return {-3};
    Numbers errors = {
        error_of(SYS_openat, directory, name("plain"), O_CREAT | O_WRONLY, 0755),
        error_of(SYS_openat, directory, name("plain"), O_WRONLY, 07777),  // the mode means nothing
        error_of(SYS_openat, directory, name("set"), O_CREAT | O_WRONLY, 04755),
        error_of(SYS_openat, directory, name("."), O_TMPFILE | O_WRONLY, 02755),
        error_of(SYS_openat2, directory, name("set"), 0, 0),
        error_of(SYS_mknodat, directory, name("set"), S_IFREG | 04755, 0),
        error_of(SYS_fchmodat, directory, name("plain"), 04755),
        error_of(452, directory, name("plain"), 02755, 0),
        error_of(SYS_fchmodat, directory, name("plain"), 0700),
        error_of(SYS_mkdirat, directory, name("sub"), 06755),
    };
    return errors;
  });
  EXPECT_EQ(seen, (Numbers{0, 0, EPERM, EPERM, ENOSYS, EPERM, EPERM, EPERM, 0, 0}));
  struct stat made = {};
  ASSERT_EQ(fstatat(directory, "sub", &made, 0), 0);
  EXPECT_EQ(made.st_mode & 06000, 0u);  // mkdir needs no rule: the kernel drops the bits
  EXPECT_NE(fstatat(directory, "set", &made, 0), 0);
  unlinkat(directory, "plain", 0);
  unlinkat(directory, "sub", AT_REMOVEDIR);
  close(directory);
  rmdir(folder);
}

TEST(Live, AFilterWithoutPermissionIsAnErrorThatSaysSo) {
  const Numbers seen = in_child([]() -> Numbers {
    // A user without capabilities and without no_new_privs.
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return {-1};
    const Status done = install(no_setid_table());
    return {done.has_value() ? 0 : done.error().error_number()};
  });
  EXPECT_EQ(seen, (Numbers{EACCES}));
}

}  // namespace
}  // namespace caisson::guest::seccomp
