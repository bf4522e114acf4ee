#include "box/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "guest/entry.h"
#include "launcher/launcher.h"
#include "launcher/registry.h"
#include "wall/namespace/namespace_wall.h"

namespace caisson::box {
namespace {

constexpr int kLauncherSocket = 3;
constexpr std::size_t kMostReply = 16 * 1024;
constexpr int kSweepPatienceMs = 10'000;
constexpr std::uint8_t kUp = 0;
constexpr std::uint8_t kFailed = 1;
constexpr std::uint8_t kRemoved = 2;

struct SocketPair {
  Fd ours, theirs;
};

Result<SocketPair> make_pair(int type) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
  return SocketPair{Fd(ends[0]), Fd(ends[1])};
}

class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

// The test build with clean_env off: the caller's environment goes all the way to the command.
bool keeps_environment() {
#if defined(CAISSON_TEST_SWITCHES)
  const char* off = std::getenv("CAISSON_OFF");
  return off != nullptr && std::strstr(off, "clean_env") != nullptr;
#else
  return false;
#endif
}

#if defined(CAISSON_TEST_SWITCHES)
// What the test build leaves out, where it fails on purpose, and which version it plays.
bool is_of_test_build(std::string_view entry) {
  for (const char* name : {"CAISSON_OFF=", "CAISSON_FAULT=", "CAISSON_TIMINGS=",
                           "CAISSON_PROTOCOL=", "CAISSON_GUARD_OFF="})
    if (entry.starts_with(name)) return true;
  return false;
}
#endif

Result<pid_t> spawn_launcher(const std::string& path, int socket_fd) {
  SpawnSettings settings;
  // The socket first: it may itself be one of the descriptors that are replaced next.
  ::posix_spawn_file_actions_adddup2(&settings.actions, socket_fd, kLauncherSocket);
  ::posix_spawn_file_actions_addopen(&settings.actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&settings.actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&settings.actions, kLauncherSocket + 1);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&settings.attributes, &none);
  ::posix_spawnattr_setsigdefault(&settings.attributes, &all);
  ::posix_spawnattr_setflags(
      &settings.attributes,
      static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  char name[] = "caisson-launcher";
  char* arguments[] = {name, nullptr};
  std::vector<char*> environment;
#if defined(CAISSON_TEST_SWITCHES)
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (is_of_test_build(text) || keeps_environment()) environment.push_back(*entry);
  }
#endif
  environment.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, path.c_str(), &settings.actions, &settings.attributes,
                                   arguments, environment.data());
  if (failed != 0) return fail(Error::syscall("start " + path, failed));
  return pid;
}

// Forking costs what is mapped and copies what is in memory; up to here it is cheaper than starting
// a program, which on virtual machines pays the C library's look at the processor each time.
constexpr std::uint64_t kMostPagesToFork = 4096;

// Whether a fork of this process is cheap and safe: small, and without other threads.
bool may_fork() {
  struct stat tasks{};
  if (::stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 3) return false;
  const auto sizes = sys::read_file(AT_FDCWD, "/proc/self/statm", 256);
  if (!sizes) return false;
  const std::size_t space = sizes->find(' ');
  return space != std::string::npos &&
         std::strtoull(sizes->c_str() + space, nullptr, 10) <= kMostPagesToFork;
}

// Nothing of the caller's environment stays in the launcher's and the supervisor's memory.
void wipe_environment() {
  if (keeps_environment()) return;
  static char* nothing[6] = {};
  std::size_t kept = 0;
  for (char** entry = environ; *entry != nullptr; ++entry) {
#if defined(CAISSON_TEST_SWITCHES)
    const std::string_view text(*entry);
    if (is_of_test_build(text)) {
      if (kept < std::size(nothing) - 1) nothing[kept++] = *entry;
      continue;
    }
#endif
    ::explicit_bzero(*entry, std::strlen(*entry));
  }
  nothing[kept] = nullptr;
  environ = nothing;
}

// Nor of its command line, which names host paths and values for the command; /proc/PID/cmdline of
// the launcher, the supervisor and PID 1 would show it, and their memory would keep it.
void wipe_arguments() {
  const auto stat = sys::read_file(AT_FDCWD, "/proc/self/stat", 8192);
  if (!stat) return;
  // The name may hold spaces and brackets; fields count from the last bracket, which ends the
  // second.
  std::size_t at = stat->rfind(')');
  constexpr int kArgStart = 48;  // proc(5)
  for (int field = 2; field < kArgStart && at != std::string::npos; ++field)
    at = stat->find(' ', at + 1);
  if (at == std::string::npos) return;
  char* rest = nullptr;
  const std::uintptr_t start = std::strtoull(stat->c_str() + at, &rest, 10);
  const std::uintptr_t end = std::strtoull(rest, nullptr, 10);
  if (start != 0 && end > start) ::explicit_bzero(reinterpret_cast<void*>(start), end - start);
}

