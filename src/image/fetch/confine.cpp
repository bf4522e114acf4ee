#include "image/fetch/confine.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/kernel_abi.h"

namespace caisson::image {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAISSON_FETCH_SANITIZED 1
#endif
#endif

Status limit(int resource, const char* name, rlim_t value) {
  rlimit now = {};
  if (getrlimit(resource, &now) != 0) return fail_errno(std::string("getrlimit ") + name);
  const rlimit wanted = {std::min(value, now.rlim_max), std::min(value, now.rlim_max)};
  if (setrlimit(resource, &wanted) != 0) return fail_errno(std::string("setrlimit ") + name);
  return {};
}

Status become_nobody() {
  if (geteuid() != 0) return {};
  for (int capability = 0; capability < 64; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && errno != EINVAL) {
      return fail_errno("drop a capability from the bounding set");
    }
  }
  if (setgroups(0, nullptr) != 0) return fail_errno("setgroups");
  if (setresgid(kFetchId, kFetchId, kFetchId) != 0) return fail_errno("setresgid");
  if (setresuid(kFetchId, kFetchId, kFetchId) != 0) return fail_errno("setresuid");
  return {};
}

Status drop_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

// What the C library's resolver and OpenSSL read.
constexpr const char* kReadable[] = {"/etc/resolv.conf",
                                     "/etc/hosts",
                                     "/etc/nsswitch.conf",
                                     "/etc/host.conf",
                                     "/etc/gai.conf",
                                     "/etc/services",
                                     "/etc/protocols",
                                     "/etc/ssl",
                                     "/etc/ld.so.cache",
                                     "/usr/lib",
                                     "/usr/lib64",
                                     "/usr/local/lib",
                                     "/usr/share/ca-certificates",
                                     "/usr/local/share/ca-certificates",
                                     "/etc/ca-certificates",
                                     "/etc/pki/tls",
                                     "/dev/urandom",
                                     "/dev/null"};

Status allow_reading(int ruleset_fd, const std::string& path) {
  const Fd file(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!file.valid()) return {};
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return fail_errno("stat " + path);
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
  if (S_ISDIR(status.st_mode)) rule.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
  rule.parent_fd = file.get();
  if (syscall(SYS_landlock_add_rule, ruleset_fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return fail_errno("landlock_add_rule " + path);
  }
  return {};
}

Status enter_landlock(const std::vector<std::string>& readable) {
  const long abi =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) {
    return fail_errno("Landlock, which a pull needs, is not there (`caisson doctor` says more)");
  }
  abi::landlock_ruleset ruleset = {};
  ruleset.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  if (abi >= 2) ruleset.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
  if (abi >= 3) ruleset.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
  if (abi >= 4) ruleset.handled_access_net = LANDLOCK_ACCESS_NET_BIND_TCP;
  if (abi >= 5) ruleset.handled_access_fs |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  if (abi >= 6) {
    ruleset.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
  }
  const std::size_t size = abi < 4 ? 8 : abi < 6 ? 16 : 24;
  const Fd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, size, 0)));
  if (!rules.valid()) return fail_errno("landlock_create_ruleset");
  for (const char* path : kReadable) TRY(allow_reading(rules.get(), path));
  for (const std::string& path : readable) TRY(allow_reading(rules.get(), path));
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) {
    return fail_errno("landlock_restrict_self");
  }
  return {};
}

#ifndef CAISSON_FETCH_SANITIZED
// Buffers of sixteen transfers, the certificates, two threads of the resolver.
constexpr rlim_t kMemory = 1ull << 30;

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

constexpr int kAllowed[] = {
    // bytes in and out
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fcntl,
    SYS_ioctl,
    SYS_ppoll,
    SYS_pselect6,
    SYS_pipe2,
    SYS_eventfd2,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_dup,
    SYS_dup3,
    // the network; socket() is looked at below
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    // reading files
    SYS_openat,
    SYS_newfstatat,
    SYS_fstat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    // memory, threads, time, ending
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mprotect,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
#ifdef SYS_poll  // the older calls, where the C library still makes them
    SYS_poll,
    SYS_select,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_pipe,
    SYS_epoll_wait,
    SYS_time,
#endif
};

// Calls that are allowed with these arguments alone.
struct WithArgument {
  int number;
  unsigned argument;
  std::uint32_t value;
};
// A thread as the C library makes one, and no process; its own limits.
constexpr std::uint32_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                  CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                                  CLONE_CHILD_CLEARTID;
constexpr WithArgument kWithArgument[] = {{SYS_clone, 0, kThread}, {SYS_prlimit64, 0, 0}};

// Families of sockets. Not AF_UNIX: the services of this host listen there.
constexpr std::uint32_t kFamilies[] = {AF_INET, AF_INET6, AF_NETLINK};

// What is not allowed fails with EPERM, and the resolver goes on without it.
Status filter_system_calls() {
  std::vector<sock_filter> program;
  const auto add = [&](sock_filter instruction) { program.push_back(instruction); };
  const auto load = [&](std::size_t offset) {
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  };
  const auto jump_equal = [&](std::uint32_t value, unsigned char yes, unsigned char no) {
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no));
  };
  load(offsetof(seccomp_data, arch));
  jump_equal(kArchitecture, 1, 0);
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  load(offsetof(seccomp_data, nr));
  for (int number : kAllowed) {
    jump_equal(static_cast<std::uint32_t>(number), 0, 1);
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  // Its flags are in memory, where a filter sees nothing: the C library goes on with clone.
  jump_equal(SYS_clone3, 0, 1);
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  for (const WithArgument& rule : kWithArgument) {
    const std::size_t low = offsetof(seccomp_data, args) + rule.argument * sizeof(std::uint64_t);
    constexpr unsigned char kBlock = 6;
    jump_equal(static_cast<std::uint32_t>(rule.number), 0, kBlock);
    load(low);
    jump_equal(rule.value, 0, 3);
    load(low + sizeof(std::uint32_t));
    jump_equal(0, 0, 1);
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  jump_equal(SYS_socket, 1, 0);
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  load(offsetof(seccomp_data, args));
  for (std::uint32_t family : kFamilies) {
    jump_equal(family, 0, 1);
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) return fail_errno("seccomp");
  return {};
}
#endif

}  // namespace

Status end_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno("prctl PDEATHSIG");
  return {};
}

Status confine_fetcher(const std::vector<std::string>& readable) {
  if (chdir("/") != 0) return fail_errno("chdir");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl NO_NEW_PRIVS");
  TRY(become_nobody());
  TRY(end_with_parent());
  TRY(drop_capabilities());
  TRY(limit(RLIMIT_CORE, "core", 0));
  TRY(limit(RLIMIT_NOFILE, "nofile", 256));
  TRY(limit(RLIMIT_FSIZE, "fsize", 0));
  TRY(limit(RLIMIT_CPU, "cpu", 3600));
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl DUMPABLE");
  TRY(enter_landlock(readable));
#ifndef CAISSON_FETCH_SANITIZED
  TRY(limit(RLIMIT_AS, "as", kMemory));
  TRY(filter_system_calls());
#endif
  return {};
}

}  // namespace caisson::image
