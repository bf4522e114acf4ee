// Seventy-two doors that a sandbox may leave open, each tried in a child of its own. Prints
//
//   door NAME open|shut DETAIL
//
// for every one of them. doors.py compares the open ones with those that are meant to be open.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

static int report_fd;

__attribute__((noreturn, format(printf, 2, 3))) static void say(bool open_door, const char* format,
                                                                ...) {
  char line[256];
  line[0] = open_door ? 'o' : 's';
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + 1, sizeof line - 1, format, arguments);
  va_end(arguments);
  ssize_t written = write(report_fd, line, strlen(line));
  _exit(written < 0);
}
__attribute__((noreturn)) static void by_result(long result) {
  if (result >= 0) say(true, "%ld", result);
  say(false, "%s", errno_name(errno));
}
// Open too where the kernel's own code answers: with another errno than those of a refusal.
__attribute__((noreturn)) static void by_reach(long result) {
  bool refused = errno == EPERM || errno == EACCES || errno == ENOSYS;
  if (result >= 0) say(true, "%ld", result);
  say(!refused, "%s", errno_name(errno));
}
__attribute__((noreturn)) static void by_open(const char* path, int flags) {
  by_result(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}
__attribute__((noreturn)) static void by_bytes(const char* path) {
  char text[64];
  ssize_t length = read_file(path, text, sizeof text);
  if (length > 0) say(true, "%zd bytes", length);
  say(false, "%s", length == 0 ? "empty" : errno_name(errno));
}
static long status_field(const char* name) {
  char text[8192];
  if (read_file("/proc/self/status", text, sizeof text) < 0) return -1;
  char* line = strstr(text, name);
  return line == NULL ? -1 : (long)strtoull(line + strlen(name), NULL, 16);
}
static int terminal(void) {
  // A group's leader cannot start a session: a child does the rest.
  pid_t child = fork();
  if (child != 0) {
    waitpid(child, NULL, 0);
    _exit(0);
  }
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlock = 0, number = 0;
  char path[32];
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) != 0 ||
      ioctl(master, TIOCGPTN, &number) != 0)
    return -1;
  snprintf(path, sizeof path, "/dev/pts/%d", number);
  setsid();
  int slave = open(path, O_RDWR | O_CLOEXEC);
  ioctl(slave, TIOCSCTTY, 0);
  return slave;
}

