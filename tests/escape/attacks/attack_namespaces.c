// Attempts on namespaces, mounts and identity: making new ones, joining the host's, and telling
// whether each is really apart from the host's.
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

#define BAD ((void*)1)
#define CALL(id, ...)                \
  ATTEMPT(id) {                      \
    unreached(syscall(__VA_ARGS__)); \
  }

// 4: the release agent of a control group of the first version runs as root on the host.
static void mount_cgroup(void) {
  mkdir("/tmp/cgroup", 0700);
  if (mount("none", "/tmp/cgroup", "cgroup", 0, "rdma") == 0)
    escaped("a control group hierarchy is mounted");
}
ATTEMPT(4a) {
  mount_cgroup();
  contained("%s", errno_name(errno));
}
ATTEMPT(4b) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWCGROUP) != 0)
    contained("%s", errno_name(errno));
  mount_cgroup();
  escaped("has namespaces of its own; the mount gave %s", errno_name(errno));
}

// 20: user namespaces again.
ATTEMPT(20a) {
  denied(unshare(CLONE_NEWUSER));
}
ATTEMPT(20b) {
  denied(unshare(CLONE_NEWUSER));
}
static void clone_with(unsigned long flags) {
  long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0);
  if (child == 0) _exit(0);
  int error = errno;
  if (child > 0) waitpid((pid_t)child, NULL, 0);
  errno = error;
  denied(child);
}
ATTEMPT(20c) {
  clone_with(CLONE_NEWUSER);
}
ATTEMPT(20d) {
  clone_with(CLONE_NEWUSER);
}
ATTEMPT(20e) {
  struct {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        size, cgroup;
  } arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
  long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) _exit(0);
  denied(child);
}
// Every other kind of namespace: without a capability the kernel refuses too, so what counts is
// that the call with no flags at all, which changes nothing, is let through while one with a flag
// is not.
static void unshare_each(const int* flags) {
  for (; *flags != 0; flags++) {
    if (unshare(*flags) == 0) escaped("unshare(%#x)", *flags);
    if (errno != EPERM && errno != ENOSPC && errno != ENOSYS)
      escaped("unshare(%#x): %s", *flags, errno_name(errno));
  }
  contained("all");
}
ATTEMPT(20f) {
  const int flags[] = {CLONE_NEWNS,
                       CLONE_NEWPID,
                       CLONE_NEWNET,
                       CLONE_NEWIPC,
                       CLONE_NEWUTS,
                       CLONE_NEWCGROUP,
                       0x80 /* CLONE_NEWTIME */,
                       0};
  unshare_each(flags);
}
ATTEMPT(20g) {
  // A flag above 32 bits beside a namespace's.
  unreached(syscall(SYS_unshare, 1ul << 32 | CLONE_NEWUSER | CLONE_NEWNS));
}
ATTEMPT(20i) {
  open_denied("/proc/sys/user/max_user_namespaces", O_WRONLY);
}
ATTEMPT(20j) {
  int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(write(fd, "0 0 1\n", 6));
}
// 94: using up the host's namespaces.
ATTEMPT(94a) {
  int made = 0;
  while (made < 100 && unshare(CLONE_NEWUSER) == 0) made++;
  if (made != 0) escaped("made %d user namespaces", made);
  contained("%s", errno_name(errno));
}
ATTEMPT(94b) {
  int made = 0;
  while (made < 100 && unshare(CLONE_NEWNET) == 0) made++;
  if (made != 0) escaped("made %d network namespaces", made);
  contained("%s", errno_name(errno));
}
// 64: a container runtime inside.
ATTEMPT(64a) {
  const char* programs[] = {"/usr/bin/bwrap", "/usr/bin/unshare", NULL};
  bool found = false;
  for (int i = 0; programs[i] != NULL; i++) {
    if (access(programs[i], X_OK) != 0) continue;
    found = true;
    pid_t child = fork();
    if (child == 0) {
      int null = open("/dev/null", O_RDWR);
      dup2(null, 1);
      dup2(null, 2);
      if (i == 0)
        execl(programs[0], "bwrap", "--unshare-user", "--ro-bind", "/", "/", "/bin/true",
              (char*)NULL);
      execl(programs[1], "unshare", "-Ur", "/bin/true", (char*)NULL);
      _exit(126);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) escaped("%s works", programs[i]);
  }
  if (!found) unsupported("the image has neither bwrap nor unshare");
  contained("refused");
}

