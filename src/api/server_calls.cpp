#include "api/server_calls.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kernel_abi.h"

namespace caisson::api {
namespace {

constexpr int kAllowed[] = {
    // sockets and whatever else there is a descriptor of
    SYS_accept4,
    SYS_bind,
    SYS_listen,
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
    SYS_pread64,
    SYS_pwrite64,
    SYS_close,
    SYS_dup,
    SYS_fcntl,
    SYS_ioctl,
    // waiting
    SYS_poll,
    SYS_ppoll,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_signalfd4,
    SYS_pipe2,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    // files: the database's, variables', certificates'
    SYS_openat,
    SYS_open,
    SYS_openat2,
    SYS_stat,
    SYS_lstat,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_access,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlink,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_lseek,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_unlink,
    SYS_unlinkat,
    SYS_link,
    SYS_linkat,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_rmdir,
    SYS_chmod,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_umask,
    SYS_utimensat,
    // memory and threads
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_msync,
    SYS_futex,
    SYS_membarrier,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    // who and when it is
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_time,
    SYS_times,
    SYS_getrusage,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrlimit,
    // signals and the end
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
};

// What an argument decides.
constexpr std::uint32_t kNewThread = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;

class Program {
 public:
  Program() {
    load(offsetof(seccomp_data, arch));
    skip_unless(AUDIT_ARCH_X86_64, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
  }
  void allow(int number) {
    skip_unless(static_cast<std::uint32_t>(number), 0, 1);
    answer(SECCOMP_RET_ALLOW);
  }
  void refuse(int number, std::uint32_t error_number) {
    skip_unless(static_cast<std::uint32_t>(number), 0, 1);
    answer(SECCOMP_RET_ERRNO | error_number);
  }
  // Allowed where the low half of the argument, of these bits alone, has this value.
  void allow_where(int number, unsigned argument, std::uint32_t bits, std::uint32_t value) {
    skip_unless(static_cast<std::uint32_t>(number), 0, 5);
    load(static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * argument));
    add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits));
    skip_unless(value, 0, 1);
    answer(SECCOMP_RET_ALLOW);
    answer(SECCOMP_RET_ERRNO | EPERM);
  }
  Status install() {
    answer(SECCOMP_RET_ERRNO | EPERM);
    const sock_fprog filter{static_cast<unsigned short>(steps_.size()), steps_.data()};
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
      return fail_errno("seccomp of the server");
    return {};
  }

 private:
  void add(sock_filter step) { steps_.push_back(step); }
  void load(std::uint32_t at) { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)); }
  void skip_unless(std::uint32_t value, std::uint8_t equal, std::uint8_t other) {
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, equal, other));
  }
  void answer(std::uint32_t what) { add(BPF_STMT(BPF_RET | BPF_K, what)); }

  std::vector<sock_filter> steps_;
};

}  // namespace

Status filter_server_calls() {
  Program program;
  for (const int number : kAllowed) program.allow(number);
  program.allow_where(SYS_socketpair, 0, ~0u, AF_UNIX);
  // Threads alone. What clone3 is asked for lies in memory, where no filter sees it; the C library
  // then takes clone.
  program.allow_where(SYS_clone, 0, kNewThread, kNewThread);
  program.refuse(SYS_clone3, ENOSYS);
  // abort(3) needs a signal; others' processes get none.
  program.allow_where(SYS_tgkill, 0, ~0u, static_cast<std::uint32_t>(::getpid()));
  // The names of threads.
  program.allow_where(SYS_prctl, 0, ~0u, PR_SET_NAME);
  // The descriptor limit of a moment (base/sys.h), and reading limits.
  program.allow_where(SYS_prlimit64, 0, ~0u, 0);
  return program.install();
}

}  // namespace caisson::api
