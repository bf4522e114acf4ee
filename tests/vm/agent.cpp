// The first process of the test machine: Debian's kernel under QEMU starts it from the initramfs.
//
// It loads the modules that the disks need, makes an ordinary Debian-like root (ext4 root, /usr
// from a read-only disk, the programs under test in /opt/caisson, pure cgroup v2 laid out as
// systemd does it), and then runs scripts that the host sends over a virtio-serial port, one at a
// time, each as the user and in the control group that were asked for. Output goes back in frames,
// so nothing that a script prints can be taken for an answer. One thread; it trusts the host and is
// trusted.
//
// Frames, both ways: u32 length of the payload (little endian), u8 type, payload.
//   host:  'R' user NUL cgroup NUL timeout in ms NUL script        'Q' power off
//   guest: 'H' kernel release (ready)   'O' stdout   'E' stderr
//          'X' u32 wait status, u32 timed out, u32 processes left behind   'F' why the run failed
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCgroup = "/sys/fs/cgroup";
constexpr const char* kPort = "caisson.vm";
constexpr std::uint32_t kMaxFrame = 16u << 20;

struct Account {
  std::string_view name;
  uid_t uid;
  std::string_view home;
  bool subuid;
};

// `user` has a range of subordinate ids, `plain` has none.
constexpr Account kAccounts[] = {
    {"root", 0, "/root", false},
    {"user", 1000, "/home/user", true},
    {"plain", 1001, "/home/plain", false},
};

[[noreturn]] void power_off() {
  sync();
  reboot(RB_AUTOBOOT);  // QEMU runs with -no-reboot: this ends it on every machine type.
  for (;;) pause();
}

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "vm-agent: %s: %s\n", what.c_str(), std::strerror(errno));
  std::fflush(stderr);
  power_off();
}

std::string read_file(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(n));
  close(fd);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool try_write(const std::string& path, std::string_view text, int flags = O_WRONLY | O_CLOEXEC) {
  const int fd = open(path.c_str(), flags, 0644);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

void write_file(const std::string& path, std::string_view text, mode_t mode = 0644) {
  if (!try_write(path, text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC)) die("write " + path);
  if (chmod(path.c_str(), mode) != 0) die("chmod " + path);
}

void make_directory(const std::string& path, mode_t mode = 0755, uid_t owner = 0) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) die("mkdir " + path);
  if (chmod(path.c_str(), mode) != 0) die("chmod " + path);
  if (owner != 0 && chown(path.c_str(), owner, owner) != 0) die("chown " + path);
}

void do_mount(const char* source, const std::string& target, const char* type, unsigned long flags,
              const char* data = nullptr) {
  if (mount(source, target.c_str(), type, flags, data) != 0) die("mount " + target);
}

void load_modules() {
  const std::string list = read_file("/modules/order");
  std::size_t start = 0;
  while (start < list.size()) {
    std::size_t end = list.find('\n', start);
    if (end == std::string::npos) end = list.size();
    const std::string path = "/modules/" + list.substr(start, end - start);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("open " + path);
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) die("load " + path);
    close(fd);
    start = end + 1;
  }
}

// The device node of the disk or port with this name; they appear soon after the modules are in.
std::string wait_for_device(const std::string& folder, const std::string& attribute,
                            const std::string& name) {
  for (int attempt = 0; attempt < 2000; ++attempt) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (read_file(entry.path().string() + "/" + attribute) != name) continue;
      std::string node = "/dev/" + entry.path().filename().string();
      if (access(node.c_str(), F_OK) == 0) return node;
    }
    usleep(1000);
  }
  errno = ENODEV;
  die("no device named " + name + " in " + folder);
}

void bring_loopback_up() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  request.ifr_flags = IFF_UP;
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) die("loopback");
  close(fd);
}