// 21: mounts by the old calls. A pointer that cannot be read is refused before any right is looked
// at.
CALL(21a, SYS_mount, BAD, BAD, BAD, 0, NULL)
CALL(21b, SYS_umount2, "/", 0x1000)
ATTEMPT(21c) {
  mkdir("/tmp/mount", 0700);
  denied(mount("attack", "/tmp/mount", "tmpfs", 0, NULL));
}
ATTEMPT(21d) {
  denied(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
}
ATTEMPT(21e) {
  denied(umount2("/proc/kcore", MNT_DETACH));
}
ATTEMPT(21f) {
  denied(mount("/grant-ro", "/tmp", NULL, MS_BIND | MS_REC, NULL));
}
ATTEMPT(21g) {
  denied(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL));
}
// 22: mounts by the new calls.
CALL(22a, SYS_fsopen, "tmpfs", 0)
CALL(22b, SYS_open_tree, AT_FDCWD, "/", 0)
CALL(22c, SYS_mount_setattr, AT_FDCWD, "/", 0, NULL, 0)
CALL(22d, SYS_fspick, AT_FDCWD, "/nothing", 0xff)
CALL(22e, SYS_fsconfig, -1, 0xff, NULL, NULL, 0)
CALL(22f, SYS_fsmount, -1, 0xff, 0)
CALL(22g, SYS_move_mount, -1, "", -1, "", 0xffffff)
// 23: overlay's copy-up of a set-id file needs a mount of the attacker's.
ATTEMPT(23a) {
  mkdir("/tmp/upper", 0700);
  mkdir("/tmp/work", 0700);
  mkdir("/tmp/merged", 0700);
  unreached(mount("overlay", "/tmp/merged", "overlay", 0,
                  "lowerdir=/grant-ro,upperdir=/tmp/upper,workdir=/tmp/work"));
}
// 24: FUSE's mount.
ATTEMPT(24b) {
  mkdir("/tmp/fuse", 0700);
  denied(mount("fuse", "/tmp/fuse", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0"));
}
// 25: roots.
CALL(25a, SYS_chroot, "/nothing")
CALL(25b, SYS_pivot_root, "/", "/")
// The classic: a second root below a directory that is kept open, then up.
static void leave_root(void) {
  int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  mkdir("/tmp/root", 0700);
  if (chroot("/tmp/root") != 0) contained("%s", errno_name(errno));
  if (fchdir(fd) != 0) contained("%s", errno_name(errno));
  for (int i = 0; i < 64; i++)
    if (chdir("..") != 0) break;
}
ATTEMPT(25c) {
  leave_root();
  escaped("changed its root");
}
static void look_for_canary(void) {
  leave_root();
  // Where it ended, the host's canary has its name, unless there is nothing above the own root.
  int canary = open(host_fact("HOST_PATH") + 1, O_RDONLY | O_CLOEXEC);
  if (canary >= 0) escaped("reads %s", host_fact("HOST_PATH"));
  contained("%s", errno_name(errno));
}
ATTEMPT(25d) {
  look_for_canary();
}
ATTEMPT(25e) {
  look_for_canary();
}
// 26: joining others.
ATTEMPT(26a) {
  int fd = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(setns(fd, 0));
}
CALL(26b, SYS_setns, -1, 0)
ATTEMPT(26c) {
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(setns(fd, CLONE_NEWNS | CLONE_NEWUSER));
}
// 27: through the first process.
ATTEMPT(27a) {
  open_denied("/proc/1/root", O_RDONLY | O_DIRECTORY);
}
ATTEMPT(27b) {
  open_denied("/proc/1/cwd", O_RDONLY | O_DIRECTORY);
}
ATTEMPT(27c) {
  struct stat status;
  denied(stat("/proc/1/fd", &status) == 0 ? open("/proc/1/fd", O_RDONLY | O_DIRECTORY) : -1);
}
ATTEMPT(27d) {
  // The canary process of the host.
  pid_t pid = (pid_t)strtol(host_fact("HOST_PID"), NULL, 10);
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  if (read_file(path, text, sizeof text) > 0 && strstr(text, "sleep") != NULL)
    escaped("sees the host's process");
  if (kill(pid, 0) == 0) escaped("may signal process %d", pid);
  contained("%s", errno_name(errno));
}
// 30: the runner mounts something on the host after the start; see host_files.py and host_life.py.

// 87: System V objects of the host.
ATTEMPT(87a) {
  int id = (int)strtol(host_fact("HOST_SHM"), NULL, 10);
  key_t key = (key_t)strtol(host_fact("HOST_SHM_KEY"), NULL, 10);
  int by_key = shmget(key, 0, 0);
  if (by_key >= 0) escaped("shmget finds the host's segment");
  int error = errno;
  void* memory = shmat(id, NULL, SHM_RDONLY);
  if (memory != (void*)-1 && memcmp(memory, "canary", 6) == 0) escaped("reads the host's segment");
  contained("%s", errno_name(error));
}

// 122: each kind of namespace is not the host's: its number differs.
static void apart(const char* kind, const char* fact) {
  char path[64], link[64] = "";
  snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
  ssize_t length = readlink(path, link, sizeof link - 1);
  if (length < 0) contained("%s", errno_name(errno));
  if (strcmp(link, host_fact(fact)) == 0) escaped("%s is the host's", link);
  contained("apart");
}
ATTEMPT(122a) {
  apart("mnt", "HOST_NS_MNT");
}
ATTEMPT(122b) {
  apart("pid", "HOST_NS_PID");
}
ATTEMPT(122c) {
  apart("net", "HOST_NS_NET");
}
ATTEMPT(122d) {
  apart("ipc", "HOST_NS_IPC");
}
ATTEMPT(122e) {
  apart("uts", "HOST_NS_UTS");
}
ATTEMPT(122f) {
  apart("cgroup", "HOST_NS_CGROUP");
}
ATTEMPT(122g) {
  apart("user", "HOST_NS_USER");
}
ATTEMPT(122h) {
  apart("time", "HOST_NS_TIME");
}
ATTEMPT(122i) {
  // The command's user namespace must not be the one that owns the mounts: with all capabilities in
  // its own it still has none over them. NS_GET_PARENT of ours must exist inside or be refused, and
  // the owner of our mount namespace must not be ours.
  int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (mounts < 0) contained("%s", errno_name(errno));
  int owner = (int)syscall(SYS_ioctl, mounts, 0xb701 /* NS_GET_USERNS */);
  if (owner < 0) contained("%s", errno_name(errno));
  struct stat a, b;
  if (fstat(owner, &a) != 0 || stat("/proc/self/ns/user", &b) != 0)
    contained("%s", errno_name(errno));
  if (a.st_ino == b.st_ino) escaped("the command's user namespace owns its mounts");
  contained("nested");
}

// 123: capability sets, every one of them empty.
ATTEMPT(123a) {
  char text[8192];
  if (read_file("/proc/self/status", text, sizeof text) < 0)
    escaped("no status: %s", errno_name(errno));
  const char* names[] = {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:"};
  for (int i = 0; i < 4; i++) {
    const char* line = strstr(text, names[i]);
    if (line == NULL || strtoull(line + 7, NULL, 16) != 0)
      escaped("%.24s", line != NULL ? line : names[i]);
  }
  contained("zero");
}
ATTEMPT(123b) {
  for (int capability = 0; capability < 64; capability++) {
    int have = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (have == 1) escaped("capability %d is in the bounding set", capability);
  }
  contained("zero");
}
ATTEMPT(123c) {
  int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
  const int wanted = 0x2f;  // no root, no setuid fixup, no ambient, each locked
  if ((bits & wanted & 0x23) != (0x23 & wanted)) escaped("securebits %#x", bits);
  contained("locked");
}
ATTEMPT(123d) {
  denied(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21 /* sys_admin */, 0, 0));
}
// 124: becoming another user.
ATTEMPT(124a) {
  denied(setresuid(12345, 12345, 12345));
}
ATTEMPT(124b) {
  gid_t groups[1] = {0};
  denied(setgroups(1, groups));
}
ATTEMPT(124c) {
  // The sandbox's root is not the host's: what is root's on the host is nobody's here.
  struct stat status;
  if (stat("/usr/bin", &status) != 0) contained("%s", errno_name(errno));
  if (status.st_uid == getuid()) escaped("the host's files are the command's");
  contained("nobody");
}
ATTEMPT(125a) {
  int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(write(fd, "boottime 1 0\n", 13));
}
ATTEMPT(125b) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(write(fd, "-1000", 5));
}
ATTEMPT(125c) {
  open_denied("/proc/pressure/memory", O_RDWR);
}