[[noreturn]] void be_launcher(int socket_fd) {
  wipe_environment();
  wipe_arguments();
  ::setsid();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_NAME, "caisson-launcher");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(socket_fd, kLauncherSocket) < 0 || ::dup2(null, 0) < 0 ||
      ::dup2(null, 1) < 0)
    ::_exit(1);
  if (::close_range(kLauncherSocket + 1, ~0u, 0) != 0) ::_exit(1);
  ::_exit(launcher::run_launcher(kLauncherSocket, guest::run_guest));
}

Result<pid_t> fork_launcher(int socket_fd) {
  clone_args arguments{};
  arguments.flags = CLONE_CLEAR_SIGHAND;
  arguments.exit_signal = SIGCHLD;
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return fail_errno("fork of the launcher");
  if (pid == 0) be_launcher(socket_fd);
  return static_cast<pid_t>(pid);
}

// Launchers that are not waited for: they have said their last word, or outlive us by intention.
// Reaped when another one is started. By pidfd: where the program itself reaps whatever ends, the
// number may be another child's by then.
class LastOnes {
 public:
  void leave(pid_t pid) {
    auto handle = sys::pidfd_open(pid);
    if (!handle) return;  // ended, and reaped by somebody else
    const std::lock_guard<std::mutex> lock(mutex_);
    handles_.push_back(std::move(*handle));
  }
  void reap() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(handles_, [](const Fd& handle) {
      siginfo_t ended{};
      const int waited = ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(handle.get()),
                                  &ended, WEXITED | WNOHANG);
      return waited != 0 || ended.si_pid != 0;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<Fd> handles_;
};

// A launcher that has ended already is no error here: await_up() has the better message.
Status tell_launcher(int socket_fd, std::string_view bytes, std::span<const int> descriptors) {
  auto sent = sys::send_message(socket_fd, bytes, descriptors);
  if (sent) return {};
  const int error_number = sent.error().error_number();
  if (error_number == EPIPE || error_number == ECONNRESET) return {};
  return fail(std::move(sent).error().with("asking the launcher"));
}

LastOnes& last_ones() {
  static LastOnes ones;
  return ones;
}

}  // namespace

Result<Launch> Launch::start() {
  last_ones().reap();
  TRY_ASSIGN(SocketPair pair, make_pair(SOCK_SEQPACKET));
  // Descriptor 3 of the child is made by dup2; a socket that is 3 already would be closed by it
  // only if it were another one, so it moves out of the way.
  if (pair.theirs.get() <= kLauncherSocket) {
    Fd moved(::fcntl(pair.theirs.get(), F_DUPFD_CLOEXEC, kLauncherSocket + 1));
    if (!moved.valid()) return fail_errno("fcntl F_DUPFD_CLOEXEC");
    pair.theirs = std::move(moved);
  }
  TRY_ASSIGN(const std::string id, new_sandbox_id());
  pid_t pid = -1;
  if (may_fork()) {
    TRY_ASSIGN(pid, fork_launcher(pair.theirs.get()));
  } else {
    TRY_ASSIGN(const std::string path, helper_binary("caisson-launcher"));
    TRY_ASSIGN(pid, spawn_launcher(path, pair.theirs.get()));
  }
  pair.theirs.reset();
  Launch launch(std::move(pair.ours), pid);
  launch.id_ = id;
  TRY_ASSIGN(launch.run_directory_, open_run_directory());
  const int directory[] = {launch.run_directory_.get()};
  TRY(tell_launcher(launch.socket_.get(), std::string(launcher::kOpeningMagic) + id, directory));
  return launch;
}

Launch::Launch(Launch&& other) noexcept
    : socket_(std::move(other.socket_)),
      pid_(std::exchange(other.pid_, -1)),
      id_(std::move(other.id_)),
      run_directory_(std::move(other.run_directory_)) {}

Launch& Launch::operator=(Launch&& other) noexcept {
  if (this != &other) {
    socket_.reset();
    static_cast<void>(reap());
    socket_ = std::move(other.socket_);
    pid_ = std::exchange(other.pid_, -1);
    id_ = std::move(other.id_);
    run_directory_ = std::move(other.run_directory_);
  }
  return *this;
}

Launch::~Launch() {
  socket_.reset();
  static_cast<void>(reap());
}

