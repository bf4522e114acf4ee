// Attempts on files: /proc, /sys, control groups, descriptors, sockets, devices, set-id programs,
// read-only grants and shared page cache.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attack.h"

// Looks below `path` for a regular file that opens for writing; its name goes to `found`. Symbolic
// links are not followed, names of only digits (processes) and self are left out where asked.
static bool find_writable(const char* path, bool skip_processes, int depth, char* found,
                          size_t size) {
  if (depth == 0) return false;
  DIR* directory = opendir(path);
  if (directory == NULL) return false;
  bool hit = false;
  for (struct dirent* entry; !hit && (entry = readdir(directory)) != NULL;) {
    const char* name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (skip_processes && (strspn(name, "0123456789") == strlen(name) ||
                           strcmp(name, "self") == 0 || strcmp(name, "thread-self") == 0))
      continue;
    char child[4096];
    snprintf(child, sizeof child, "%s/%s", path, name);
    // Everybody may open it; the right to change it is looked at by the write.
    if (strcmp(child, "/proc/sys/kernel/ns_last_pid") == 0 || strcmp(child, "/proc/pressure") == 0)
      continue;
    struct stat status;
    if (lstat(child, &status) != 0) continue;
    if (S_ISDIR(status.st_mode)) {
      hit = find_writable(child, false, depth - 1, found, size);
    } else if (S_ISREG(status.st_mode)) {
      int fd = open(child, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
      if (fd >= 0) {
        snprintf(found, size, "%s", child);
        close(fd);
        hit = true;
      }
    }
  }
  closedir(directory);
  return hit;
}

// 1: the kernel's core pattern runs a program of the host's as root.
ATTEMPT(1a) {
  open_denied("/proc/sys/kernel/core_pattern", O_WRONLY);
}
ATTEMPT(1b) {
  open_denied("/proc/sys/kernel/core_pattern", O_WRONLY);
}
ATTEMPT(1c) {
  open_denied("/proc/sys/kernel/modprobe", O_WRONLY);
}
ATTEMPT(1d) {
  open_denied("/proc/sys/vm/drop_caches", O_WRONLY);
}

// Writes back what it reads: that the write is taken is the escape.
ATTEMPT(1e) {
  const char* path = "/proc/sys/kernel/core_pattern";
  char text[256];
  ssize_t length = read_file(path, text, sizeof text);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (length < 0 || fd < 0) contained("%s", errno_name(errno));
  denied(write(fd, text, (size_t)length));
}
ATTEMPT(2h) {
  // 'h' prints a list of commands to the host's console.
  int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(write(fd, "h", 1));
}
ATTEMPT(2a) {
  open_denied("/proc/sysrq-trigger", O_WRONLY);
}
ATTEMPT(2b) {
  open_denied("/proc/irq/default_smp_affinity", O_WRONLY);
}
ATTEMPT_WITHIN(2c, 20) {
  char found[256];
  if (find_writable("/proc", true, 12, found, sizeof found)) escaped("writable: %s", found);
  contained("none writable");
}
static void empty_directory(const char* path) {
  DIR* directory = opendir(path);
  if (directory == NULL) contained("%s %s", errno_name(errno), path);
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;)
    if (entry->d_name[0] != '.') escaped("%s/%s", path, entry->d_name);
  contained("empty");
}
ATTEMPT(2d) {
  empty_directory("/proc/bus");
}
ATTEMPT(2e) {
  empty_directory("/proc/fs");
}
ATTEMPT(2f) {
  empty_directory("/proc/acpi");
}
ATTEMPT(2g) {
  empty_directory("/proc/scsi");
}

static void absent(const char* const* paths) {
  for (; *paths != NULL; paths++) {
    struct stat status;
    if (lstat(*paths, &status) == 0) escaped("%s is there", *paths);
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
      escaped("%s: %s", *paths, errno_name(errno));
  }
  contained("absent");
}

ATTEMPT(3a) {
  const char* paths[] = {"/sys/kernel/uevent_helper",
                         "/sys/kernel/profiling",
                         "/sys/firmware",
                         "/sys/power/state",
                         "/sys/module",
                         "/sys/class",
                         "/sys/devices",
                         "/sys/kernel",
                         "/sys/block",
                         NULL};
  absent(paths);
}
ATTEMPT_WITHIN(3b, 20) {
  char found[256];
  if (find_writable("/sys", false, 12, found, sizeof found)) escaped("writable: %s", found);
  contained("none writable");
}

