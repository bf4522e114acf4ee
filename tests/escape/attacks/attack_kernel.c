// Attempts on the kernel's surface: system calls, socket families and entry points that a sandboxed
// program has no use for. Most show by an errno that the kernel's own code was reached: the
// arguments are chosen so that the kernel refuses them with another errno than the filter.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

#define BAD ((void*)1)
// A system call that must not reach the kernel's code, as one line.
#define CALL(id, ...)                \
  ATTEMPT(id) {                      \
    unreached(syscall(__VA_ARGS__)); \
  }

// 9: a file by its handle.
ATTEMPT(9a) {
  struct {
    unsigned bytes;
    int type;
    unsigned char data[128];
  } handle = {.bytes = 128};
  int mount_id = 0;
  unreached(syscall(SYS_name_to_handle_at, AT_FDCWD, "/grant-ro/file", &handle, &mount_id, 0));
}
CALL(9b, SYS_open_by_handle_at, AT_FDCWD, BAD, O_RDONLY)

// 37: io_uring.
ATTEMPT(37a) {
  struct io_uring_params parameters = {0};
  unreached(syscall(SYS_io_uring_setup, 4, &parameters));
}
CALL(37b, SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0)
CALL(37c, SYS_io_uring_register, -1, 0, NULL, 0)

// 38: bpf; an argument larger than a page is refused before any right is looked at.
CALL(38a, SYS_bpf, BPF_MAP_CREATE, BAD, 1 << 20)
CALL(38b, SYS_bpf, BPF_PROG_LOAD, BAD, 1 << 20)
CALL(38c, SYS_bpf, 36 /* BPF_TOKEN_CREATE */, BAD, 1 << 20)

// 39: page faults answered by the attacker.
CALL(39a, SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */ | O_CLOEXEC)
CALL(39b, SYS_userfaultfd, 1 | 0x100000)

ATTEMPT(39c) {
  open_denied("/dev/userfaultfd", O_RDWR);
}

// 40: keys.
CALL(40a, SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3 /* session */, 0)
CALL(40b, SYS_add_key, "user", "attack", "x", 1, -2 /* process */)
CALL(40c, SYS_request_key, "user", "attack", NULL, 0)

// 41: performance counters; unknown flags are refused before any right is looked at.
CALL(41a, SYS_perf_event_open, BAD, 0, -1, -1, 1ul << 20)
ATTEMPT(41b) {
  struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE,
                                       .size = sizeof attributes,
                                       .config = PERF_COUNT_SW_CPU_CLOCK,
                                       .exclude_kernel = 1,
                                       .exclude_hv = 1};
  unreached(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}

// 42: tracing.
ATTEMPT(42a) {
  denied(ptrace(PTRACE_SEIZE, 1, NULL, NULL));
}
CALL(42b, SYS_ptrace, PTRACE_TRACEME, 0, 0, 0)
ATTEMPT(42c) {
  pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  long result = ptrace(PTRACE_SEIZE, child, NULL, NULL);
  int error = errno;
  kill(child, SIGKILL);
  errno = error;
  unreached(result);
}

// 43: the memory and descriptors of others.
static long read_memory(pid_t pid, void* from) {
  char byte;
  struct iovec local = {&byte, 1}, remote = {from, 1};
  return syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0);
}
ATTEMPT(43a) {
  static char here = 'x';
  unreached(read_memory(getpid(), &here));
}
ATTEMPT(43b) {
  static char here = 'x';
  struct iovec local = {&here, 1}, remote = {&here, 1};
  unreached(syscall(SYS_process_vm_writev, getpid(), &local, 1, &remote, 1, 0));
}
ATTEMPT(43c) {
  int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  if (pidfd < 0) contained("%s", errno_name(errno));
  unreached(syscall(SYS_pidfd_getfd, pidfd, 1, 0));
}
CALL(43d, SYS_process_madvise, -1, BAD, 1, MADV_COLD, 0)
CALL(43e, SYS_kcmp, getpid(), getpid(), 0, 0, 0)
CALL(43f, SYS_process_mrelease, -1, 0)
ATTEMPT(43g) {
  denied(read_memory(1, (void*)0x400000));
}

