#include "egress/secret_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/sys.h"

namespace caisson::egress {
namespace {

constexpr std::array kVariables = {"HOME",
                                   "PATH",
                                   "USER",
                                   "LOGNAME",
                                   "LANG",
                                   "LC_ALL",
                                   "TZ",
                                   "TMPDIR",
                                   "SSH_AUTH_SOCK",
                                   "DBUS_SESSION_BUS_ADDRESS",
                                   "XDG_CONFIG_HOME",
                                   "XDG_CACHE_HOME",
                                   "XDG_DATA_HOME",
                                   "XDG_RUNTIME_DIR"};
constexpr std::string_view kUsualPath = "/usr/local/bin:/usr/bin:/bin";

std::string_view variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& setting : environment) {
    const std::string_view text(setting);
    if (text.starts_with(name) && text.substr(name.size()).starts_with('='))
      return text.substr(name.size() + 1);
  }
  return {};
}

// As execvp(3) looks for it, by these variables.
Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& environment) {
  if (name.find('/') != name.npos) return name;
  std::string_view path = variable(environment, "PATH");
  if (path.empty()) path = kUsualPath;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const std::string file = std::string(path.substr(0, end)) + "/" + name;
    if (end > 0 && ::access(file.c_str(), X_OK) == 0) return file;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return fail(Error::not_found("the program " + name + " is not in PATH"));
}

// In a forked child of a process that may have threads: system calls only.
[[noreturn]] void become(const char* path, char* const* arguments, char* const* environment,
                         int output_fd, int error_fd, pid_t parent) {
  (void)setsid();
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int output = fcntl(output_fd, F_DUPFD_CLOEXEC, 64);
  const int errors = error_fd < 0 ? -1 : fcntl(error_fd, F_DUPFD_CLOEXEC, 64);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 0);
  dup2(output, 1);
  dup2(errors < 0 ? null : errors, 2);
  close_range(3, ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execve(path, arguments, environment);
  _exit(127);
}

std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> command_environment() {
  std::vector<std::string> environment;
  for (const char* name : kVariables) {
    if (const char* value = ::getenv(name); value != nullptr)
      environment.push_back(std::string(name) + "=" + value);
  }
  return environment;
}

Result<SecretCommand> SecretCommand::start(const std::vector<std::string>& command,
                                           const std::vector<std::string>& environment,
                                           int error_fd) {
  if (command.empty()) return fail(Error::invalid("a command without a program"));
  TRY_ASSIGN(const std::string path, find_program(command[0], environment));
  if (::access(path.c_str(), X_OK) != 0) return fail_errno("the program " + path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe2");
  SecretCommand started;
  started.output_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl F_SETFL");
  const std::vector<char*> arguments = pointers_of(command), variables = pointers_of(environment);
  const pid_t parent = ::getpid();
  started.end_by_us_ = sys::monotonic_us() + std::chrono::microseconds(kCommandTime).count();
  started.pid_ = ::fork();
  if (started.pid_ < 0) return fail_errno("fork");
  if (started.pid_ == 0)
    become(path.c_str(), arguments.data(), variables.data(), theirs.get(), error_fd, parent);
  return started;
}

SecretCommand::SecretCommand(SecretCommand&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      bytes_(std::move(other.bytes_)),
      end_by_us_(other.end_by_us_) {}

SecretCommand::~SecretCommand() {
  kill();
}

// Its session's group is its own, and it is not reaped yet.
void SecretCommand::kill() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::optional<Result<SecretBytes>> SecretCommand::take() {
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t count = ::read(output_.get(), piece.data(), piece.size());
    if (count > 0) {
      bytes_.insert(bytes_.end(), piece.begin(), piece.begin() + count);
      wipe(piece.data(), piece.size());
      if (bytes_.size() <= kMostOutput) continue;
      kill();
      return fail(Error::invalid("the command printed more than " + std::to_string(kMostOutput) +
                                 " bytes"));
    }
    if (count == 0) return finish();
    if (errno == EINTR) continue;
    break;
  }
  if (sys::monotonic_us() < end_by_us_) return std::nullopt;
  kill();
  return fail(Error(Code::kDeadlineExceeded,
                    "the command took longer than " + std::to_string(kCommandTime.count()) + " s"));
}

Result<SecretBytes> SecretCommand::finish() {
  int status = 0;
  // Who closes its output and goes on has no longer than others.
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid == pid_)
      break;
    if (sys::monotonic_us() >= end_by_us_) {
      kill();
      return fail(Error(Code::kDeadlineExceeded, "the command does not end"));
    }
    (void)::poll(nullptr, 0, 5);
  }
  // What it left behind in its session's group ends with it. The number is still its own.
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::move(bytes_);
  if (WIFEXITED(status))
    return fail(Error::precondition("the command failed with status " +
                                    std::to_string(WEXITSTATUS(status))));
  return fail(
      Error::precondition("the command was ended by signal " + std::to_string(WTERMSIG(status))));
}

Result<Minted> mint(const std::vector<std::string>& command, std::optional<std::uint64_t> ttl_ms) {
  TRY_ASSIGN(SecretCommand running, SecretCommand::start(command, command_environment(), 2));
  for (;;) {
    pollfd entry{running.fd(), POLLIN, 0};
    const std::uint64_t now = sys::monotonic_us();
    const std::uint64_t left = running.end_by_us() > now ? running.end_by_us() - now : 0;
    (void)::poll(&entry, 1, static_cast<int>((left + 999) / 1000));
    auto taken = running.take();
    if (!taken) continue;
    if (!taken->has_value()) return fail(std::move(*taken).error());
    const SecretBytes& bytes = **taken;
    return read_minted({bytes.data(), bytes.size()}, ttl_ms, std::chrono::system_clock::now());
  }
}

}  // namespace caisson::egress