// 5: a sandbox's own control group.
ATTEMPT(5a) {
  const char* paths[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                         NULL};
  const char* last = "absent";
  for (int i = 0; paths[i] != NULL; i++) {
    int fd = open(paths[i], O_WRONLY | O_CLOEXEC);
    if (fd >= 0) escaped("opened %s for writing", paths[i]);
    if (errno != ENOENT) last = errno_name(errno);
  }
  contained("%s", last);
}
ATTEMPT(5b) {
  const char* paths[] = {
      "/sys/fs/cgroup/cgroup.procs",         "/sys/fs/cgroup/memory/cgroup.procs",
      "/sys/fs/cgroup/pids/tasks",           "/sys/fs/cgroup/cgroup.subtree_control",
      "/sys/fs/cgroup/unified/cgroup.procs", NULL};
  absent(paths);
}
ATTEMPT(5c) {
  char text[65536];
  if (read_file("/proc/self/mountinfo", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strstr(text, " - cgroup ") != NULL || strstr(text, " - cgroup2 ") != NULL)
    escaped("a control group file system is mounted");
  contained("absent");
}

// 6: the program that started us, reached through /proc.
ATTEMPT(6a) {
  open_denied("/proc/1/exe", O_WRONLY);
}
ATTEMPT(6b) {
  // Descriptors of the guest's image would be found where it gave them away.
  for (int fd = 0; fd < 256; fd++) {
    char path[64], link[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, link, sizeof link - 1);
    if (length <= 0) continue;
    link[length] = 0;
    if (strstr(link, "memfd:") != NULL || strstr(link, "caisson") != NULL)
      escaped("descriptor %d is %s", fd, link);
  }
  contained("absent");
}

// 7: descriptors that nobody meant to give.
ATTEMPT(7a) {
  // The pipe of this attempt is the only one above 2, and it is close-on-exec.
  for (int fd = 3; fd < 4096; fd++) {
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) escaped("descriptor %d was inherited", fd);
  }
  contained("none");
}
ATTEMPT(7b) {
  for (int fd = 0; fd < 3; fd++) {
    struct stat status;
    if (fstat(fd, &status) != 0) continue;
    bool null_device = S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
    bool own_terminal = isatty(fd) != 0;
    if (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode) && !null_device && !own_terminal)
      escaped("descriptor %d has mode %o", fd, status.st_mode);
  }
  contained("pipes");
}
ATTEMPT(7c) {
  char path[4096];
  if (getcwd(path, sizeof path) == NULL)
    escaped("the working directory is outside: %s", errno_name(errno));
  if (strncmp(path, "(unreachable)", 13) == 0)
    escaped("the working directory is outside: %s", path);
  if (chdir("/proc/self/cwd/../../../../../..") != 0) contained("%s", errno_name(errno));
  struct stat here, root;
  if (stat(".", &here) != 0 || stat("/", &root) != 0) escaped("no root: %s", errno_name(errno));
  if (here.st_dev != root.st_dev || here.st_ino != root.st_ino)
    escaped("left the root by its parent");
  contained("root");
}

static void connect_to(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) contained("%s", errno_name(errno));
  if (connect(fd, (struct sockaddr*)&address, sizeof address) == 0)
    escaped("connected to %s", path);
  contained("%s", errno_name(errno));
}

// 8: a host's listening socket inside a granted folder.
ATTEMPT(8a) {
  connect_to("/grant-ro/socket");
}
ATTEMPT(8b) {
  const char* paths[] = {"/run/docker.sock",
                         "/var/run/docker.sock",
                         "/run/containerd",
                         "/run/dbus",
                         "/tmp/.X11-unix",
                         "/run/user",
                         "/run/systemd",
                         "/run/caisson",
                         "/run/podman",
                         "/run/crio",
                         NULL};
  absent(paths);
}
ATTEMPT(8c) {
  connect_to("/grant-rw/socket");
}