void mount_root() {
  const std::string root = wait_for_device("/sys/block", "serial", "root");
  const std::string usr = wait_for_device("/sys/block", "serial", "usr");
  const std::string payload = wait_for_device("/sys/block", "serial", "payload");
  make_directory("/newroot");
  do_mount(root.c_str(), "/newroot", "ext4", 0);
  if (chdir("/newroot") != 0) die("chdir /newroot");
  for (const char* name :
       {"dev", "proc", "sys", "run", "usr", "etc", "var", "home", "opt", "mnt", "srv"})
    make_directory(name);
  make_directory("root", 0700);
  make_directory("tmp", 01777);
  for (const char* name : {"var/lib", "var/tmp", "var/log", "opt/caisson"}) make_directory(name);
  if (chmod("var/tmp", 01777) != 0) die("chmod var/tmp");
  for (const char* name : {"bin", "sbin", "lib", "lib64"}) {
    if (symlink((std::string("usr/") + name).c_str(), name) != 0 && errno != EEXIST) die(name);
  }
  do_mount(usr.c_str(), "usr", "erofs", MS_RDONLY);
  do_mount(payload.c_str(), "opt/caisson", "erofs", MS_RDONLY);
  for (const char* name : {"dev", "proc", "sys"})
    do_mount((std::string("/") + name).c_str(), name, nullptr, MS_MOVE);
  do_mount(".", "/", nullptr, MS_MOVE);
  if (chroot(".") != 0 || chdir("/") != 0) die("chroot");
  do_mount(nullptr, "/", nullptr, MS_SHARED | MS_REC);
  do_mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
  make_directory("/dev/pts");
  make_directory("/dev/shm");
  do_mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  do_mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  for (const char* link : {"fd", "stdin", "stdout", "stderr"}) {
    static constexpr const char* kTargets[] = {"/proc/self/fd", "/proc/self/fd/0",
                                               "/proc/self/fd/1", "/proc/self/fd/2"};
    const int index = link[0] == 'f' ? 0 : link[3] == 'i' ? 1 : link[3] == 'o' ? 2 : 3;
    if (symlink(kTargets[index], (std::string("/dev/") + link).c_str()) != 0 && errno != EEXIST)
      die(link);
  }
}

