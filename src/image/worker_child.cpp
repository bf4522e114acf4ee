#include "image/worker_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "image/ids.h"
#include "image/reference.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

constexpr std::size_t kMostDescriptors = 8;

// Runs in a forked child of a process that may have threads: system calls only.
[[noreturn]] void become(const char* path, char* const* arguments,
                         std::span<const int> descriptors) {
  char* const environment[] = {nullptr};
  // First out of each other's way, then to the numbers that are expected.
  std::array<int, kMostDescriptors> moved{};
  for (std::size_t i = 0; i < descriptors.size(); ++i)
    moved[i] = descriptors[i] < 0 ? -1 : ::fcntl(descriptors[i], F_DUPFD_CLOEXEC, 64);
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null_fd, fd);
  int top = kWorkerReportFd;
  for (std::size_t i = 0; i < descriptors.size(); ++i, ++top) {
    if (moved[i] >= 0)
      ::dup2(moved[i], top);
    else
      ::close(top);
  }
  ::close_range(static_cast<unsigned>(top), ~0u, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::execve(path, arguments, environment);
  ::_exit(127);
}

Result<pid_t> spawn(const std::vector<std::string>& words, std::span<const int> descriptors) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) become(pointers[0], pointers.data(), descriptors);
  return pid;
}

Status write_map(pid_t pid, const char* name, std::string_view text) {
  return sys::write_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/" + name, text);
}

// newuidmap PID INSIDE OUTSIDE COUNT…
Status run_helper(pid_t pid, const std::string& lines, bool groups) {
  const std::string path = id_map_helper(groups);
  if (path.empty())
    return fail(Error::precondition("newuidmap and newgidmap are not installed (package uidmap)"));
  std::vector<std::string> words = {path, std::to_string(pid)};
  std::string word;
  for (const char c : lines) {
    if (c != ' ' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  TRY_ASSIGN(const pid_t helper, spawn(words, {}));
  int status = 0;
  TEMP_FAILURE_RETRY(::waitpid(helper, &status, 0));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(
      Error(Code::kPermissionDenied,
            path + " refused the id map; look at the ranges in /etc/subuid and /etc/subgid"));
}

// One id, which may be its writer's own.
bool is_single(std::string_view lines) {
  return lines.ends_with(" 1\n") && lines.find('\n') == lines.size() - 1;
}

}  // namespace

Result<WorkerChild> WorkerChild::start(const std::vector<std::string>& arguments,
                                       std::span<const int> descriptors,
                                       const std::string& uid_lines, const std::string& gid_lines,
                                       Clock::time_point deadline) {
  VERIFY(descriptors.size() < kMostDescriptors);
  TRY_ASSIGN(const std::string program, helper_binary("caisson-image-worker"));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<int> all = {theirs.get()};
  all.insert(all.end(), descriptors.begin(), descriptors.end());
  TRY_ASSIGN(const pid_t pid, spawn(words, all));
  WorkerChild worker(std::move(ours), pid);
  theirs.reset();
  pollfd entry{worker.report_fd(), POLLIN, 0};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if (TEMP_FAILURE_RETRY(
          ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000)))) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the image worker did not start in time"));
  TRY_ASSIGN(const sys::Message hello, worker.receive());
  if (hello.bytes != std::string_view(&kWorkerReady, 1)) return fail(failure(hello.bytes));
  TRY(worker.map_ids(uid_lines, gid_lines));
  TRY(sys::send_message(worker.report_fd(), std::string_view(&kWorkerGo, 1), {}));
  return worker;
}

Status WorkerChild::map_ids(const std::string& uid_lines, const std::string& gid_lines) const {
  if (::geteuid() != 0 && !(is_single(uid_lines) && is_single(gid_lines))) {
    TRY(run_helper(pid_, uid_lines, false));
    return run_helper(pid_, gid_lines, true);
  }
  if (::geteuid() != 0) TRY(write_map(pid_, "setgroups", "deny"));
  TRY(write_map(pid_, "uid_map", uid_lines));
  return write_map(pid_, "gid_map", gid_lines);
}

WorkerChild::WorkerChild(WorkerChild&& other) noexcept
    : report_(std::move(other.report_)), pid_(std::exchange(other.pid_, -1)) {}

WorkerChild::~WorkerChild() {
  if (pid_ <= 0) return;
  (void)::kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
  TEMP_FAILURE_RETRY(::waitpid(pid_, nullptr, 0));
  // The one that does the work is a child of that process and dies with it, but not at the same
  // instant: it holds what it was given until the last copy of the socket is closed.
  char buffer[kMaxWorkerMessage];
  while (::recv(report_.get(), buffer, sizeof buffer, 0) > 0) {
  }
}

Result<sys::Message> WorkerChild::receive() {
  TRY_ASSIGN(sys::Message message, sys::recv_message(report_.get(), kMaxWorkerMessage));
  if (message.bytes.empty()) return fail(failure(message.bytes));
  return message;
}

Error WorkerChild::failure(std::string_view message) {
  if (message.empty()) return Error::internal("the image worker ended without a word");
  if (message.size() >= 2 && message[0] == kWorkerError) {
    const auto code = static_cast<Code>(message[1]);
    const bool known = code >= Code::kCancelled && code <= Code::kUnauthenticated;
    return {known ? code : Code::kUnknown, printable(message.substr(2), kMaxWorkerMessage)};
  }
  return Error::internal("the image worker said something unexpected: " + printable(message));
}

}  // namespace caisson::image