// 16: device nodes.
ATTEMPT(16a) {
  denied(mknod("/tmp/block", S_IFBLK | 0600, makedev(1, 0)));
}
ATTEMPT(16b) {
  denied(mknod("/tmp/character", S_IFCHR | 0600, makedev(1, 5)));
}
ATTEMPT(16c) {
  // /dev/zero's node in a granted folder.
  struct stat status;
  if (stat("/grant-ro/node", &status) != 0 || !S_ISCHR(status.st_mode))
    unsupported("only root can make the node");
  open_denied("/grant-ro/node", O_RDONLY);
}
ATTEMPT(16d) {
  // mknod's type bits with rubbish above 32 bits, which a filter that compares 64 bits lets
  // through.
  denied(syscall(SYS_mknodat, AT_FDCWD, "/tmp/wide", (unsigned long)(S_IFCHR | 0600) | 1ul << 32,
                 makedev(1, 5)));
}

// 19: programs that would change who runs them.
static void run_and_report(const char* path) {
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) contained("%s", errno_name(errno));
  pid_t child = fork();
  if (child == 0) {
    dup2(pipe_fds[1], 1);
    execl(path, path, (char*)NULL);
    dprintf(1, "%s", errno_name(errno));
    _exit(0);
  }
  close(pipe_fds[1]);
  char text[128] = "";
  ssize_t length = read(pipe_fds[0], text, sizeof text - 1);
  text[length > 0 ? length : 0] = 0;
  waitpid(child, NULL, 0);
  unsigned long uid = 0, effective = 0, secure = 0;
  if (sscanf(text, "ids %lu %lu %lu", &uid, &effective, &secure) != 3) contained("%s", text);
  if (uid != effective || secure != 0) escaped("runs as %lu for %lu", effective, uid);
  contained("unchanged");
}
ATTEMPT(19a) {
  run_and_report("/grant-ro/setuid");
}
ATTEMPT(19b) {
  // On the host the file keeps the bit, and there no mount says nosuid.
  denied(syscall(SYS_fchmodat, AT_FDCWD, "/grant-rw/own", 04755));
}
ATTEMPT(19c) {
  // cap_dac_override+ep, version 2.
  const unsigned char value[20] = {1, 0, 0, 2, 2};
  int fd = open("/tmp/capable", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(fsetxattr(fd, "security.capability", value, sizeof value, 0));
}
ATTEMPT(19d) {
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) escaped("no_new_privs is off");
  contained("on");
}
static void every_mount_has(unsigned long flag, const char* word, const char* const* paths) {
  for (; *paths != NULL; paths++) {
    struct statvfs status;
    if (statvfs(*paths, &status) != 0) {
      if (errno == ENOENT) continue;
      escaped("%s: %s", *paths, errno_name(errno));
    }
    if ((status.f_flag & flag) == 0) escaped("%s is not %s", *paths, word);
  }
  contained("all");
}
ATTEMPT(19e) {
  const char* paths[] = {"/",     "/tmp",      "/run",      "/dev", "/dev/shm",
                         "/proc", "/grant-ro", "/grant-rw", "/usr", NULL};
  every_mount_has(ST_NOSUID, "nosuid", paths);
}
ATTEMPT(16e) {
  const char* paths[] = {"/",         "/tmp",      "/run", "/dev/shm", "/proc",
                         "/grant-ro", "/grant-rw", "/usr", NULL};
  every_mount_has(ST_NODEV, "nodev", paths);
}

ATTEMPT(24a) {
  open_denied("/dev/fuse", O_RDWR);
}

// 28: a read-only grant reached by every other way than a plain write.
ATTEMPT(28a) {
  open_denied("/grant-ro/file", O_WRONLY);
}
ATTEMPT(28b) {
  denied(link("/grant-ro/file", "/grant-ro/file2"));
}
ATTEMPT(28c) {
  denied(rename("/grant-ro/file", "/grant-ro/file2"));
}
ATTEMPT(28d) {
  denied(truncate("/grant-ro/file", 0));
}
ATTEMPT(28e) {
  denied(utimensat(AT_FDCWD, "/grant-ro/file", NULL, 0));
}
ATTEMPT(28f) {
  denied(setxattr("/grant-ro/file", "user.attack", "1", 1, 0));
}
ATTEMPT(28g) {
  int fd = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  int flags = 0;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0)
    unsupported("no inode flags on this file system: %s", errno_name(errno));
  flags |= FS_NOATIME_FL;
  denied(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}
