#include "image/worker/confine.h"

#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::image {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAISSON_WORKER_SANITIZED 1
#endif
#endif

Status limit(int resource, const char* name, rlim_t value) {
  rlimit now = {};
  if (getrlimit(resource, &now) != 0) return fail_errno(std::string("getrlimit ") + name);
  const rlimit wanted = {std::min(value, now.rlim_max), std::min(value, now.rlim_max)};
  if (setrlimit(resource, &wanted) != 0) return fail_errno(std::string("setrlimit ") + name);
  return {};
}

#ifndef CAISSON_WORKER_SANITIZED
// zstd's and xz's windows, libarchive's buffers, the tree of two million names.
constexpr rlim_t kMemory = 2ull << 30;

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// Memory, time, the other thread, ending: of every task.
constexpr int kAlways[] = {
    SYS_brk,        SYS_mmap,   SYS_munmap,         SYS_mremap,       SYS_madvise,
    SYS_mprotect,   SYS_futex,  SYS_clock_gettime,  SYS_getrandom,    SYS_getpid,
    SYS_gettid,     SYS_tgkill, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_exit,
    SYS_exit_group,
};

constexpr int kUnpackAllowed[] = {
    // bytes in and out
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_sendto,
    SYS_recvfrom,
    SYS_close,
    SYS_fcntl,
    // looking for files, which the C library does now and then
    SYS_openat,
    SYS_newfstatat,
    SYS_fstat,
    SYS_statx,
    SYS_ftruncate,
    SYS_gettimeofday,
    SYS_geteuid,
#ifdef SYS_unlink  // the older calls, where the C library still makes them
    SYS_open,
    SYS_stat,
    SYS_time,
#endif
};
constexpr int kForDirectory[] = {
    SYS_openat2,   SYS_faccessat, SYS_getdents64, SYS_readlinkat,      SYS_mkdirat, SYS_mknodat,
    SYS_symlinkat, SYS_linkat,    SYS_unlinkat,   SYS_renameat2,       SYS_fchmod,  SYS_fchmodat,
    SYS_fchown,    SYS_fchownat,  SYS_utimensat,  SYS_sync_file_range,
};
constexpr int kForDelta[] = {
    SYS_fsetxattr,
};
// Nothing that makes a file or changes more than the bytes of one that is open.
constexpr int kForImage[] = {
    SYS_fallocate,
    SYS_copy_file_range,
};

constexpr int kPackAllowed[] = {
    // bytes and a descriptor out
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_lseek,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_close,
    SYS_fcntl,
    // looking
    SYS_openat2,
    SYS_newfstatat,
    SYS_fstat,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_fgetxattr,
};

constexpr int kUncompressAllowed[] = {
    // bytes in
    SYS_read,
};

Status filter_system_calls(WorkerTask task) {
  std::vector<sock_filter> program;
  auto load = [&](std::size_t offset) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  };
  load(offsetof(seccomp_data, arch));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  load(offsetof(seccomp_data, nr));
  auto allow = [&](std::span<const int> numbers) {
    for (const int number : numbers) {
      program.push_back(
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1));
      program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
  };
  allow(kAlways);
  switch (task) {
    case WorkerTask::kUnpack:
      allow(kUnpackAllowed);
      allow(kForDirectory);
      break;
    case WorkerTask::kUnpackDelta:
      allow(kUnpackAllowed);
      allow(kForDirectory);
      allow(kForDelta);
      break;
    case WorkerTask::kWriteImage:
      allow(kUnpackAllowed);
      allow(kForImage);
      break;
    case WorkerTask::kPack:
      allow(kPackAllowed);
      break;
    case WorkerTask::kUncompress:
      allow(kUncompressAllowed);
      break;
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) return fail_errno("seccomp");
  return {};
}
#endif

Status drop_capabilities(WorkerTask task) {
  std::uint32_t kept = 0;
  if (task == WorkerTask::kPack) kept = 1u << CAP_DAC_READ_SEARCH;
  if (task == WorkerTask::kUnpack || task == WorkerTask::kUnpackDelta) {
    kept = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID;
  }
  for (int capability = 0; capability < 64; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && errno != EINVAL) {
      return fail_errno("drop a capability from the bounding set");
    }
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{kept, kept, 0}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

}  // namespace

Status die_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno("prctl PDEATHSIG");
  return {};
}

Status enter_namespaces(int directory_fd) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl NO_NEW_PRIVS");
  if (fchdir(directory_fd) != 0) return fail_errno("enter the destination");
  constexpr int kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC |
                              CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWCGROUP;
  if (unshare(kNamespaces) == 0) return {};
  const int error = errno;
  return fail(
      Error::syscall("user namespaces are needed to unpack an image and cannot be made here "
                     "(`caisson doctor` says what to change): unshare",
                     error));
}

Status take_root() {
  // Refused where the group map was written without the right to set groups; then there are none
  // that could matter in this namespace.
  if (setgroups(0, nullptr) != 0 && errno != EPERM) return fail_errno("setgroups");
  if (setresgid(0, 0, 0) != 0) return fail_errno("setresgid");
  if (setresuid(0, 0, 0) != 0) return fail_errno("setresuid");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return fail_errno("mount");
  Fd tree(static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, ".", OPEN_TREE_CLONE | O_CLOEXEC)));
  if (!tree.valid()) return fail_errno("open_tree");
  if (syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return fail_errno("move_mount");
  }
  if (fchdir(tree.get()) != 0) return fail_errno("fchdir");
  if (syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("pivot_root");
  if (umount2(".", MNT_DETACH) != 0) return fail_errno("detach the old root");
  if (chdir("/") != 0) return fail_errno("chdir");
  umask(0);
  return {};
}

Status take_empty_root(std::uint32_t uid, std::uint32_t gid) {
  if (setgroups(0, nullptr) != 0 && errno != EPERM) return fail_errno("setgroups");
  // Only then do the ids change without the capabilities that came with the namespace.
  if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0) return fail_errno("securebits");
  if (setresgid(gid, gid, gid) != 0) return fail_errno("setresgid");
  if (setresuid(uid, uid, uid) != 0) return fail_errno("setresuid");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return fail_errno("mount");
  const sys::MountOption options[] = {{"mode", "555"}, {"size", "4k"}, {"nr_inodes", "1"}};
  TRY_ASSIGN(const Fd nothing, sys::make_mount("tmpfs", options,
                                               MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                   MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  TRY(sys::move_mount(nothing.get(), AT_FDCWD, "/proc"));
  if (fchdir(nothing.get()) != 0) return fail_errno("fchdir");
  if (syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("pivot_root");
  if (umount2(".", MNT_DETACH) != 0) return fail_errno("detach the old root");
  if (chdir("/") != 0) return fail_errno("chdir");
  return {};
}

Status lock_down(const WorkerLimits& limits) {
  TRY(limit(RLIMIT_CORE, "core", 0));
  TRY(limit(RLIMIT_NOFILE, "nofile", 64));
  TRY(limit(RLIMIT_FSIZE, "fsize", limits.file_size));
  TRY(limit(RLIMIT_CPU, "cpu", limits.seconds));
#ifndef CAISSON_WORKER_SANITIZED
  TRY(limit(RLIMIT_AS, "as", kMemory));
#endif
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl DUMPABLE");
  return lock_down_thread(limits.task);
}

Status lock_down_thread(WorkerTask task) {
  TRY(drop_capabilities(task));
#ifndef CAISSON_WORKER_SANITIZED
  TRY(filter_system_calls(task));
#endif
  return {};
}

}  // namespace caisson::image
