// Attempts to learn what the sandbox was not given: the caller's environment and files, the
// kernel's tables, and what tells one host or sandbox from another.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

extern char** environ;

// Whether the word occurs in the file, which may be large.
static bool file_contains(const char* path, const char* word) {
  static char buffer[1 << 16];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return false;
  size_t kept = 0, length = strlen(word);
  bool hit = false;
  for (ssize_t got; !hit && (got = read(fd, buffer + kept, sizeof buffer - kept)) > 0;) {
    size_t have = kept + (size_t)got;
    hit = memmem(buffer, have, word, length) != NULL;
    kept = have < length ? have : length - 1;
    memmove(buffer, buffer + have - kept, kept);
  }
  close(fd);
  return hit;
}

static bool search(const char* path, const char* word, int depth, char* found, size_t size) {
  if (depth == 0) return false;
  DIR* directory = opendir(path);
  if (directory == NULL) return false;
  bool hit = false;
  for (struct dirent* entry; !hit && (entry = readdir(directory)) != NULL;) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char child[4096];
    struct stat status;
    snprintf(child, sizeof child, "%s/%s", strcmp(path, "/") == 0 ? "" : path, entry->d_name);
    if (lstat(child, &status) != 0) continue;
    // What the runner itself gave is left out, and so are the programs of the image.
    if (strncmp(child, "/attack", 7) == 0 || strcmp(child, "/usr") == 0 ||
        strcmp(child, "/dev") == 0)
      continue;
    if (S_ISDIR(status.st_mode))
      hit = search(child, word, depth - 1, found, size);
    else if (S_ISREG(status.st_mode) && file_contains(child, word)) {
      snprintf(found, size, "%s", child);
      hit = true;
    }
  }
  closedir(directory);
  return hit;
}

// 108: the caller's environment. The runner exports CALLER_SECRET, whose value begins with
// HOST_MARK.
ATTEMPT(108a) {
  for (char** entry = environ; *entry != NULL; entry++)
    if (strncmp(*entry, "CALLER_SECRET=", 14) == 0) escaped("inherits CALLER_SECRET");
  contained("absent");
}
ATTEMPT_WITHIN(108b, 20) {
  char found[256];
  if (search("/proc", "CALLER_SECRET=", 3, found, sizeof found)) escaped("%s", found);
  contained("absent");
}
ATTEMPT(108c) {
  // Only what was set and what every process has.
  const char* known[] = {"HOST_",
                         "CAISSON_ATTACK_TOKEN=",
                         "FUZZ_SEED=",
                         "HOME=",
                         "PATH=",
                         "USER=",
                         "LOGNAME=",
                         "SHELL=",
                         "LANG=",
                         "TERM=",
                         "PWD=",
                         "OLDPWD=",
                         "SHLVL=",
                         "_=",
                         "HOSTNAME=",
                         "TMPDIR=",
                         "LC_ALL=",
                         "CAISSON=",
                         "CAISSON_SANDBOX=",
                         NULL};
  for (char** entry = environ; *entry != NULL; entry++) {
    int i = 0;
    while (known[i] != NULL && strncmp(*entry, known[i], strlen(known[i])) != 0) i++;
    if (known[i] == NULL) escaped("%.40s", *entry);
  }
  contained("known");
}
// 110: the files that hold a user's secrets; the runner put one of each into the caller's home.
ATTEMPT(110a) {
  const char* names[] = {
      ".netrc", ".aws/credentials", ".ssh/id_rsa", ".config/gcloud", ".docker/config.json",
      ".gnupg", ".git-credentials", ".npmrc",      ".kube/config",   NULL};
  const char* homes[] = {host_fact("HOST_HOME"), "/root", NULL};
  for (int h = 0; homes[h] != NULL; h++) {
    for (int i = 0; names[i] != NULL; i++) {
      char path[4096];
      struct stat status;
      snprintf(path, sizeof path, "%s/%s", homes[h], names[i]);
      if (stat(path, &status) == 0) escaped("%s", path);
    }
  }
  contained("absent");
}
ATTEMPT_WITHIN(110b, 30) {
  char found[256];
  if (search("/", host_fact("HOST_MARK"), 10, found, sizeof found)) {
    // The environment of the attack holds the mark too.
    if (strstr(found, "/environ") == NULL) escaped("%s", found);
  }
  contained("absent");
}
ATTEMPT(110c) {
  const char* names[] = {"SSH_AUTH_SOCK",  "DBUS_SESSION_BUS_ADDRESS",
                         "GPG_AGENT_INFO", "AWS_SECRET_ACCESS_KEY",
                         "XAUTHORITY",     "DISPLAY",
                         "GIT_ASKPASS",    NULL};
  for (int i = 0; names[i] != NULL; i++)
    if (getenv(names[i]) != NULL) escaped("%s is set", names[i]);
  contained("absent");
}
ATTEMPT(110d) {
  char text[65536];
  if (read_file("/etc/passwd", text, sizeof text) < 0) contained("%s", errno_name(errno));
  const char* user = host_fact("HOST_USER");
  char line[128];
  snprintf(line, sizeof line, "\n%s:", user);
  if (strstr(text, line) != NULL) escaped("knows the host's user %s", user);
  contained("absent");
}
ATTEMPT(110e) {
  // A generated file without passwords may be there.
  char text[65536];
  if (read_file("/etc/shadow", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strchr(text, '$') != NULL || strstr(text, host_fact("HOST_USER")) != NULL)
    escaped("holds passwords or users of the host");
  contained("generated");
}
ATTEMPT(110f) {
  DIR* directory = opendir("/home");
  if (directory == NULL) contained("%s", errno_name(errno));
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;)
    if (entry->d_name[0] != '.' && strcmp(entry->d_name, "user") != 0)
      escaped("/home/%s", entry->d_name);
  contained("absent");
}
ATTEMPT(110g) {
  open_denied("/etc/ssh", O_RDONLY | O_DIRECTORY);
}
ATTEMPT(110h) {
  open_denied("/var/lib/caisson", O_RDONLY | O_DIRECTORY);
}