ATTEMPT(28h) {
  denied(unlink("/grant-ro/removable"));
}
ATTEMPT(28i) {
  int fd = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  open_denied(path, O_WRONLY);
}
ATTEMPT(28j) {
  open_denied("/proc/self/root/grant-ro/file", O_WRONLY);
}
ATTEMPT(28k) {
  int fd = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  char* page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) contained("%s", errno_name(errno));
  if (mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0) escaped("a shared page became writable");
  int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  if (memory < 0) contained("%s", errno_name(errno));
  denied(pwrite(memory, "X", 1, (off_t)(uintptr_t)page));
}
ATTEMPT(28l) {
  denied(chmod("/grant-ro/file", 0777));
}
ATTEMPT(28m) {
  denied(mkdir("/grant-ro/new", 0755));
}
// 29: a mount below the granted folder.
ATTEMPT(29a) {
  struct stat status;
  if (stat("/grant-ro/sub/file", &status) != 0) unsupported("only root can make the mount");
  open_denied("/grant-ro/sub/file", O_WRONLY);
}

// 31: what a host program would run later.
ATTEMPT(31a) {
  open_denied("/grant-ro/.git/hooks/pre-commit", O_WRONLY | O_CREAT);
}
ATTEMPT(31b) {
  denied(rename("/grant-ro/.git", "/grant-ro/.git2"));
}
ATTEMPT(31c) {
  denied(symlink("/tmp", "/grant-ro/.vscode"));
}

// 32: leases and notifications on a shared file make the host's opens wait.
ATTEMPT(32a) {
  int fd = open("/grant-rw/file", O_RDWR | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(fcntl(fd, F_SETLEASE, F_WRLCK));
}
ATTEMPT(32b) {
  int fd = open("/grant-ro", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  signal(SIGIO, SIG_IGN);
  denied(fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT));
}

// 33: writes into the page cache of a file that is only readable.
ATTEMPT(33a) {
  char page[16] = "attack";
  int pipe_fds[2];
  if (pipe(pipe_fds) != 0) contained("%s", errno_name(errno));
  struct iovec {
    void* base;
    size_t length;
  } vector = {page, sizeof page};
  denied(syscall(SYS_vmsplice, pipe_fds[1], &vector, 1, 0));
}
ATTEMPT(33b) {
  // A pipe whose buffers carry the merge flag, then one byte of the file, then ours.
  int pipe_fds[2];
  char before[64], after[64], rubbish[4096] = {0};
  if (read_file("/grant-ro/file", before, sizeof before) < 0) contained("%s", errno_name(errno));
  if (pipe(pipe_fds) != 0) contained("%s", errno_name(errno));
  int size = fcntl(pipe_fds[1], F_GETPIPE_SZ);
  for (int done = 0; done < size; done += (int)sizeof rubbish)
    if (write(pipe_fds[1], rubbish, sizeof rubbish) < 0 ||
        read(pipe_fds[0], rubbish, sizeof rubbish) < 0)
      break;
  int fd = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  loff_t offset = 0;
  if (fd < 0 || splice(fd, &offset, pipe_fds[1], NULL, 1, 0) != 1)
    contained("%s", errno_name(errno));
  if (write(pipe_fds[1], "ATTACK", 6) != 6) contained("%s", errno_name(errno));
  if (read_file("/grant-ro/file", after, sizeof after) < 0 || strcmp(before, after) != 0)
    escaped("the file changed");
  contained("unchanged");
}
ATTEMPT(33c) {
  int in = open("/attack-token", O_RDONLY | O_CLOEXEC),
      out = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0) contained("%s", errno_name(errno));
  if (sendfile(out, in, NULL, 4) >= 0) escaped("sendfile wrote into a read-only file");
  denied(copy_file_range(in, NULL, out, NULL, 4, 0));
}
ATTEMPT(33d) {
  int in = open("/attack-token", O_RDONLY | O_CLOEXEC),
      out = open("/grant-ro/file", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0) contained("%s", errno_name(errno));
  denied(ioctl(out, FICLONE, in));
}