#define DOORS(X)                                                                                   \
  X(cap_eff_nonzero, long caps = status_field("CapEff:\t"); say(caps != 0, "%lx", caps))           \
  X(no_new_privs_off, int on = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); say(on != 1, "%d", on))     \
  X(w_core_pattern, by_open("/proc/sys/kernel/core_pattern", O_WRONLY))                            \
  X(w_sysrq_trigger, by_open("/proc/sysrq-trigger", O_WRONLY))                                     \
  X(w_drop_caches, by_open("/proc/sys/vm/drop_caches", O_WRONLY))                                  \
  X(w_cgroup_memory, writable_cgroup())                                                            \
  X(r_kcore, by_open("/proc/kcore", O_RDONLY))                                                     \
  X(r_kallsyms, by_bytes("/proc/kallsyms"))                                                        \
  X(r_keys, by_bytes("/proc/keys"))                                                                \
  X(r_sys, struct stat s; by_result(stat("/sys/kernel", &s)))                                      \
  X(r_vda, by_open("/dev/vda", O_RDONLY))                                                          \
  X(r_kmsg, by_open("/dev/kmsg", O_RDONLY))                                                        \
  X(rw_kvm, by_open("/dev/kvm", O_RDWR))                                                           \
  X(rw_fuse, by_open("/dev/fuse", O_RDWR))                                                         \
  X(r_etc_shadow, by_bytes("/etc/shadow"))                                                         \
  X(w_etc, by_result(open("/etc/door", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)))                     \
  X(r_root, by_open("/root", O_RDONLY | O_DIRECTORY))                                              \
  X(see_host_procs, host_processes())                                                              \
  X(r_init_environ, by_open("/proc/1/environ", O_RDONLY))                                          \
  X(userns_unshare, by_result(unshare(CLONE_NEWUSER)))                                             \
  X(userns_clone3, clone3_user())                                                                  \
  X(userns_tmpfs, nested_tmpfs())                                                                  \
  X(mount_tmpfs, mkdir("/tmp/door", 0700);                                                         \
    by_result(mount("door", "/tmp/door", "tmpfs", 0, NULL)))                                       \
  X(fsopen, by_result(syscall(SYS_fsopen, "tmpfs", 0)))                                            \
  X(nested_nftables, nested_netfilter())                                                           \
  X(mknod_block, by_result(mknod("/tmp/door-block", S_IFBLK | 0600, makedev(1, 0))))               \
  X(chroot, by_result(chroot("/")))                                                                \
  X(open_by_handle_at, by_handle())                                                                \
  X(pivot_root, by_result(syscall(SYS_pivot_root, ".", ".")))                                      \
  X(setns_self, by_result(setns(open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC), CLONE_NEWUTS)))   \
  X(io_uring_setup, struct io_uring_params p = {0}; by_result(syscall(SYS_io_uring_setup, 4, &p))) \
  X(bpf_map, bpf_map())                                                                            \
  X(userfaultfd, by_result(syscall(SYS_userfaultfd, O_CLOEXEC)))                                   \
  X(userfaultfd_user, by_result(syscall(SYS_userfaultfd, O_CLOEXEC | 1)))                          \
  X(perf_event_open, perf_event())                                                                 \
  X(keyctl, by_result(syscall(SYS_keyctl, 0, -2, 1)))                                              \
  X(add_key, by_result(syscall(SYS_add_key, "user", "door", "x", 1, -2)))                          \
  X(ptrace_child, by_result(ptrace(PTRACE_TRACEME, 0, NULL, NULL)))                                \
  X(process_vm_readv, read_parent())                                                               \
  X(memfd_create, by_result(memfd_create("door", MFD_CLOEXEC)))                                    \
  X(memfd_secret, by_result(syscall(SYS_memfd_secret, 0)))                                         \
  X(personality_no_randomize, by_result(syscall(SYS_personality, 0x40000ul)))                      \
  X(modify_ldt, char table[16]; by_result(syscall(SYS_modify_ldt, 0, table, sizeof table)))        \
  X(i386_int80, entry_of_32_bits())                                                                \
  X(x32_abi, by_result(syscall(0x40000000 | SYS_getpid)))                                          \
  X(kexec_load, by_reach(syscall(SYS_kexec_load, 0, 0, NULL, 0)))                                  \
  X(init_module, by_reach(syscall(SYS_init_module, (void*)1, 1, "")))                              \
  X(swapon, by_reach(syscall(SYS_swapon, "/tmp/nothing", 0)))                                      \
  X(syslog_read, char log[16]; by_result(syscall(SYS_syslog, 3, log, sizeof log)))                 \
  X(clock_settime, struct timespec t; clock_gettime(CLOCK_REALTIME, &t);                           \
    by_result(clock_settime(CLOCK_REALTIME, &t)))                                                  \
  X(sethostname, by_result(sethostname("door", 4)))                                                \
  X(fanotify_init, by_result(syscall(SYS_fanotify_init, 0x200, 0)))                                \
  X(quotactl, by_reach(syscall(SYS_quotactl, 0xff, NULL, 0, NULL)))                                \
  X(rlimit_raise_nofile, struct rlimit l; getrlimit(RLIMIT_NOFILE, &l); l.rlim_max++;              \
    by_result(setrlimit(RLIMIT_NOFILE, &l)))                                                       \
  X(core_dumps, struct rlimit l; getrlimit(RLIMIT_CORE, &l);                                       \
    say(l.rlim_max != 0, "%lu", (unsigned long)l.rlim_max))                                        \
  X(nice_minus_20, by_result(setpriority(PRIO_PROCESS, 0, -20)))                                   \
  X(sched_fifo, struct sched_param p = {.sched_priority = 1};                                      \
    by_result(sched_setscheduler(0, SCHED_FIFO, &p)))                                              \
  X(af_vsock, by_result(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)))                          \
  X(af_packet, by_result(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)))                           \
  X(raw_icmp, by_result(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)))                   \
  X(netlink_route, by_result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)))          \
  X(netlink_netfilter, by_result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER)))  \
  X(netlink_audit, by_result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT)))          \
  X(af_alg, by_result(socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)))                           \
  X(af_xdp, by_result(socket(44, SOCK_RAW | SOCK_CLOEXEC, 0)))                                     \
  X(af_unix, by_result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)))                            \
  X(af_inet, by_result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)))                            \
  X(host_abstract_socket, host_abstract())                                                         \
  X(host_loopback_port, host_loopback())                                                           \
  X(tiocsti, by_reach(ioctl(terminal(), TIOCSTI, "x")))                                            \
  X(tiocsti_64_bit,                                                                                \
    by_reach(syscall(SYS_ioctl, terminal(), (unsigned long)TIOCSTI | 1ul << 32, "x")))             \
  X(fork_4000, fork_many())

