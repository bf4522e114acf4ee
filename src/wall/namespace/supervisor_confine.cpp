#include "wall/namespace/supervisor_confine.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/call_search.h"

namespace caisson::wall {
namespace {

// An event loop over descriptors that it holds, and the C library's own needs.
constexpr int kAllowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendto,
    SYS_recvfrom,
    SYS_poll,
    SYS_ppoll,
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_epoll_ctl,
    SYS_accept4,
    SYS_shutdown,
    SYS_close,
    SYS_fcntl,
    SYS_fstatfs,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    SYS_ioctl,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_waitid,
    SYS_wait4,
    SYS_pidfd_send_signal,
    SYS_exit,
    SYS_exit_group,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mprotect,
    SYS_brk,
    SYS_futex,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getppid,
    SYS_tgkill,
    SYS_restart_syscall,
    SYS_getrandom,
    SYS_rseq,
    SYS_set_robust_list,
    SYS_prctl,
    SYS_sched_yield,
    SYS_uname,
    SYS_sysinfo,
};
// For the watcher of a user without control groups, who also opens files, for reading alone.
constexpr int kProcReading[] = {SYS_getdents64, SYS_readlink};

Status install_filter(bool reads_proc) {
  std::vector<std::uint32_t> allowed(std::begin(kAllowed), std::end(kAllowed));
  if (reads_proc) allowed.insert(allowed.end(), std::begin(kProcReading), std::end(kProcReading));
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  if (reads_proc) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ACCMODE | O_CREAT | O_TRUNC, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  const auto search = search_calls(std::move(allowed), SECCOMP_RET_ERRNO | EPERM);
  program.insert(program.end(), search.begin(), search.end());
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
    return fail_errno("seccomp of the supervisor");
  return {};
}

// No file system at all; a kernel without Landlock has the filter alone.
Status forbid_files() {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi <= 0) return {};
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  const long raw =
      ::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0);
  if (raw < 0) return fail_errno("landlock_create_ruleset");
  const Fd ruleset(static_cast<int>(raw));
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return fail_errno("landlock_restrict_self");
  return {};
}

}  // namespace

Status confine_supervisor(const SupervisorConfinement& confinement) {
  if (is_off(confinement.switches, Mechanism::kSupervisorConfine)) return {};
  if (confinement.change_ids) {
    if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
    if (::setresgid(confinement.gid, confinement.gid, confinement.gid) != 0)
      return fail_errno("setresgid");
    if (::setresuid(confinement.uid, confinement.uid, confinement.uid) != 0)
      return fail_errno("setresuid");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("no_new_privs");
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno("dumpable");
  // Changing ids cleared it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("pdeathsig");
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  // A Landlock domain may not look into processes outside of it, which is the watcher's whole work.
  if (!confinement.reads_proc) TRY(forbid_files());
  return install_filter(confinement.reads_proc);
}

}  // namespace caisson::wall