// 35: what one run leaves for the next. The runner calls 35a in one sandbox and 35b in another.
ATTEMPT(35a) {
  int fd = open("/dev/shm/left-behind", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) contained("%s", errno_name(errno));
  int other = open("/tmp/left-behind", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  contained("made %d", other >= 0);
}
ATTEMPT(35b) {
  const char* paths[] = {"/dev/shm/left-behind", "/tmp/left-behind", NULL};
  absent(paths);
}

// 52: devices that reach the machine.
static void no_device(const char* const* paths) {
  for (; *paths != NULL; paths++) {
    int fd = open(*paths, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) escaped("opened %s", *paths);
    fd = open(*paths, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) escaped("opened %s", *paths);
  }
  contained("absent");
}
ATTEMPT(52a) {
  const char* paths[] = {"/dev/mem",  "/dev/kmem",  "/dev/port", "/dev/cpu/0/msr",
                         "/dev/hpet", "/dev/nvram", NULL};
  no_device(paths);
}
ATTEMPT(52b) {
  const char* paths[] = {"/dev/kvm",   "/dev/vhost-net", "/dev/vhost-vsock",
                         "/dev/vsock", "/dev/vfio/vfio", NULL};
  no_device(paths);
}
ATTEMPT(52c) {
  const char* paths[] = {"/dev/vda",
                         "/dev/vda1",
                         "/dev/sda",
                         "/dev/nvme0n1",
                         "/dev/loop0",
                         "/dev/loop-control",
                         "/dev/mapper/control",
                         "/dev/btrfs-control",
                         "/dev/ram0",
                         NULL};
  no_device(paths);
}
ATTEMPT(52d) {
  const char* paths[] = {"/dev/dri/card0",
                         "/dev/nvidia0",
                         "/dev/snd/timer",
                         "/dev/input/event0",
                         "/dev/uinput",
                         "/dev/userfaultfd",
                         "/dev/autofs",
                         "/dev/net/tun",
                         "/dev/ppp",
                         "/dev/rfkill",
                         NULL};
  no_device(paths);
}
ATTEMPT(52e) {
  // Only what programs need; the golden list.
  const char* allowed[] = {".",       "..",     "null",   "zero",   "full",    "random",
                           "urandom", "tty",    "ptmx",   "pts",    "shm",     "fd",
                           "stdin",   "stdout", "stderr", "mqueue", "console", NULL};
  DIR* directory = opendir("/dev");
  if (directory == NULL) contained("%s", errno_name(errno));
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    int i = 0;
    while (allowed[i] != NULL && strcmp(allowed[i], entry->d_name) != 0) i++;
    if (allowed[i] == NULL) escaped("/dev/%s", entry->d_name);
  }
  contained("all");
}

// 119: the old root and other mounts must be out of reach.
ATTEMPT(119a) {
  char text[65536];
  if (read_file("/proc/self/mountinfo", text, sizeof text) < 0) contained("%s", errno_name(errno));
  for (char* line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char root[2048] = "", point[2048] = "";
    if (sscanf(line, "%*s %*s %*s %2047s %2047s", root, point) != 2) continue;
    // The host's root would be a mount of "/" that is no file system of our own making.
    const char* type = strstr(line, " - ");
    if (type == NULL || strcmp(root, "/") != 0) continue;
    if (strncmp(type, " - ext4 ", 8) == 0 && strncmp(point, "/grant", 6) != 0) escaped("%s", line);
  }
  contained("absent");
}
ATTEMPT(119b) {
  struct stat status;
  const char* path = host_fact("HOST_PATH");
  if (stat(path, &status) == 0) escaped("%s is visible", path);
  contained("%s", errno_name(errno));
}
// 120: the root and /usr of the image.
ATTEMPT(120a) {
  open_denied("/usr/bin/env", O_WRONLY);
}
ATTEMPT(120b) {
  denied(chmod("/usr/bin/env", 0777));
}
ATTEMPT(120c) {
  int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
  if (fd < 0) contained("%s", errno_name(errno));
  int flags = 0;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) contained("%s", errno_name(errno));
  denied(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}
