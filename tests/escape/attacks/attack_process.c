// Attempts on the guest and on the host's processes, and on what a process may leave, spoof or
// hold.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

// 61: signals to PID 1. The kernel drops most of those that an init does not handle, so being
// allowed to send one is what counts.
ATTEMPT(61a) {
  denied(kill(1, SIGTERM));
}
ATTEMPT(61b) {
  siginfo_t forged = {.si_signo = SIGRTMIN, .si_code = SI_QUEUE};
  denied(syscall(SYS_rt_sigqueueinfo, 1, SIGRTMIN, &forged));
}
ATTEMPT(61c) {
  int fd = (int)syscall(SYS_pidfd_open, 1, 0);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
}
ATTEMPT(61d) {
  denied(syscall(SYS_tgkill, 1, 1, SIGSTOP));
}
ATTEMPT(61e) {
  denied(setpriority(PRIO_PROCESS, 1, 19));
}
ATTEMPT(61f) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  denied(sched_setaffinity(1, sizeof set, &set));
}
ATTEMPT(61g) {
  struct rlimit limit = {0, 0};
  denied(syscall(SYS_prlimit64, 1, RLIMIT_CORE, &limit, NULL));
}

// 126: what /proc shows of processes that are not the command's.
ATTEMPT(126a) {
  struct stat status;
  if (stat("/proc/1", &status) == 0) escaped("PID 1 is visible");
  contained("%s", errno_name(errno));
}
ATTEMPT(126b) {
  DIR* directory = opendir("/proc");
  if (directory == NULL) contained("%s", errno_name(errno));
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;) {
    if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name)) continue;
    char path[300];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%s", entry->d_name);
    if (stat(path, &status) == 0 && status.st_uid != getuid())
      escaped("sees process %s", entry->d_name);
  }
  contained("own");
}

// 109: the guest's memory.
ATTEMPT(109a) {
  open_denied("/proc/1/mem", O_RDWR);
}
ATTEMPT(109b) {
  open_denied("/proc/1/maps", O_RDONLY);
}
ATTEMPT(109c) {
  open_denied("/proc/1/environ", O_RDONLY);
}
ATTEMPT(109d) {
  char link[256];
  denied(readlink("/proc/1/exe", link, sizeof link));
}
ATTEMPT(109e) {
  // A granted folder is no way around: nothing of the guest's channel is a name in the file system.
  char text[65536];
  if (read_file("/proc/self/net/unix", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strstr(text, host_fact("HOST_RUN")) != NULL) escaped("a socket of ours has a name here");
  contained("absent");
}

// 66 and 85: processes and threads without end; bounded here, so that nothing happens where no
// limit holds. The runner gives --pids 64.
enum { kBomb = 400 };
static void fork_bomb(void) {
  int made = 0, error = 0;
  for (; made < kBomb; made++) {
    pid_t child = fork();
    if (child < 0) {
      error = errno;
      break;
    }
    if (child == 0) {
      for (;;) pause();
    }
  }
  if (made == kBomb) escaped("made %d processes", made);
  contained("%s after %d", errno_name(error), made);
}
ATTEMPT(66a) {
  fork_bomb();
}
ATTEMPT(66b) {
  fork_bomb();
}
static void* wait_forever(void* nothing) {
  for (;;) pause();
  return nothing;
}
ATTEMPT(85a) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  int made = 0, error = 0;
  for (; made < kBomb; made++) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, wait_forever, NULL);
    if (error != 0) break;
  }
  if (made == kBomb) escaped("made %d threads", made);
  contained("%s after %d", errno_name(error), made);
}
ATTEMPT(66c) {
  // vfork-like children counted too.
  int made = 0, error = 0;
  for (; made < kBomb; made++) {
    long child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
    if (child < 0) {
      error = errno;
      break;
    }
    if (child == 0) {
      for (;;) pause();
    }
  }
  if (made == kBomb) escaped("made %d processes", made);
  contained("%s after %d", errno_name(error), made);
}

// 69: orphans that die; whoever is their new parent must reap them or the process limit fills.
ATTEMPT_WITHIN(69a, 60) {  // under emulation too
  for (int i = 0; i < 2000; i++) {
    pid_t child = fork();
    if (child < 0) escaped("no process left after %d orphans: %s", i, errno_name(errno));
    if (child == 0) {
      pid_t orphan = fork();
      _exit(orphan < 0 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    // The reaper has its own pace; a full table for a moment is no leak.
    if (status != 0) usleep(2000);
  }
  usleep(200000);
  pid_t last = fork();
  if (last == 0) _exit(0);
  if (last < 0) escaped("the process table stays full");
  contained("reaped");
}

// 75: the guest's channel looks for a status there. Nothing is sent: being able to is enough.
ATTEMPT(75a) {
  for (int fd = 3; fd < 1024; fd++) {
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0 && write(fd, "", 0) >= 0)
      escaped("wrote to descriptor %d", fd);
  }
  contained("EBADF");
}

// 76: core files.
ATTEMPT(76a) {
  struct rlimit limit, more = {1 << 20, 1 << 20};
  getrlimit(RLIMIT_CORE, &limit);
  if (limit.rlim_max != 0) escaped("core files of %lu bytes", limit.rlim_max);
  denied(setrlimit(RLIMIT_CORE, &more));
}
ATTEMPT(76b) {
  if (chdir("/tmp") != 0) contained("%s", errno_name(errno));
  pid_t child = fork();
  if (child == 0) {
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &more);
    abort();
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WCOREDUMP(status)) escaped("a core was written");
  contained("none");
}

// 70 to 73, 78: see host_files.py and host_life.py.

// 127: the session. The caller's terminal must not be ours.
ATTEMPT(127a) {
  char text[1024];
  if (read_file("/proc/self/stat", text, sizeof text) < 0) contained("%s", errno_name(errno));
  char* rest = strrchr(text, ')');
  int ppid = 0, group = 0, session = 0, terminal = 0;
  if (rest == NULL || sscanf(rest + 2, "%*c %d %d %d %d", &ppid, &group, &session, &terminal) != 4)
    contained("no stat");
  if (session == 0) escaped("the session is outside");
  if (terminal != 0) escaped("has terminal %d", terminal);
  contained("own");
}
// 128: prctl tricks that reach other processes or the kernel.
ATTEMPT(128a) {
  denied(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, 0, 0, 0));
}
ATTEMPT(128b) {
  // A process may become undumpable and hide from the host's tools, but not from its kill: the
  // runner's deadline test covers that. Here: it must not become the reaper of more than its own.
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  denied(open("/proc/1/fd/0", O_RDONLY));
}
