#include "api/server_calls.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/call_filter.h"

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

}  // namespace

Status filter_server_calls() {
  CallFilter filter;
  for (const int number : kAllowed) filter.allow(number);
  filter.allow_where(SYS_socketpair, 0, ~0u, {AF_UNIX});
  filter.allow_threads();
  filter.allow_own_signals();
  // The names of threads.
  filter.allow_where(SYS_prctl, 0, ~0u, {PR_SET_NAME});
  // The descriptor limit of a moment (base/sys.h), and reading limits.
  filter.allow_where(SYS_prlimit64, 0, ~0u, {0});
  return filter.install("the server");
}

}  // namespace caisson::api