// 113: the kernel's tables. A mask may be an absence, a refusal or an empty file.
static void masked(const char* path) {
  char text[256];
  ssize_t length = read_file(path, text, sizeof text);
  if (length < 0) contained("%s", errno_name(errno));
  if (length == 0) contained("empty");
  escaped("%s gives %.30s", path, text);
}
static void masked_directory(const char* path) {
  DIR* directory = opendir(path);
  if (directory == NULL) contained("%s", errno_name(errno));
  for (struct dirent* entry; (entry = readdir(directory)) != NULL;)
    if (entry->d_name[0] != '.') escaped("%s/%s", path, entry->d_name);
  contained("empty");
}
ATTEMPT(113a) {
  masked("/proc/kallsyms");
}
ATTEMPT(113b) {
  masked("/proc/keys");
}
ATTEMPT(113c) {
  masked("/proc/modules");
}
ATTEMPT(113d) {
  masked("/proc/cmdline");
}
ATTEMPT(113e) {
  masked("/proc/timer_list");
}
ATTEMPT(113f) {
  open_denied("/proc/kcore", O_RDONLY);
}
ATTEMPT(113g) {
  masked("/proc/diskstats");
}
ATTEMPT(113h) {
  masked("/proc/iomem");
}
ATTEMPT(113i) {
  masked("/proc/key-users");
}
ATTEMPT(113j) {
  masked("/proc/interrupts");
}
ATTEMPT(113k) {
  masked("/proc/config.gz");
}
ATTEMPT(113l) {
  masked("/proc/partitions");
}
ATTEMPT(113m) {
  masked("/proc/locks");
}
ATTEMPT(113n) {
  masked("/proc/zoneinfo");
}
ATTEMPT(113o) {
  masked("/proc/swaps");
}
ATTEMPT(113p) {
  masked_directory("/proc/pressure");
}
ATTEMPT(113q) {
  masked("/proc/slabinfo");
}
ATTEMPT(113r) {
  masked_directory("/proc/driver");
}
ATTEMPT(113s) {
  // The kernel names the folder of each grant inside its file system; nothing else of the host's.
  char text[65536];
  if (read_file("/proc/self/mountinfo", text, sizeof text) < 0) contained("%s", errno_name(errno));
  for (char* line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char point[2048] = "";
    sscanf(line, "%*s %*s %*s %*s %2047s", point);
    bool granted = strncmp(point, "/grant-", 7) == 0 || strncmp(point, "/attack", 7) == 0;
    if (!granted && strstr(line, host_fact("HOST_HOME")) != NULL) escaped("%s", line);
  }
  contained("grants");
}
ATTEMPT(113t) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/stat", host_fact("HOST_PID"));
  open_denied(path, O_RDONLY);
}
// 114: the machine.
ATTEMPT(114a) {
  open_denied("/dev/kmsg", O_RDONLY);
}
ATTEMPT(114b) {
  denied(syscall(SYS_syslog, 3, (char[16]){0}, 16));
}
ATTEMPT(114c) {
  open_denied("/sys/kernel/notes", O_RDONLY);
}
ATTEMPT(114d) {
  open_denied("/sys/class/dmi/id/product_uuid", O_RDONLY);
}
ATTEMPT(114e) {
  open_denied("/proc/kmsg", O_RDONLY);
}
// 115: names and numbers that tell a host.
ATTEMPT(115a) {
  struct utsname name;
  uname(&name);
  if (strcmp(name.nodename, host_fact("HOST_HOSTNAME")) == 0)
    escaped("%s is the host's name", name.nodename);
  contained("own %s", name.nodename);
}
static void not_equal(const char* path, const char* fact) {
  char text[256];
  if (read_file(path, text, sizeof text) < 0) contained("%s", errno_name(errno));
  text[strcspn(text, "\n")] = 0;
  if (strcmp(text, host_fact(fact)) == 0) escaped("%s is the host's", path);
  contained("own");
}
ATTEMPT(115b) {
  not_equal("/proc/sys/kernel/random/boot_id", "HOST_BOOT_ID");
}
ATTEMPT(115c) {
  not_equal("/etc/machine-id", "HOST_MACHINE_ID");
}
ATTEMPT(115d) {
  struct timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  double host = strtod(host_fact("HOST_UPTIME"), NULL);
  if ((double)time.tv_sec >= host - 1) escaped("up for %ld s as the host is", (long)time.tv_sec);
  contained("own");
}
ATTEMPT(115e) {
  not_equal("/etc/hostname", "HOST_HOSTNAME");
}
ATTEMPT(115f) {
  char text[4096];
  if (read_file("/etc/hosts", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strstr(text, host_fact("HOST_HOSTNAME")) != NULL) escaped("/etc/hosts names the host");
  contained("own");
}
// 118: numbers that the whole host shares.
ATTEMPT(118a) {
  // Reading them is declared in SECURITY.md; setting them would be another thing.
  const char* paths[] = {"/proc/sys/fs/file-max", "/proc/sys/fs/nr_open",
                         "/proc/sys/kernel/pid_max", NULL};
  for (int i = 0; paths[i] != NULL; i++)
    if (open(paths[i], O_WRONLY | O_CLOEXEC) >= 0) escaped("opened %s for writing", paths[i]);
  contained("%s", errno_name(errno));
}
ATTEMPT(118b) {
  char text[64];
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (read_file("/proc/sys/kernel/ns_last_pid", text, sizeof text) < 0)
    contained("%s", errno_name(errno));
  // The number of a process of this pid namespace, not of the host.
  long last = strtol(text, NULL, 10);
  if (last < child || last > child + 64) escaped("the last pid is %ld, ours was %d", last, child);
  contained("own");
}
// 111, 112: see host_files.py and host_life.py.
ATTEMPT(130a) {
  // The program's own identity must not be the host's file: no path of the host in exe or maps.
  char text[65536];
  if (read_file("/proc/self/maps", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strstr(text, host_fact("HOST_FOLDER")) != NULL)
    escaped("the memory map names a folder of the host");
  contained("absent");
}
// 131: what the supervisor listens on.
ATTEMPT(131a) {
  open_denied(host_fact("HOST_RUN"), O_RDONLY | O_DIRECTORY);
}
