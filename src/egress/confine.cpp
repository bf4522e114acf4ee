#include "egress/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAISSON_EGRESS_SANITIZED 1
#endif
#endif

namespace caisson::egress {
namespace {

constexpr rlim_t kDescriptors = 256;

// What the resolver reads. Links are followed, as the C library's own resolver does.
constexpr const char* kReadable[] = {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
                                     "/etc/host.conf", "/etc/services"};

constexpr int kAllowed[] = {
    // sockets; which families is looked at below
    SYS_connect,
    SYS_bind,
    SYS_accept4,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_shutdown,
    SYS_read,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_close,
    SYS_fcntl,
    SYS_ioctl,
    SYS_poll,
    SYS_ppoll,
    // the resolver's files
    SYS_openat,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    SYS_uname,
    // memory, time, ending
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mprotect,
    SYS_futex,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
};

Status filter_system_calls() {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  // Signals are its own alone: abort(3) needs one.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])));
  program.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(::getpid()), 0, 1));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  for (const int number : kAllowed) {
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
    return fail_errno("seccomp of the egress proxy");
  return {};
}

// A kernel without Landlock has the filter alone.
Status forbid_files() {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi <= 0) return {};
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  const Fd ruleset(static_cast<int>(
      ::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0)));
  if (!ruleset.valid()) return fail_errno("landlock_create_ruleset");
  for (const char* path : kReadable) {
    const Fd file(::open(path, O_PATH | O_CLOEXEC));
    if (!file.valid()) continue;  // not on this host
    landlock_path_beneath_attr rule{};
    rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
    rule.parent_fd = file.get();
    if (::syscall(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
      return fail_errno("landlock_add_rule");
  }
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return fail_errno("landlock_restrict_self");
  return {};
}

Status close_others(int first_fd, int second_fd) {
  const auto low = static_cast<unsigned>(std::min(first_fd, second_fd));
  const auto high = static_cast<unsigned>(std::max(first_fd, second_fd));
  const auto close_from = [](unsigned from, unsigned to) {
    return from > to || ::close_range(from, to, 0) == 0;
  };
  if (!close_from(STDERR_FILENO + 1, low - 1) || !close_from(low + 1, high - 1) ||
      !close_from(high + 1, ~0u))
    return fail_errno("close_range");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0)
    return fail_errno("open /dev/null");
  ::close(null);
  return {};
}

// A sanitizer's shadow is more than any limit.
Status limit_memory() {
#ifndef CAISSON_EGRESS_SANITIZED
  // size resident shared text lib data dt, in pages
  TRY_ASSIGN(const std::string text, sys::read_file(AT_FDCWD, "/proc/self/statm", 256));
  unsigned long long data_pages = 0;
  if (std::sscanf(text.c_str(), "%*u %*u %*u %*u %*u %llu", &data_pages) != 1)
    return fail(Error::internal("/proc/self/statm has no sixth field"));
  rlimit data{};
  if (::getrlimit(RLIMIT_DATA, &data) != 0) return fail_errno("getrlimit");
  const rlim_t most = data_pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMostMemory;
  data.rlim_cur = data.rlim_max = std::min(data.rlim_max, most);
  if (::setrlimit(RLIMIT_DATA, &data) != 0) return fail_errno("setrlimit");
#endif
  return {};
}

Status drop_rights() {
  if (::geteuid() == 0) {
    if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
    if (::setresgid(kEgressId, kEgressId, kEgressId) != 0) return fail_errno("setresgid");
    if (::setresuid(kEgressId, kEgressId, kEgressId) != 0) return fail_errno("setresuid");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl no_new_privs");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl dumpable");
  return {};
}

}  // namespace

Status confine(int parent, int first_fd, int second_fd) {
  // What a terminal sends to its whole group is for our parent, which ends us.
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP, SIGPIPE})
    ::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  (void)::prctl(PR_SET_NAME, "caisson-egress");
  TRY(close_others(first_fd, second_fd));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("getrlimit");
  files.rlim_cur = files.rlim_max = std::min(files.rlim_max, kDescriptors);
  const rlimit core{0, 0};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || ::setrlimit(RLIMIT_CORE, &core) != 0)
    return fail_errno("setrlimit");
  TRY(limit_memory());
  TRY(drop_rights());
  // After the ids, whose change clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("prctl pdeathsig");
  if (::getppid() != parent)
    return fail(Error(Code::kCancelled, "whoever started the egress proxy is gone"));
  TRY(forbid_files());
  return filter_system_calls();
}

}  // namespace caisson::egress
