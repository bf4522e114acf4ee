#include "egress/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/ioctl.h>
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

#include "base/call_filter.h"
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

// What the resolver reads. Links are followed, as the C library's own resolver does. Without the
// device its queries would have the same numbers in every process, which others could guess.
constexpr const char* kReadable[] = {"/etc/resolv.conf", "/etc/hosts",    "/etc/nsswitch.conf",
                                     "/etc/host.conf",   "/etc/services", "/dev/urandom"};

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
    SYS_poll,
    SYS_ppoll,
    // the resolver's files
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

// What an event loop with threads needs besides (io/loop.h).
constexpr int kAllowedToLoops[] = {
    SYS_epoll_create1,     SYS_epoll_ctl,  SYS_epoll_wait,
    SYS_epoll_pwait,       SYS_eventfd2,   SYS_timerfd_create,
    SYS_timerfd_settime,   SYS_nanosleep,  SYS_clock_nanosleep,
    SYS_set_robust_list,   SYS_rseq,       SYS_sched_yield,
    SYS_sched_getaffinity, SYS_membarrier, SYS_fdatasync,  // of records
};

Status filter_system_calls(Confinement::Threads threads) {
  CallFilter filter;
  for (const int number : kAllowed) filter.allow(number);
  filter.allow_where(SYS_socket, 0, ~0u, {AF_INET, AF_INET6});
  // Neither signals by a descriptor (F_SETOWN, FIOSETOWN) nor terminals.
  filter.allow_where(SYS_fcntl, 1, ~0u,
                     {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD, F_DUPFD_CLOEXEC});
  filter.allow_where(SYS_ioctl, 1, ~0u, {FIONBIO, FIONREAD});
  // For reading alone, where the kernel has no Landlock too.
  filter.allow_where(SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC, {O_RDONLY});
  filter.allow_own_signals();
  if (threads == Confinement::Threads::kLoop) {
    for (const int number : kAllowedToLoops) filter.allow(number);
    filter.allow_where(SYS_prctl, 0, ~0u, {PR_SET_NAME});
    filter.allow_threads();
  }
  return filter.install("the egress process");
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

Status close_others(std::vector<int> keep) {
  std::ranges::sort(keep);
  unsigned from = STDERR_FILENO + 1;
  for (const int fd : keep) {
    const auto kept = static_cast<unsigned>(fd);
    if (from < kept && ::close_range(from, kept - 1, 0) != 0) return fail_errno("close_range");
    from = std::max(from, kept + 1);
  }
  if (::close_range(from, ~0u, 0) != 0) return fail_errno("close_range");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0)
    return fail_errno("open /dev/null");
  ::close(null);
  return {};
}

// A sanitizer's shadow is more than any limit.
Status limit_memory(std::size_t most_bytes) {
#ifndef CAISSON_EGRESS_SANITIZED
  // size resident shared text lib data dt, in pages
  TRY_ASSIGN(const std::string text, sys::read_file(AT_FDCWD, "/proc/self/statm", 256));
  unsigned long long data_pages = 0;
  if (std::sscanf(text.c_str(), "%*u %*u %*u %*u %*u %llu", &data_pages) != 1)
    return fail(Error::internal("/proc/self/statm has no sixth field"));
  rlimit data{};
  if (::getrlimit(RLIMIT_DATA, &data) != 0) return fail_errno("getrlimit");
  const rlim_t most = data_pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + most_bytes;
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
  return {};
}

}  // namespace

Status forbid_dumps() {
  const rlimit core{0, 0};
  if (::setrlimit(RLIMIT_CORE, &core) != 0) return fail_errno("setrlimit");
  // The limit does not hold where a program takes the images (core(5)).
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl dumpable");
  return {};
}

Status confine(const Confinement& how) {
  // What a terminal sends to its whole group is for our parent, which ends us.
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP, SIGPIPE})
    ::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  (void)::prctl(PR_SET_NAME, how.name);
  TRY(close_others(how.keep));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("getrlimit");
  files.rlim_cur = files.rlim_max = std::min<rlim_t>(files.rlim_max, how.descriptors);
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("setrlimit");
  TRY(limit_memory(how.memory));
  TRY(drop_rights());
  // After the ids, whose change allows them again.
  TRY(forbid_dumps());
  // After the ids, whose change clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("prctl pdeathsig");
  if (::getppid() != how.parent)
    return fail(Error(Code::kCancelled, "whoever started the egress process is gone"));
  TRY(forbid_files());
  return filter_system_calls(how.threads);
}

}  // namespace caisson::egress