static void writable_cgroup(void) {
  const char* paths[] = {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
                         "/sys/fs/cgroup/cgroup.procs", NULL};
  for (int i = 0; paths[i] != NULL; i++)
    if (open(paths[i], O_WRONLY | O_CLOEXEC) >= 0) say(true, "%s", paths[i]);
  say(false, "%s", errno_name(errno));
}
static void host_processes(void) {
  DIR* directory = opendir("/proc");
  int count = 0;
  for (struct dirent* entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
    char path[300];
    struct stat status;
    if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name)) continue;
    snprintf(path, sizeof path, "/proc/%s", entry->d_name);
    if (stat(path, &status) == 0 && status.st_uid != getuid()) say(true, "sees %s", entry->d_name);
    count++;
  }
  say(false, "%d of its own", count);
}
static void clone3_user(void) {
  struct {
    uint64_t flags, pidfd, child, parent, signal, stack, size, tls, set, set_size, cgroup;
  } arguments = {.flags = CLONE_NEWUSER, .signal = SIGCHLD};
  long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) _exit(0);
  by_result(child);
}
static void nested_tmpfs(void) {
  mkdir("/tmp/door-nested", 0700);
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) say(false, "%s", errno_name(errno));
  by_result(mount("door", "/tmp/door-nested", "tmpfs", 0, NULL));
}
static void nested_netfilter(void) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) say(false, "%s", errno_name(errno));
  by_result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
}
static void by_handle(void) {
  struct {
    unsigned bytes;
    int type;
    unsigned char data[128];
  } handle = {.bytes = 128};
  int mount_id = 0;
  if (syscall(SYS_name_to_handle_at, AT_FDCWD, "/tmp", &handle, &mount_id, 0) != 0)
    say(false, "%s", errno_name(errno));
  by_result(syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY));
}
static void bpf_map(void) {
  union bpf_attr attributes = {0};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = 4;
  attributes.value_size = 4;
  attributes.max_entries = 1;
  by_result(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes));
}
static void perf_event(void) {
  struct perf_event_attr attributes = {
      .type = PERF_TYPE_SOFTWARE, .size = sizeof attributes, .exclude_kernel = 1, .exclude_hv = 1};
  by_result(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}
static void read_parent(void) {
  static char byte;
  struct iovec local = {&byte, 1}, remote = {&byte, 1};
  by_result(syscall(SYS_process_vm_readv, getppid(), &local, 1, &remote, 1, 0));
}
static void entry_of_32_bits(void) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
  if ((int)result > 0) say(true, "pid %d", (int)result);
  say(false, "%s", errno_name(-(int)result));
}
static void host_abstract(void) {
  const char* name = host_fact("HOST_ABSTRACT");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path + 1, name, strlen(name));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  by_result(connect(fd, (struct sockaddr*)&address,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))));
}
static void host_loopback(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  address.sin_port = htons((uint16_t)strtol(host_fact("HOST_PORT"), NULL, 10));
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  by_result(connect(fd, (struct sockaddr*)&address, sizeof address));
}
static void fork_many(void) {
  int made = 0;
  for (; made <= 4000; made++) {
    pid_t child = fork();
    if (child < 0) break;
    if (child == 0) {
      for (;;) pause();
    }
  }
  int error = errno;
  if (made > 4000) say(true, "%d", made);
  say(false, "%s after %d", errno_name(error), made);
}

#define FUNCTION(name, ...)       \
  static void door_##name(void) { \
    __VA_ARGS__;                  \
  }
DOORS(FUNCTION)
#define ENTRY(name, ...) {#name, door_##name},
static const struct {
  const char* name;
  void (*body)(void);
} doors[] = {DOORS(ENTRY)};
_Static_assert(sizeof doors / sizeof doors[0] == 72, "the table of peers has seventy-two doors");

static void try_door(int index) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) abort();
  pid_t child = fork();
  if (child < 0) abort();
  if (child == 0) {
    setpgid(0, 0);
    close(pipe_fds[0]);
    report_fd = pipe_fds[1];
    doors[index].body();
    _exit(1);
  }
  setpgid(child, child);
  close(pipe_fds[1]);
  char line[256] = "sno answer";
  struct pollfd wait = {.fd = pipe_fds[0], .events = POLLIN};
  if (poll(&wait, 1, 10000) == 1) {
    ssize_t length = read(pipe_fds[0], line, sizeof line - 1);
    if (length > 0)
      line[length] = 0;
    else
      snprintf(line, sizeof line, "sended by a signal");
  }
  close(pipe_fds[0]);
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  printf("door %s %s %s\n", doors[index].name, line[0] == 'o' ? "open" : "shut", line + 1);
  fflush(stdout);
}

int main(void) {
  require_sandbox();
  for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) try_door((int)i);
  return 0;
}
