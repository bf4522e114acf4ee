// Times commands from outside, without an interpreter in the figure.
//
//   spawn_timer times COUNT COMMAND…       one line a run: microseconds, exit status, largest
//                                          resident set of the command and what it waited for, in
//                                          KiB
//   spawn_timer rate WORKERS SECONDS COMMAND…   one line: runs, failed runs, microseconds
//   spawn_timer in TREE UID times …        as root: the same by chroot in TREE, as that user
//
// A run is vfork, execve, wait. Every %n in the command becomes a number that is never used twice,
// for programs that want a name for each run. The command's stdin, stdout and stderr are /dev/null.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

enum { kMaxWorkers = 64 };

static int64_t now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void die(const char* what) {
  fprintf(stderr, "spawn_timer: %s: %s\n", what, strerror(errno));
  exit(2);
}

// The command with its %n replaced; made before the clock starts.
static char** with_number(char** command, unsigned number) {
  static unsigned process;
  if (process == 0) process = (unsigned)getpid();
  int count = 0;
  while (command[count] != NULL) ++count;
  char** copy = calloc((size_t)count + 1, sizeof *copy);
  if (copy == NULL) die("calloc");
  for (int i = 0; i < count; ++i) {
    char* mark = strstr(command[i], "%n");
    if (mark == NULL) {
      copy[i] = strdup(command[i]);
    } else if (asprintf(&copy[i], "%.*s%u-%u%s", (int)(mark - command[i]), command[i], process,
                        number, mark + 2) < 0) {
      copy[i] = NULL;
    }
    if (copy[i] == NULL) die("copy the command");
  }
  return copy;
}

static void release(char** command) {
  for (char** argument = command; *argument != NULL; ++argument) free(*argument);
  free(command);
}

// The wait status; fills in how long it took and the largest resident set.
static int run_once(char** command, int null_fd, int64_t* took, long* resident) {
  const int64_t start = now_us();
  const pid_t child = vfork();
  if (child < 0) die("vfork");
  if (child == 0) {
    dup2(null_fd, 0);
    dup2(null_fd, 1);
    dup2(null_fd, 2);
    execve(command[0], command, environ);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  while (wait4(child, &status, 0, &usage) < 0)
    if (errno != EINTR) die("wait4");
  *took = now_us() - start;
  *resident = usage.ru_maxrss;
  return status;
}

static int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int times(unsigned count, char** command, int null_fd) {
  for (unsigned i = 0; i < count; ++i) {
    char** copy = with_number(command, i);
    int64_t took = 0;
    long resident = 0;
    const int status = run_once(copy, null_fd, &took, &resident);
    release(copy);
    printf("%lld %d %ld\n", (long long)took, exit_code(status), resident);
  }
  return 0;
}

static int rate(int workers, double seconds, char** command, int null_fd) {
  int pipes[2];
  if (pipe(pipes) != 0) die("pipe");
  const int64_t start = now_us();
  const int64_t end = start + (int64_t)(seconds * 1e6);
  for (int i = 0; i < workers; ++i) {
    const pid_t child = fork();
    if (child < 0) die("fork");
    if (child > 0) continue;
    unsigned done[2] = {0, 0};
    while (now_us() < end) {
      char** copy = with_number(command, done[0]);
      int64_t took = 0;
      long resident = 0;
      if (exit_code(run_once(copy, null_fd, &took, &resident)) != 0) ++done[1];
      ++done[0];
      release(copy);
    }
    _exit(write(pipes[1], done, sizeof done) == (ssize_t)sizeof done ? 0 : 1);
  }
  for (int i = 0; i < workers; ++i) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) die("a worker");
  }
  const int64_t took = now_us() - start;
  unsigned runs = 0, failed = 0;
  for (int i = 0; i < workers; ++i) {
    unsigned done[2];
    if (read(pipes[0], done, sizeof done) != (ssize_t)sizeof done) die("read a worker's count");
    runs += done[0];
    failed += done[1];
  }
  printf("%u %u %lld\n", runs, failed, (long long)took);
  return 0;
}

static void enter(const char* tree, unsigned id) {
  if (chroot(tree) != 0 || chdir("/") != 0) die(tree);
  if (setgroups(0, NULL) != 0 || setgid(id) != 0 || setuid(id) != 0) die("become the user");
}

int main(int argc, char** argv) {
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) die("open /dev/null");
  if (argc >= 4 && strcmp(argv[1], "in") == 0) {
    enter(argv[2], (unsigned)atoi(argv[3]));
    argc -= 3;
    argv += 3;
  }
  if (argc >= 4 && strcmp(argv[1], "times") == 0 && atoi(argv[2]) > 0)
    return times((unsigned)atoi(argv[2]), argv + 3, null_fd);
  if (argc >= 5 && strcmp(argv[1], "rate") == 0 && atoi(argv[2]) > 0 &&
      atoi(argv[2]) <= kMaxWorkers && atof(argv[3]) > 0)
    return rate(atoi(argv[2]), atof(argv[3]), argv + 4, null_fd);
  fprintf(
      stderr,
      "usage: spawn_timer [in TREE UID] times COUNT COMMAND… | rate WORKERS SECONDS COMMAND…\n");
  return 2;
}
