// Attempts to take more than was given. Each is bounded: where no limit holds it stops by itself
// after an amount that does no harm, and says ESCAPED.
#include <fcntl.h>
#include <linux/magic.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

// What the runner gives in the configurations: memory 64 MiB, disk 16 MiB, 1000 inodes.
enum { kMiB = 1 << 20, kMemory = 160, kDisk = 48, kInodes = 4000 };

static void touch(char* memory, size_t size) {
  for (size_t i = 0; i < size; i += 4096) memory[i] = 1;
}

// 80: memory by every door.
static void take_memory(int flags, int fd) {
  for (int i = 0; i < kMemory; i++) {
    char* memory =
        mmap(NULL, kMiB, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : (off_t)i * kMiB);
    if (memory == MAP_FAILED) contained("%s after %d MiB", errno_name(errno), i);
    touch(memory, kMiB);
  }
  escaped("holds %d MiB", kMemory);
}
ATTEMPT_WITHIN(80a, 20) {
  take_memory(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}
ATTEMPT_WITHIN(80b, 20) {
  int fd = (int)syscall(SYS_memfd_create, "attack", 1);
  if (fd < 0) contained("%s", errno_name(errno));
  static char block[kMiB];
  for (int i = 0; i < kMemory; i++)
    if (write(fd, block, sizeof block) < 0) contained("%s after %d MiB", errno_name(errno), i);
  escaped("holds %d MiB", kMemory);
}
ATTEMPT_WITHIN(80c, 20) {
  take_memory(MAP_SHARED | MAP_ANONYMOUS, -1);
}
ATTEMPT(80d) {
  char* memory = mmap(NULL, 64 * kMiB, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (memory == MAP_FAILED) contained("%s", errno_name(errno));
  touch(memory, 64 * kMiB);
  escaped("64 MiB of huge pages");
}
ATTEMPT_WITHIN(80e, 20) {
  // Many children, each below the limit.
  for (int i = 0; i < 8; i++) {
    pid_t child = fork();
    if (child == 0) {
      char* memory =
          mmap(NULL, 20 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) _exit(1);
      touch(memory, 20 * kMiB);
      sleep(2);
      _exit(0);
    }
  }
  int killed = 0, status = 0;
  while (wait(&status) > 0) killed += status != 0;
  if (killed == 0) escaped("holds 160 MiB in eight processes");
  contained("SIGKILL of %d", killed);
}

ATTEMPT_WITHIN(80f, 20) {
  take_memory(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static const char* home(void) {
  const char* path = getenv("HOME");
  return path != NULL ? path : "/tmp";
}
// The whole block or an errno: a short write is followed by another.
static bool write_all(int fd, const char* block, size_t size) {
  while (size > 0) {
    ssize_t done = write(fd, block, size);
    if (done < 0) return false;
    block += done;
    size -= (size_t)done;
  }
  return true;
}
static void fill(const char* directory) {
  char path[4096];
  static char block[kMiB];
  memset(block, 'x', sizeof block);
  snprintf(path, sizeof path, "%s/fill", directory);
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) contained("%s", errno_name(errno));
  for (int i = 0; i < kDisk; i++) {
    if (!write_all(fd, block, sizeof block)) {
      int error = errno;
      unlink(path);
      contained("%s after %d MiB", errno_name(error), i);
    }
  }
  unlink(path);
  escaped("wrote %d MiB", kDisk);
}
// 81 and 82: the writable layer.
ATTEMPT_WITHIN(81a, 20) {
  fill("/tmp");
}
ATTEMPT_WITHIN(81b, 20) {
  fill("/dev/shm");
}
ATTEMPT_WITHIN(81c, 20) {
  fill(home());
}
ATTEMPT_WITHIN(81d, 20) {
  fill("/run");
}
ATTEMPT_WITHIN(82a, 20) {
  char path[4096];
  snprintf(path, sizeof path, "%s/large", home());
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) contained("%s", errno_name(errno));
  int result = fallocate(fd, 0, 0, kDisk * (off_t)kMiB);
  int error = errno;
  unlink(path);
  errno = error;
  denied(result);
}
ATTEMPT_WITHIN(82b, 20) {
  // The two places together: one layer, or each with a limit, but never both beyond the disk's.
  char path[4096];
  static char block[kMiB];
  memset(block, 'x', sizeof block);
  const char* places[] = {home(), "/tmp", "/run", "/dev/shm", "/var/tmp"};
  int total = 0, used = 0;
  for (int p = 0; p < 5; p++) {
    snprintf(path, sizeof path, "%s/part", places[p]);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) continue;
    used++;
    unlink(path);
    for (int i = 0; i < kDisk && write_all(fd, block, sizeof block); i++) total++;
  }
  if (total >= kDisk) escaped("%d MiB in %d places", total, used);
  contained("ENOSPC after %d MiB in %d places", total, used);
}

// 34: what an accounting of bytes forgets.
ATTEMPT_WITHIN(34a, 20) {
  // Deleted but open.
  static char block[kMiB];
  for (int i = 0; i < kDisk; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/gone%d", home(), i);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    unlink(path);
    if (fd < 0 || !write_all(fd, block, sizeof block))
      contained("%s after %d MiB", errno_name(errno), i);
  }
  escaped("holds %d MiB in deleted files", kDisk);
}
ATTEMPT_WITHIN(34b, 20) {
  // Extended attributes: kept beside the pages that a size limit counts.
  static char value[32768];
  for (int i = 0; i < kDisk * 32; i++) {
    char path[4096], name[32];
    snprintf(path, sizeof path, "%s/attributes%d", home(), i / 16);
    snprintf(name, sizeof name, "user.a%d", i % 16);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || fsetxattr(fd, name, value, sizeof value, 0) != 0)
      contained("%s after %d KiB", errno_name(errno), i * 32);
    close(fd);
  }
  escaped("holds %d MiB in extended attributes", kDisk);
}
ATTEMPT_WITHIN(34c, 20) {
  // Long link targets.
  static char target[4000];
  memset(target, 'a', sizeof target - 1);
  for (int i = 0; i < kDisk * 256; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/link%d", home(), i);
    if (symlink(target, path) != 0) contained("%s after %d KiB", errno_name(errno), i * 4);
  }
  escaped("holds %d MiB in link targets", kDisk);
}
ATTEMPT_WITHIN(34d, 20) {
  // Writing through a mapping of a sparse file.
  char path[4096];
  snprintf(path, sizeof path, "%s/sparse", home());
  int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, kDisk * (off_t)kMiB) != 0) contained("%s", errno_name(errno));
  char* memory = mmap(NULL, (size_t)kDisk * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) contained("%s", errno_name(errno));
  touch(memory, (size_t)kDisk * kMiB);
  escaped("holds %d MiB by a mapping", kDisk);
}
ATTEMPT_WITHIN(34e, 20) {
  // Names: long ones in one folder.
  char path[4096], name[256];
  memset(name, 'n', sizeof name);
  for (int i = 0; i < kInodes; i++) {
    snprintf(name + 200, sizeof name - 200, "%d", i);
    snprintf(path, sizeof path, "%s/%s", home(), name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) contained("%s after %d", errno_name(errno), i);
    close(fd);
  }
  escaped("made %d names", kInodes);
}
// 83: files without end.
static void many_files(const char* place, bool links) {
  char path[4096], first[4096];
  snprintf(first, sizeof first, "%s/first", place);
  int fd = open(first, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) contained("%s", errno_name(errno));
  for (int i = 0; i < kInodes; i++) {
    snprintf(path, sizeof path, "%s/%d", place, i);
    int result = links ? link(first, path) : mkdir(path, 0700);
    if (result != 0) contained("%s after %d", errno_name(errno), i);
  }
  escaped("made %d", kInodes);
}
ATTEMPT_WITHIN(83a, 20) {
  many_files(home(), false);
}
ATTEMPT_WITHIN(83b, 20) {
  many_files("/dev/shm", false);
}
ATTEMPT_WITHIN(83c, 20) {
  many_files(home(), true);
}
ATTEMPT_WITHIN(83d, 20) {
  // A path deeper than any name that the host could give to a call; the teardown must manage it.
  if (chdir(home()) != 0) contained("%s", errno_name(errno));
  int depth = 0;
  while (depth < kInodes && mkdir("deeper", 0700) == 0 && chdir("deeper") == 0) depth++;
  if (depth == kInodes) escaped("%d levels", depth);
  contained("%s after %d", errno_name(errno), depth);
}