Status Launch::reap() {
  if (pid_ < 0) return {};
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (!WIFSIGNALED(status) || !run_directory_.valid()) return {};
  const auto wall = wall::make_namespace_wall();
  return launcher::sweep_one(run_directory_.get(), id_, *wall, kSweepPatienceMs);
}

Result<Fd> Launch::send(const wall::Plan& plan, std::span<const int> descriptors) {
  TRY_ASSIGN(SocketPair client, make_pair(SOCK_STREAM));
  std::vector<int> all = {client.theirs.get()};
  all.insert(all.end(), descriptors.begin(), descriptors.end());
  if (all.size() > wall::kMaxPlanDescriptors)
    return fail(Error::invalid("files: " + std::to_string(descriptors.size()) +
                               " host paths are granted, at most " +
                               std::to_string(wall::kMaxPlanDescriptors - 1) + " are allowed"));
  const std::string request = std::string(launcher::kPlanMagic) + wall::encode(plan);
  if (request.size() > wall::kMaxPlanBytes)
    return fail(Error::invalid("the spec is too large: its plan has " +
                               std::to_string(request.size()) + " bytes, at most " +
                               std::to_string(wall::kMaxPlanBytes) + " are allowed"));
  TRY(tell_launcher(socket_.get(), request, all));
  return std::move(client.ours);
}

Result<wall::Handouts> Launch::await_up() {
  auto received = sys::recv_message(socket_.get(), kMostReply);
  if (!received) return fail(received.error());
  if (received->bytes.empty()) {
    std::string text = "caisson-launcher was killed before the sandbox was up";
    if (auto swept = reap(); !swept) text += "; what it left: " + swept.error().message();
    return fail(Error::internal(text));
  }
  sys::Message& reply = *received;
  const auto kind = static_cast<std::uint8_t>(reply.bytes[0]);
  if (kind == kUp)
    return wall::decode_handouts(std::string_view(reply.bytes).substr(1),
                                 std::move(reply.descriptors));
  if (kind == kRemoved) {
    std::string text = "the sandbox's supervisor was killed before the sandbox was up";
    if (reply.bytes.size() > 1) text += "; not removed: " + reply.bytes.substr(1);
    return fail(Error::internal(text));
  }
  if (kind != kFailed || reply.bytes.size() < 2)
    return fail(Error::internal("caisson-launcher gave an answer of unknown kind"));
  const auto code = static_cast<std::uint8_t>(reply.bytes[1]);
  if (code < static_cast<std::uint8_t>(Code::kCancelled) ||
      code > static_cast<std::uint8_t>(Code::kUnauthenticated))
    return fail(Error::internal("caisson-launcher gave an unknown code"));
  return fail(Error(static_cast<Code>(code), reply.bytes.substr(2)));
}

Status Launch::wait_end() {
  if (pid_ < 0) return {};
  auto reply = sys::recv_message(socket_.get(), kMostReply);
  socket_.reset();
  if (reply.has_value() && !reply->bytes.empty()) {
    // Everything is removed; the kernel alone still takes the launcher's memory down.
    last_ones().leave(std::exchange(pid_, -1));
  } else {
    TRY(reap());
  }
  // Killed while it cleaned up, and what it left is swept.
  if (!reply.has_value() || reply->bytes.empty()) return {};
  if (static_cast<std::uint8_t>(reply->bytes[0]) != kRemoved)
    return fail(Error::internal("caisson-launcher gave an answer of unknown kind"));
  if (reply->bytes.size() > 1)
    return fail(Error::internal("not everything could be removed: " + reply->bytes.substr(1)));
  return {};
}

void Launch::leave() {
  if (pid_ >= 0) last_ones().leave(std::exchange(pid_, -1));
  socket_.reset();
}

Result<std::string> new_sandbox_id() {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz012345";
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random) return fail_errno("getrandom");
  std::string id;
  for (const unsigned char byte : random) id += kAlphabet[byte % kAlphabet.size()];
  return id;
}

Result<Fd> open_run_directory() {
  const std::string path = run_directory();
  // Parents (XDG folders, /run) are the system's or the user's own; only the last is ours.
  if (::mkdir(path.c_str(), 0700) != 0 && errno == ENOENT) {
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1))
      ::mkdir(path.substr(0, slash).c_str(), 0700);
    ::mkdir(path.c_str(), 0700);
  }
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("run directory " + path);
  struct stat info = {};
  if (::fstat(directory.get(), &info) != 0) return fail_errno("fstat " + path);
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return fail(Error(Code::kPermissionDenied,
                      "run directory " + path + " must belong to the user who calls caisson and " +
                          "be writable by nobody else; remove it, or set CAISSON_RUN_DIR"));
  return directory;
}

}  // namespace caisson::box