// 44: the machine.
CALL(44a, SYS_kexec_load, 0, 0, NULL, 0)
CALL(44b, SYS_kexec_file_load, -1, -1, 0, NULL, 0)
CALL(44c, SYS_init_module, BAD, 1, "")
CALL(44d, SYS_finit_module, -1, "", 0)
CALL(44e, SYS_delete_module, "nothing", O_NONBLOCK)
CALL(44f, SYS_reboot, 0, 0, 0, NULL)
CALL(44g, SYS_swapon, "/nothing", 0x40000000)
CALL(44h, SYS_swapoff, "/nothing")
CALL(44i, SYS_acct, "/nothing")
CALL(44j, SYS_quotactl, 0xff, NULL, 0, NULL)
CALL(44k, SYS_quotactl_fd, -1, 0xff, 0, NULL)
CALL(44l, SYS_settimeofday, BAD, NULL)
CALL(44m, SYS_clock_settime, 9999, BAD)
ATTEMPT(44n) {
  struct timex change = {.modes = ADJ_FREQUENCY};
  denied(syscall(SYS_adjtimex, &change));
}
CALL(44o, SYS_iopl, 9)
CALL(44p, SYS_ioperm, 0x7fffffff, 16, 1)
CALL(44q, SYS_vhangup)
CALL(44r, SYS_sethostname, "attack", 6)
CALL(44s, SYS_setdomainname, "attack", 6)
CALL(44t, SYS_syslog, 10 /* size of the buffer */, NULL, 0)
ATTEMPT(44u) {
  struct timex change = {.modes = ADJ_FREQUENCY};
  denied(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &change));
}

// 45: netlink to anything but routes.
#define NETLINK(id, protocol)                                      \
  ATTEMPT(id) {                                                    \
    denied(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)); \
  }
NETLINK(45a, NETLINK_NETFILTER)
NETLINK(45b, NETLINK_AUDIT)
NETLINK(45c, NETLINK_KOBJECT_UEVENT)
NETLINK(45d, NETLINK_XFRM)
NETLINK(45e, NETLINK_GENERIC)
NETLINK(45f, NETLINK_SOCK_DIAG)
NETLINK(45g, NETLINK_CONNECTOR)
NETLINK(45h, NETLINK_CRYPTO)
NETLINK(45i, NETLINK_RDMA)