void write_accounts() {
  std::string passwd, group = "tty:x:5:\n", shadow, subuid;
  make_directory("/run/user");
  for (const Account& account : kAccounts) {
    const std::string name(account.name), id = std::to_string(account.uid);
    passwd += name + ":x:" + id + ":" + id + "::" + std::string(account.home) + ":/bin/bash\n";
    group += name + ":x:" + id + ":\n";
    shadow += name + ":host-secret-canary:19000:0:99999:7:::\n";
    if (account.subuid) subuid += name + ":100000:65536\n";
    if (account.uid == 0) continue;
    make_directory(std::string(account.home), 0700, account.uid);
    make_directory("/run/user/" + id, 0700, account.uid);
  }
  passwd += "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n";
  group += "nogroup:x:65534:\n";
  write_file("/etc/passwd", passwd);
  write_file("/etc/group", group);
  write_file("/etc/shadow", shadow, 0600);
  write_file("/etc/subuid", subuid);
  write_file("/etc/subgid", subuid);
  write_file("/etc/hosts", "127.0.0.1 localhost\n");
  write_file("/etc/hostname", "testhost\n");
  write_file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
  write_file("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  if (sethostname("testhost", 8) != 0) die("sethostname");
}

// A control group with these controllers open for its children.
std::string make_group(const std::string& path, std::string_view controllers, uid_t owner) {
  make_directory(path);
  if (!controllers.empty() && !try_write(path + "/cgroup.subtree_control", controllers))
    die("controllers of " + path);
  if (owner != 0) {
    for (const char* name : {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"})
      if (chown((path + name).c_str(), owner, owner) != 0) die("chown " + path + name);
  }
  return path;
}

// As systemd lays it out: everything for the system's services, and per user a tree of their own
// with the controllers that systemd delegates by default.
void make_cgroups() {
  const std::string top(kCgroup);
  do_mount("cgroup2", top, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC,
           "nsdelegate,memory_recursiveprot");
  constexpr std::string_view kAll = "+cpu +io +memory +pids", kDelegated = "+cpu +memory +pids";
  if (!try_write(top + "/cgroup.subtree_control", kAll)) die("controllers of the root group");
  make_group(top + "/system.slice", kAll, 0);
  make_group(top + "/user.slice", kDelegated, 0);
  for (const Account& account : kAccounts) {
    const std::string id = std::to_string(account.uid);
    const std::string slice = make_group(top + "/user.slice/user-" + id + ".slice", kDelegated, 0);
    const std::string service =
        make_group(slice + "/user@" + id + ".service", kDelegated, account.uid);
    make_group(service + "/app.slice", kDelegated, account.uid);
  }
}

// Where a run goes: system (a service of root), delegated (a scope that belongs to the user),
// session (a scope that does not), top (the root group). Empty: no such kind.
std::string group_for_run(std::string_view kind, uid_t uid, unsigned number) {
  const std::string top(kCgroup), id = std::to_string(uid), run = "/run-" + std::to_string(number);
  const std::string slice = top + "/user.slice/user-" + id + ".slice";
  if (kind == "top") return top;
  if (kind == "system") return make_group(top + "/system.slice" + run + ".service", "", 0);
  if (kind == "session")
    return make_group(slice + "/session" + std::to_string(number) + ".scope", "", 0);
  if (kind == "delegated")
    return make_group(slice + "/user@" + id + ".service/app.slice" + run + ".scope", "", uid);
  return {};
}

unsigned count_processes(const std::string& group) {
  unsigned count = 0;
  std::error_code error;
  const auto add = [&](const std::string& folder) {
    for (const char c : read_file(folder + "/cgroup.procs") + "\n")
      if (c == '\n') ++count;
    if (read_file(folder + "/cgroup.procs").empty()) --count;
  };
  add(group);
  for (const auto& entry : fs::recursive_directory_iterator(group, error))
    if (entry.is_directory()) add(entry.path().string());
  return count;
}

// The processes of a run that is over. Its launcher is still ending for a moment after the last
// word: what stays stays longer than two seconds.
unsigned count_survivors(const std::string& group) {
  unsigned count = count_processes(group);
  for (int i = 0; i < 40 && count > 0; ++i) {
    poll(nullptr, 0, 50);
    count = count_processes(group);
  }
  return count;
}

// Removes a group with all below it, once its processes are gone.
void remove_group(const std::string& path) {
  for (int attempt = 0; attempt < 500; ++attempt) {
    std::vector<std::string> folders{path};
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(path, error))
      if (entry.is_directory()) folders.push_back(entry.path().string());
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) rmdir(folder->c_str());
    if (access(path.c_str(), F_OK) != 0) return;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    usleep(2000);
  }
}

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  int fd() const { return fd_; }

  void send(char type, std::string_view payload) {
    std::string frame(5, '\0');
    const auto length = static_cast<std::uint32_t>(payload.size());
    std::memcpy(frame.data(), &length, 4);
    frame[4] = type;
    frame += payload;
    std::size_t done = 0;
    while (done < frame.size()) {
      const ssize_t n = write(fd_, frame.data() + done, frame.size() - done);
      if (n < 0 && errno != EINTR) die("write to the host");
      if (n > 0) done += static_cast<std::size_t>(n);
    }
  }

  char receive(std::string& payload) {
    char head[5];
    fill(head, sizeof head);
    std::uint32_t length = 0;
    std::memcpy(&length, head, 4);
    if (length > kMaxFrame) die("frame too long");
    payload.resize(length);
    fill(payload.data(), length);
    return head[4];
  }

 private:
  void fill(char* into, std::size_t size) {
    while (size > 0) {
      const ssize_t n = read(fd_, into, size);
      if (n == 0) {  // The host has not opened, or has closed, its end of the port.
        usleep(1000);
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) die("read from the host");
      into += n;
      size -= static_cast<std::size_t>(n);
    }
  }
  int fd_;
};

[[noreturn]] void become(const Account& account, const std::string& group, const char* script) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();
  if (!try_write(group + "/cgroup.procs", "0")) die("enter " + group);
  const gid_t gid = account.uid;
  if (syscall(SYS_setgroups, 1, &gid) != 0 || setresgid(gid, gid, gid) != 0 ||
      setresuid(account.uid, account.uid, account.uid) != 0)
    die("become the user");
  const std::string home(account.home), name(account.name);
  if (chdir(home.c_str()) != 0) die("chdir " + home);
  clearenv();
  setenv("PATH", "/opt/caisson/build:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  setenv("HOME", home.c_str(), 1);
  setenv("USER", name.c_str(), 1);
  setenv("LOGNAME", name.c_str(), 1);
  setenv("LANG", "C.UTF-8", 1);
  setenv("CAISSON_BUILD", "/opt/caisson/build", 1);
  if (account.uid != 0)
    setenv("XDG_RUNTIME_DIR", ("/run/user/" + std::to_string(account.uid)).c_str(), 1);
  execl("/bin/bash", "bash", script, static_cast<char*>(nullptr));
  die("exec /bin/bash");
}

