#include "api/templates/build_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/fd.h"

extern char** environ;

namespace caisson::api {
namespace {

using build::JobLine;

constexpr std::chrono::milliseconds kPatience{5000}, kLook{20};

// Starts the program with `socket_fd` as its descriptor of the job and nothing else of ours but the
// environment and standard error.
Result<pid_t> spawn(const std::string& program, int socket_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, socket_fd, build::kTemplateJobFd);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  // A group of its own: a terminal's interrupt is the server's to pass on.
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string name = program;
  std::array<char*, 2> arguments = {name.data(), nullptr};
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(Error::syscall("start " + program, error));
  return pid;
}

}  // namespace

Result<std::unique_ptr<BuildProcess>> BuildProcess::start(io::Loop& loop,
                                                          const std::string& program) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  Fd ours(ends[0]), theirs(ends[1]);
  TRY_ASSIGN(std::unique_ptr<io::Stream> stream, io::adopt(loop, std::move(ours)));
  TRY_ASSIGN(const pid_t pid, spawn(program, theirs.get()));
  return std::unique_ptr<BuildProcess>(new BuildProcess(pid, std::move(stream)));
}

BuildProcess::~BuildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  TEMP_FAILURE_RETRY(::waitpid(pid_, nullptr, 0));
}

io::Async<Status> BuildProcess::send(build::TemplateJob job) {
  const std::string line = build::encode(job) + "\n";
  co_return co_await stream_->write(line);
}

io::Async<Result<std::vector<JobLine>>> BuildProcess::next(io::Clock::time_point until) {
  std::vector<JobLine> lines;
  std::array<char, 65536> piece;
  while (lines.empty()) {
    const auto left = until - io::Clock::now();
    if (left <= io::Clock::duration::zero())
      co_return fail(Error(Code::kDeadlineExceeded, "the time of the build is over"));
    stream_->set_timeout(until == io::Clock::time_point::max() ? io::Clock::duration::zero()
                                                               : left);
    const auto count = co_await stream_->read(piece);
    if (!count.has_value()) {
      if (count.error().code() == Code::kDeadlineExceeded) continue;
      co_return lines;  // it broke off
    }
    if (*count == 0) co_return lines;
    std::string_view rest(piece.data(), *count);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      partial_ += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      auto line = build::parse_job_line(std::exchange(partial_, {}));
      if (!line.has_value()) co_return fail(Error(Code::kDataLoss, line.error().message()));
      lines.push_back(std::move(*line));
    }
    partial_ += rest;
    if (partial_.size() > build::kMaxJobLine)
      co_return fail(Error(Code::kDataLoss, "a line of a build is too long"));
  }
  co_return lines;
}

void BuildProcess::terminate() {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
}

io::Async<bool> BuildProcess::has_ended(std::chrono::milliseconds patience) {
  const auto until = io::Clock::now() + patience;
  for (;;) {
    if (pid_ <= 0 || ::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      co_return true;
    }
    if (io::Clock::now() >= until) co_return false;
    co_await io::Loop::sleep(kLook);
  }
}

io::Async<void> BuildProcess::end() {
  const bool by_itself = co_await has_ended(kPatience);
  if (by_itself) co_return;
  ::kill(pid_, SIGKILL);
  const bool killed = co_await has_ended(kPatience);
  if (!killed) pid_ = -1;  // held by the kernel; nothing here waits for it
}

}  // namespace caisson::api