// 46: the hypervisor is one connect() away, whatever the network namespace says.
ATTEMPT(46a) {
  unreached(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
ATTEMPT(46b) {
  unreached(socket(AF_VSOCK, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

// 47: other families. No family has type 15: the kernel says EINVAL before it looks for the family.
#define FAMILY(id, family)            \
  ATTEMPT(id) {                       \
    unreached(socket(family, 15, 0)); \
  }
FAMILY(47a, AF_ALG)
FAMILY(47b, AF_PACKET)
FAMILY(47c, 44 /* AF_XDP */)
FAMILY(47d, 15 /* AF_KEY */)
FAMILY(47e, 30 /* AF_TIPC */)
FAMILY(47f, 21 /* AF_RDS */)
FAMILY(47g, 29 /* AF_CAN */)
FAMILY(47h, 31 /* AF_BLUETOOTH */)
FAMILY(47i, 43 /* AF_SMC */)
FAMILY(47j, 42 /* AF_QIPCRTR */)
FAMILY(47k, 41 /* AF_KCM */)
FAMILY(47l, 24 /* AF_PPPOX */)
FAMILY(47m, 45 /* AF_MCTP */)
ATTEMPT(47n) {
  // Every other number, so that a family that comes tomorrow is refused too.
  for (int family = 0; family < 64; family++) {
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
      continue;
    if (socket(family, 15, 0) >= 0 || (errno != EPERM && errno != EAFNOSUPPORT && errno != EACCES))
      escaped("family %d: %s", family, errno_name(errno));
  }
  contained("all");
}
ATTEMPT(47o) {
  // The family with rubbish in the upper half of its register.
  unreached(syscall(SYS_socket, 1ul << 32 | AF_VSOCK, SOCK_STREAM, 0));
}
ATTEMPT(47p) {
  int pair[2];
  unreached(socketpair(30 /* AF_TIPC */, 15, 0, pair));
}

// 48: other ways into the kernel.
static long int80(long number, long first) {
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(first)
                   : "memory", "r8", "r9", "r10", "r11");
  return (int)result;
}
ATTEMPT(48a) {
  long result = int80(20 /* getpid */, 0);
  if (result >= 0) escaped("the 32-bit entry answered %ld", result);
  contained("%s", errno_name((int)-result));
}
ATTEMPT(48b) {
  unreached(syscall(0x40000000 | SYS_getpid));
}
ATTEMPT(48c) {
  long result = int80(102 /* socketcall */, 99);
  if (result != -ENOSYS && result != -EPERM) escaped("socketcall answered %ld", result);
  contained("%s", errno_name((int)-result));
}

// 49: clone3 hides its flags from a filter.
ATTEMPT(49a) {
  struct {
    uint64_t flags, rest[10];
  } arguments = {.flags = CLONE_NEWUSER};
  unreached(syscall(SYS_clone3, &arguments, sizeof arguments));
}
ATTEMPT(49b) {
  unreached(syscall(SYS_clone3, BAD, 4));
}

// 50: personalities.
#define PERSONALITY(id, value)                                   \
  ATTEMPT(id) {                                                  \
    unreached(syscall(SYS_personality, (unsigned long)(value))); \
  }
PERSONALITY(50a, READ_IMPLIES_EXEC)
PERSONALITY(50b, ADDR_NO_RANDOMIZE)
PERSONALITY(50c, ADDR_COMPAT_LAYOUT)
PERSONALITY(50d, MMAP_PAGE_ZERO)

// 51: segments.
ATTEMPT(51a) {
  char table[64];
  unreached(syscall(SYS_modify_ldt, 0, table, sizeof table));
}
ATTEMPT(51b) {
  unreached(syscall(SYS_modify_ldt, 0x11, BAD, 16));
}

// 53: memory that the host cannot see, and memory that cannot be taken back.
CALL(53a, SYS_memfd_secret, 0)
ATTEMPT(53b) {
  struct rlimit limit;
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > 64 << 20)
    escaped("may lock %lu bytes", limit.rlim_max);
  size_t size = limit.rlim_max + (1 << 20);
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) contained("%s", errno_name(errno));
  denied(mlock(memory, size));
}

// 54: a place before the host's own processes.
ATTEMPT(54a) {
  struct sched_param parameters = {.sched_priority = 1};
  denied(sched_setscheduler(0, SCHED_FIFO, &parameters));
}
ATTEMPT(54b) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes = {sizeof attributes, 6, 0, 0, 0, 1000000, 10000000, 10000000};
  denied(syscall(SYS_sched_setattr, 0, &attributes, 0));
}
ATTEMPT(54c) {
  denied(setpriority(PRIO_PROCESS, 0, -20));
}
ATTEMPT(54d) {
  denied(syscall(SYS_ioprio_set, 1, 0, 1 << 13));
}
ATTEMPT(54e) {
  struct rlimit limit;
  getrlimit(RLIMIT_RTPRIO, &limit);
  struct rlimit nice_limit;
  getrlimit(RLIMIT_NICE, &nice_limit);
  if (limit.rlim_max != 0 || nice_limit.rlim_max != 0)
    escaped("rtprio %lu, nice %lu", limit.rlim_max, nice_limit.rlim_max);
  contained("zero");
}

// 55: other processes' pages.
ATTEMPT(55a) {
  unreached(syscall(SYS_move_pages, 0, 0ul, NULL, NULL, NULL, 0));
}
ATTEMPT(55b) {
  unsigned long nodes = 1;
  unreached(syscall(SYS_migrate_pages, 0, 64ul, &nodes, &nodes));
}

// 56: watching files.
CALL(56a, SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, O_RDONLY)
CALL(56b, SYS_fanotify_mark, -1, 1, 1, -1, NULL)

// 57: calls from other times.
CALL(57a, SYS_ustat, ~0u, BAD)
CALL(57b, SYS_sysfs, 3)
CALL(57c, SYS_uselib, "/nothing")
CALL(57d, SYS_lookup_dcookie, 0ull, BAD, 0)
CALL(57e, SYS_nfsservctl, 0, NULL, NULL)
CALL(57f, SYS__sysctl, NULL)
CALL(57g, SYS_remap_file_pages, BAD, 1, 1, 1, 1)

// 58: numbers that do not exist yet must look as if they did not exist.
ATTEMPT(58a) {
  for (int number = 480; number < 620; number++) {
    if (syscall(number) >= 0 || errno != ENOSYS) escaped("%d: %s", number, errno_name(errno));
  }
  contained("ENOSYS");
}

// 59: the filter's own calls.
static struct sock_filter allow_all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
static struct sock_fprog program = {1, allow_all};
ATTEMPT(59a) {
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0 && errno != EPERM &&
      errno != EACCES)
    contained("%s", errno_name(errno));
  struct io_uring_params parameters = {0};
  unreached(syscall(SYS_io_uring_setup, 4, &parameters));
}
ATTEMPT(59b) {
  denied(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}
ATTEMPT(59c) {
  char text[8192];
  if (read_file("/proc/self/status", text, sizeof text) < 0)
    escaped("no status: %s", errno_name(errno));
  const char* line = strstr(text, "\nSeccomp:\t");
  if (line == NULL || line[10] != '2') escaped("no filter is in force");
  contained("filter");
}

// 60 and 71: typing into a terminal.
static int own_terminal(void) {
  // A group's leader cannot start a session: a child does the rest.
  pid_t child = fork();
  if (child != 0) {
    waitpid(child, NULL, 0);
    _exit(0);
  }
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) contained("%s /dev/ptmx", errno_name(errno));
  int unlock = 0, number = 0;
  char path[32];
  if (ioctl(master, TIOCSPTLCK, &unlock) != 0 || ioctl(master, TIOCGPTN, &number) != 0)
    contained("%s", errno_name(errno));
  snprintf(path, sizeof path, "/dev/pts/%d", number);
  setsid();
  int slave = open(path, O_RDWR | O_CLOEXEC);
  if (slave < 0) contained("%s %s", errno_name(errno), path);
  ioctl(slave, TIOCSCTTY, 0);
  return slave;
}
ATTEMPT(60a) {
  unreached(syscall(SYS_ioctl, own_terminal(), (unsigned long)TIOCSTI | 1ul << 32, "x"));
}
ATTEMPT(60b) {
  unreached(syscall(SYS_ioctl, own_terminal(), (unsigned long)TIOCSETD | 1ul << 32, &(int){0}));
}
ATTEMPT(71a) {
  unreached(ioctl(own_terminal(), TIOCSTI, "x"));
}
ATTEMPT(71b) {
  unreached(ioctl(own_terminal(), TIOCLINUX, "\x06"));
}
ATTEMPT(71c) {
  unreached(ioctl(own_terminal(), TIOCSETD, &(int){0}));
}
ATTEMPT(71d) {
  // The caller's terminal, where the caller has one.
  int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) unreached(ioctl(fd, TIOCSTI, "x"));
  contained("%s", errno_name(errno));
}