std::int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

void run(Channel& channel, const std::string& request, int signal_fd, unsigned number) {
  const std::size_t first = request.find('\0'), second = request.find('\0', first + 1),
                    third = request.find('\0', second + 1);
  if (third == std::string::npos) return channel.send('F', "malformed request");
  const std::string user = request.substr(0, first);
  const std::string kind = request.substr(first + 1, second - first - 1);
  const std::int64_t timeout = std::atoll(request.c_str() + second + 1);
  const Account* account = nullptr;
  for (const Account& candidate : kAccounts)
    if (candidate.name == user) account = &candidate;
  if (account == nullptr) return channel.send('F', "no user " + user);
  const std::string group = group_for_run(kind, account->uid, number);
  if (group.empty()) return channel.send('F', "no kind of control group " + kind);
  const std::string script = "/run/script-" + std::to_string(number);
  write_file(script, std::string_view(request).substr(third + 1));

  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) die("pipe");
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    become(*account, group, script.c_str());
  }
  close(out[1]);
  close(err[1]);

  const std::int64_t deadline = now_ms() + timeout;
  bool ended = false, timed_out = false;
  std::uint32_t answer[3] = {};
  pollfd polls[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {signal_fd, POLLIN, 0}};
  std::string buffer(65536, '\0');
  const auto kill_group = [&] {
    if (kind != "top") try_write(group + "/cgroup.kill", "1");
    kill(-child, SIGKILL);
  };
  while (!ended || polls[0].fd >= 0 || polls[1].fd >= 0) {
    const std::int64_t left = ended ? 1000 : deadline - now_ms();
    if (left <= 0 && !timed_out) {
      timed_out = true;
      kill_group();
    }
    poll(polls, 3, left <= 0 ? 1000 : static_cast<int>(left));
    for (int i = 0; i < 2; ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      const ssize_t n = read(polls[i].fd, buffer.data(), buffer.size());
      if (n > 0)
        channel.send(i == 0 ? 'O' : 'E',
                     std::string_view(buffer.data(), static_cast<std::size_t>(n)));
      if (n <= 0) polls[i].fd = -1;
    }
    if (polls[2].revents != 0) {
      signalfd_siginfo info;
      while (read(signal_fd, &info, sizeof info) > 0) {
      }
      int status = 0;
      pid_t pid = 0;
      while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != child) continue;
        ended = true;
        answer[0] = static_cast<std::uint32_t>(status);
        if (kind != "top") answer[2] = count_survivors(group);
        kill_group();  // What stayed behind would hold the pipes open.
      }
    }
  }
  close(out[0]);
  close(err[0]);
  unlink(script.c_str());
  if (kind != "top") remove_group(group);
  answer[1] = timed_out ? 1 : 0;
  channel.send('X', std::string_view(reinterpret_cast<const char*>(answer), sizeof answer));
}

}  // namespace

int main() {
  if (getpid() != 1) {
    std::fprintf(stderr, "vm-agent: runs only as the first process of the test machine\n");
    return 2;
  }
  for (const char* name : {"/dev", "/proc", "/sys"}) make_directory(name);
  do_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  do_mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  if (mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=755") != 0 && errno != EBUSY)
    die("mount /dev");
  const int console = open("/dev/console", O_RDWR);
  if (console >= 0) {
    for (int fd = 0; fd < 3; ++fd) dup2(console, fd);
    if (console > 2) close(console);
  }
  load_modules();
  mount_root();
  write_accounts();
  make_cgroups();
  bring_loopback_up();

  const std::string port = wait_for_device("/sys/class/virtio-ports", "name", kPort);
  const int fd = open(port.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) die("open " + port);
  Channel channel(fd);

  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) die("signalfd");

  utsname name{};
  uname(&name);
  channel.send('H', name.release);
  std::string request;
  for (unsigned number = 1;; ++number) {
    const char type = channel.receive(request);
    if (type == 'Q') power_off();
    if (type == 'R')
      run(channel, request, signals, number);
    else
      channel.send('F', "unknown frame");
  }
}
