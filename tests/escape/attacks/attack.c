#include "attack.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMaxAttempts = 256, kLine = 512 };

static struct {
  const char* id;
  void (*body)(void);
  int seconds;
} attempts[kMaxAttempts];
static int attempt_count = 0;
static int report_fd = -1;

void attack_register(const char* id, void (*body)(void), int seconds) {
  if (attempt_count == kMaxAttempts) abort();
  attempts[attempt_count].id = id;
  attempts[attempt_count].body = body;
  attempts[attempt_count++].seconds = seconds;
}

__attribute__((noreturn)) static void report(char verdict, const char* format, va_list arguments) {
  char line[kLine];
  line[0] = verdict;
  int length = vsnprintf(line + 1, sizeof line - 1, format, arguments);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  for (int i = 1; i <= length; i++)
    if (line[i] == '\n') line[i] = ' ';
  ssize_t written = write(report_fd, line, (size_t)length + 1);
  _exit(written < 0 ? 3 : 0);
}

void contained(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report('c', format, arguments);
}

void escaped(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report('E', format, arguments);
}

void unsupported(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report('u', format, arguments);
}

void denied(long result) {
  int error = errno;
  if (result >= 0) escaped("the call succeeded with %ld", result);
  contained("%s", errno_name(error));
}

void unreached(long result) {
  int error = errno;
  if (result >= 0) escaped("the call succeeded with %ld", result);
  if (error == EPERM || error == ENOSYS || error == EACCES) contained("%s", errno_name(error));
  escaped("reached the kernel's code: %s", errno_name(error));
}

void open_denied(const char* path, int flags) {
  int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  int error = errno;
  if (fd >= 0) escaped("opened %s", path);
  contained("%s %s", errno_name(error), path);
}

const char* errno_name(int error_number) {
  const char* name = strerrorname_np(error_number);
  return name != NULL ? name : "errno?";
}

const char* signal_name(int number) {
  static char name[32];
  const char* short_name = sigabbrev_np(number);
  snprintf(name, sizeof name, "SIG%s", short_name != NULL ? short_name : "?");
  return name;
}

ssize_t read_file(const char* path, char* buffer, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  size_t length = 0;
  while (length < size - 1) {
    ssize_t got = read(fd, buffer + length, size - 1 - length);
    if (got < 0) {
      int error = errno;
      close(fd);
      errno = error;
      return -1;
    }
    if (got == 0) break;
    length += (size_t)got;
  }
  close(fd);
  buffer[length] = 0;
  return (ssize_t)length;
}

const char* host_fact(const char* name) {
  const char* value = getenv(name);
  if (value == NULL) {
    dprintf(2, "the test runner gave no %s\n", name);
    _exit(4);
  }
  return value;
}

double now_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

__attribute__((noreturn)) static void refuse(const char* why) {
  dprintf(2, "this program attacks the sandbox around it and starts nowhere else: %s\n", why);
  _exit(99);
}

// The number in a link such as "pid:[4026531836]"; 0 where it cannot be read.
static unsigned long namespace_number(const char* name) {
  char path[64], link[64];
  snprintf(path, sizeof path, "/proc/self/ns/%s", name);
  ssize_t length = readlink(path, link, sizeof link - 1);
  if (length <= 0) return 0;
  link[length] = 0;
  const char* bracket = strchr(link, '[');
  return bracket == NULL ? 0 : strtoul(bracket + 1, NULL, 10);
}

void require_sandbox(void) {
  // The kernel gives the first namespaces of a machine fixed numbers.
  const unsigned long kFirstUser = 0xEFFFFFFDul, kFirstPid = 0xEFFFFFFCul;
  unsigned long user = namespace_number("user");
  if (user == 0 || user == kFirstUser) refuse("its user namespace is the host's");
  char text[256];
  if (read_file("/proc/1/comm", text, sizeof text) > 0) {
    if (strcmp(text, "caisson-guest\n") != 0) refuse("PID 1 is not the guest");
  } else if (namespace_number("pid") == 0 || namespace_number("pid") == kFirstPid) {
    refuse("its processes are the host's");
  }
  const char* token = getenv("CAISSON_ATTACK_TOKEN");
  if (token == NULL || strlen(token) < 16) refuse("no token in the environment");
  if (read_file("/attack-token", text, sizeof text) < 0) refuse("no token inside");
  text[strcspn(text, "\n")] = 0;
  if (strcmp(text, token) != 0) refuse("the two tokens differ");
}

static bool run_attempt(int index) {
  const char* id = attempts[index].id;
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    printf("broken %s no pipe: %s\n", id, errno_name(errno));
    return false;
  }
  pid_t child = fork();
  if (child < 0) {
    printf("broken %s no child: %s\n", id, errno_name(errno));
    return false;
  }
  if (child == 0) {
    setpgid(0, 0);
    close(pipe_fds[0]);
    report_fd = pipe_fds[1];
    attempts[index].body();
    _exit(5);
  }
  setpgid(child, child);
  close(pipe_fds[1]);
  double end = now_seconds() + attempts[index].seconds;
  char line[kLine] = "";
  ssize_t length = 0;
  bool late = false;
  // Whoever still holds the pipe after the attempt ended is a process that it left; it is not
  // waited for.
  struct pollfd wait = {.fd = pipe_fds[0], .events = POLLIN};
  int left = attempts[index].seconds * 1000;
  while (poll(&wait, 1, left) < 0 && errno == EINTR) left = (int)((end - now_seconds()) * 1000);
  if (wait.revents != 0)
    length = read(pipe_fds[0], line, sizeof line - 1);
  else
    late = true;
  close(pipe_fds[0]);
  if (late) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  kill(-child, SIGKILL);
  if (late) {
    printf("contained %s timeout after %d s\n", id, attempts[index].seconds);
  } else if (length > 0) {
    line[length] = 0;
    const char* word = line[0] == 'E' ? "ESCAPED" : line[0] == 'u' ? "unsupported" : "contained";
    printf("%s %s %s\n", word, id, line + 1);
  } else if (WIFSIGNALED(status)) {
    printf("contained %s %s\n", id, signal_name(WTERMSIG(status)));
  } else {
    printf("broken %s ended with status %d without a word\n", id, WEXITSTATUS(status));
    return false;
  }
  return line[0] != 'E';
}

// Weak, since doors.c has another.
__attribute__((weak)) int main(int argc, char** argv) {
  require_sandbox();
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc < 2) {
    dprintf(2, "usage: %s ID...\n", argv[0]);
    return 2;
  }
  int result = 0;
  for (int i = 1; i < argc; i++) {
    int index = 0;
    while (index < attempt_count && strcmp(attempts[index].id, argv[i]) != 0) index++;
    if (index == attempt_count) {
      printf("broken %s this program has no such attempt\n", argv[i]);
      result = 2;
      continue;
    }
    if (!run_attempt(index) && result == 0) result = 1;
  }
  return result;
}