// 62: what is open and harmless stays open: restartable sequences and robust lists.
ATTEMPT(62a) {
  char head[24] = {0};
  if (syscall(SYS_set_robust_list, head, sizeof head) != 0) contained("%s", errno_name(errno));
  contained("made");
}

// 63: the page at zero.
ATTEMPT(63a) {
  void* page =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  denied(page == MAP_FAILED ? -1 : 0);
}

// 65: calls with random arguments, for a while. The runner looks at the host afterwards.
static uint64_t random_state = 0x9e3779b97f4a7c15ull;
static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}
static bool left_out(int number) {
  switch (number) {
    case SYS_exit:
    case SYS_exit_group:
    case SYS_fork:
    case SYS_vfork:
    case SYS_clone:
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill:
    case SYS_rt_sigsuspend:
    case SYS_pause:
    case SYS_rt_sigreturn:
    case SYS_rt_sigqueueinfo:
    case SYS_rt_tgsigqueueinfo:
    case SYS_write:
    case SYS_writev:
    case SYS_pidfd_send_signal:
    case SYS_alarm:
    case SYS_setitimer:
    case SYS_rt_sigprocmask:
      return true;
    default:
      return false;
  }
}
static void fuzz(double seconds) {
  double end = now_seconds() + seconds;
  const char* seed = getenv("FUZZ_SEED");
  if (seed != NULL) random_state ^= strtoull(seed, NULL, 10) * 2654435761u;
  long batches = 0;
  while (now_seconds() < end) {
    next_random();
    pid_t child = fork();
    if (child < 0) continue;
    if (child == 0) {
      static char scratch[65536];
      int null = open("/dev/null", O_RDWR | O_CLOEXEC);
      dup2(null, 0);
      dup2(null, 1);
      dup2(null, 2);
      alarm(1);
      for (int i = 0; i < 400; i++) {
        int number = (int)(next_random() % 480);
        if (left_out(number)) continue;
        uint64_t argument[6];
        for (int k = 0; k < 6; k++) {
          uint64_t value = next_random();
          switch (value % 6) {
            case 0:
              argument[k] = value >> 32 & 0xff;
              break;
            case 1:
              argument[k] = (uint64_t)(uintptr_t)(scratch + (value >> 32) % sizeof scratch);
              break;
            case 2:
              argument[k] = ~0ull;
              break;
            case 3:
              argument[k] = value;
              break;
            case 4:
              argument[k] = 1ull << (value >> 32) % 64;
              break;
            default:
              argument[k] = 0;
              break;
          }
        }
        syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
      }
      _exit(0);
    }
    waitpid(child, NULL, 0);
    batches++;
  }
  contained("survived %ld batches", batches);
}
ATTEMPT_WITHIN(65a, 10) {
  fuzz(2);
}
ATTEMPT_WITHIN(65b, 660) {
  fuzz(600);
}