// 84: descriptors.
ATTEMPT(84a) {
  int count = 0;
  while (count < 5000 && dup(0) >= 0) count++;
  if (count == 5000) escaped("holds %d descriptors", count);
  contained("%s after %d", errno_name(errno), count);
}
ATTEMPT(84b) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_max++;
  denied(setrlimit(RLIMIT_NOFILE, &limit));
}
ATTEMPT(84c) {
  int count = 0;
  while (count < 5000 && socket(AF_UNIX, SOCK_STREAM, 0) >= 0) count++;
  if (count == 5000) escaped("holds %d sockets", count);
  contained("%s after %d", errno_name(errno), count);
}

// 86: memory in the kernel's buffers.
ATTEMPT_WITHIN(86a, 20) {
  static char block[kMiB];
  long total = 0;
  for (int i = 0; i < 450 && total <= 100 * kMiB; i++) {
    int fds[2];
    if (pipe2(fds, O_NONBLOCK) != 0) contained("%s after %ld KiB", errno_name(errno), total / 1024);
    fcntl(fds[1], F_SETPIPE_SZ, kMiB);
    for (ssize_t got; (got = write(fds[1], block, sizeof block)) > 0;) total += got;
  }
  if (total > 100 * kMiB) escaped("%ld KiB in pipes", total / 1024);
  contained("bounded at %ld KiB", total / 1024);
}
ATTEMPT_WITHIN(86b, 20) {
  static char block[65536];
  long total = 0;
  for (int i = 0; i < 450 && total <= 100 * kMiB; i++) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0) break;
    int size = 8 * kMiB;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    for (ssize_t got; (got = write(fds[0], block, sizeof block)) > 0;) total += got;
  }
  if (total > 100 * kMiB) escaped("%ld KiB in sockets", total / 1024);
  contained("bounded at %ld KiB", total / 1024);
}
ATTEMPT(86c) {
  // Descriptors that travel count against nobody's table, only against the sender's limit.
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) != 0)
    contained("%s", errno_name(errno));
  int size = 8 * kMiB;
  setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  int total = 0;
  for (int i = 0; i < 400; i++) {
    union {
      char bytes[CMSG_SPACE(sizeof(int) * 200)];
      struct cmsghdr align;
    } control = {0};
    int inner[2];
    if (i % 8 == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, inner) != 0) break;
    struct iovec vector = {"x", 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * 200)};
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * 200);
    for (int k = 0; k < 200; k++)
      memcpy(CMSG_DATA(header) + (size_t)k * sizeof(int), &(int){0}, sizeof(int));
    if (sendmsg(inner[0], &message, 0) < 0) contained("%s after %d", errno_name(errno), total);
    total += 200;
    if (total > 5000) break;
  }
  escaped("%d descriptors in flight", total);
}
// 87: message queues.
ATTEMPT(87b) {
  struct mq_attr attributes = {.mq_maxmsg = 10, .mq_msgsize = 8192};
  int made = 0;
  for (; made < 200; made++) {
    char name[32];
    snprintf(name, sizeof name, "/attack%d", made);
    if (mq_open(name, O_CREAT | O_RDWR, 0600, &attributes) < 0) break;
  }
  if (made == 200) escaped("made %d queues", made);
  contained("%s after %d", errno_name(errno), made);
}
// 88: the cache of names that do not exist.
ATTEMPT_WITHIN(88a, 20) {
  for (int i = 0; i < 50000; i++) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/no-such-name-%d", i);
    access(path, F_OK);
  }
  contained("survived");
}
// 89: pages of a granted folder's file.
ATTEMPT_WITHIN(89a, 20) {
  static char block[kMiB];
  int fd = open("/grant-rw/cache", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) contained("%s", errno_name(errno));
  for (int i = 0; i < 96; i++)
    if (write(fd, block, sizeof block) < 0) contained("%s after %d MiB", errno_name(errno), i);
  unlink("/grant-rw/cache");
  contained("survived");
}
// The same folder's disk: how long three megabytes take. The runner gives --io-write 1MiB/s.
ATTEMPT_WITHIN(89b, 20) {
  enum { kWrites = 6, kSize = 512 * 1024 };
  struct statfs facts;
  if (statfs("/grant-rw", &facts) != 0) contained("%s", errno_name(errno));
  if (facts.f_type == TMPFS_MAGIC || facts.f_type == OVERLAYFS_SUPER_MAGIC)
    unsupported("no disk is known behind the grant");
  int fd = open("/grant-rw/disk", O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EINVAL) unsupported("the grant takes no direct writes");
  if (fd < 0) contained("%s", errno_name(errno));
  void* block = aligned_alloc(4096, kSize);
  if (block == NULL) contained("ENOMEM");
  memset(block, 'x', kSize);
  double start = now_seconds();
  for (int i = 0; i < kWrites; i++)
    if (write(fd, block, kSize) != kSize) unsupported("%s of a direct write", errno_name(errno));
  double took = now_seconds() - start;
  unlink("/grant-rw/disk");
  if (took < 1.5) escaped("wrote 3 MiB in %.2f s", took);
  contained("throttled to %.2f s", took);
}
// 90: processor time, of which four busy processes take what they get. The runner gives --cpus 0.1.
// On a busy host a short look shows little of what one could have, so the runner says how long to
// look.
ATTEMPT_WITHIN(90a, 30) {
  const double patience = strtod(host_fact("HOST_PATIENCE"), NULL), start = now_seconds();
  double used = 0, took = 0;
  while (took < patience) {
    double end = now_seconds() + 0.5;
    for (int i = 0; i < 4; i++) {
      if (fork() == 0) {
        while (now_seconds() < end) continue;
        _exit(0);
      }
    }
    while (wait(NULL) > 0) continue;
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    used = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
    took = now_seconds() - start;
    if (used > 0.2 + 0.15 * took) escaped("used %.2f s of %.2f", used, took);
  }
  contained("throttled to %.2f s of %.2f", used, took);
}
// 93: arguments.
ATTEMPT(93a) {
  size_t size = 3 * kMiB;
  char* large = malloc(size);
  if (large == NULL) contained("ENOMEM");
  memset(large, 'a', size - 1);
  large[size - 1] = 0;
  execl("/attacks/attack_resources", "x", large, (char*)NULL);
  contained("%s", errno_name(errno));
}
// 95: connections to itself.
ATTEMPT(95a) {
  int count = 0;
  while (count < 5000 && socket(AF_INET, SOCK_STREAM, 0) >= 0) count++;
  if (count == 5000) escaped("holds %d sockets", count);
  contained("%s after %d", errno_name(errno), count);
}
// 96: timers, queued signals, watches.
ATTEMPT(96a) {
  int made = 0;
  for (; made < 20000; made++) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) break;
  }
  if (made == 20000) escaped("made %d timers", made);
  contained("%s after %d", errno_name(errno), made);
}
ATTEMPT(96b) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int sent = 0;
  while (sent < 20000 && sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}) == 0) sent++;
  if (sent == 20000) escaped("queued %d signals", sent);
  contained("%s after %d", errno_name(errno), sent);
}
ATTEMPT(96c) {
  int made = 0;
  while (made < 5000 && inotify_init1(IN_CLOEXEC) >= 0) made++;
  if (made == 5000) escaped("made %d", made);
  contained("%s after %d", errno_name(errno), made);
}
ATTEMPT(96d) {
  int inner = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < 16; i++) {
    int outer = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (outer < 0 || epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) != 0)
      contained("%s after %d", errno_name(errno), i);
    inner = outer;
  }
  escaped("nested 16 deep");
}
// 97: lines in the kernel's log. 97b counts them meanwhile.
ATTEMPT_WITHIN(97a, 20) {
  for (int i = 0; i < 500; i++) {
    pid_t child = fork();
    if (child == 0) {
      *(volatile int*)16 = 1;
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
  contained("survived");
}
// 98: work that holds the kernel's locks for long. The runner measures the host's latency
// meanwhile.
ATTEMPT_WITHIN(98a, 20) {
  double end = now_seconds() + 1.5;
  char path[4096];
  snprintf(path, sizeof path, "%s/huge", home());
  int rounds = 0;
  while (now_seconds() < end) {
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, 1ll << 40) == 0) {
      char* memory =
          mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
      if (memory != MAP_FAILED) {
        for (size_t i = 0; i < 1ul << 36; i += 1ul << 28) memory[i] = 1;
        munmap(memory, 1ul << 36);
      }
    }
    close(fd);
    unlink(path);
    rounds++;
  }
  contained("survived %d", rounds);
}
// 129: limits that the command must not be able to raise.
ATTEMPT(129a) {
  const int kinds[] = {RLIMIT_CORE,       RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE,
                       RLIMIT_SIGPENDING, RLIMIT_RTPRIO, RLIMIT_NICE};
  const char* names[] = {"core", "nofile", "memlock", "msgqueue", "sigpending", "rtprio", "nice"};
  for (int i = 0; i < 7; i++) {
    struct rlimit limit;
    getrlimit(kinds[i], &limit);
    if (limit.rlim_max == RLIM_INFINITY) escaped("%s is unlimited", names[i]);
    limit.rlim_max++;
    if (setrlimit(kinds[i], &limit) == 0) escaped("raised %s", names[i]);
  }
  contained("all");
}