// 77: the clock that the deadline hangs on.
ATTEMPT(77a) {
  struct timespec time = {.tv_sec = 1};
  denied(clock_settime(CLOCK_REALTIME, &time));
}

// 117: which pages of a shared file are in memory.
ATTEMPT(117a) {
  unreached(syscall(451 /* cachestat */, -1, BAD, BAD, 0));
}
ATTEMPT(117b) {
  // The kernel answers "all there" to whoever may not write the file.
  int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  void* page = mmap(NULL, 1 << 16, PROT_READ, MAP_PRIVATE, fd, 0);
  unsigned char present[16] = {0};
  if (page == MAP_FAILED || mincore(page, 1 << 15, present) != 0)
    contained("%s", errno_name(errno));
  for (int i = 0; i < 8; i++)
    if ((present[i] & 1) == 0) escaped("page %d is told to be absent", i);
  contained("blind");
}

// 121 and on: newer calls.
CALL(121a, 457 /* statmount */, BAD, BAD, 0, 0)
CALL(121b, 458 /* listmount */, BAD, BAD, 0, 0)
CALL(121c, 467 /* open_tree_attr */, AT_FDCWD, "/", 0, BAD, 1 << 20)
CALL(121d, 459 /* lsm_get_self_attr */, 9999, NULL, BAD, 0)
CALL(121e, 461 /* lsm_list_modules */, BAD, BAD, 99)
