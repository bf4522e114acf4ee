#include "image/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/paths.h"
#include "image/reference.h"
#include "image/sha256.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFeedSize = 128 * 1024;

struct Pair {
  Fd ours, theirs;
};

Result<Pair> socket_pair(int type) {
  int fds[2] = {-1, -1};
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return fail_errno("socketpair");
  return Pair{Fd(fds[0]), Fd(fds[1])};
}

// Runs in a forked child of a process that may have threads: system calls only.
[[noreturn]] void become(const char* path, char* const* arguments,
                         std::span<const int> descriptors) {
  char* const environment[] = {nullptr};
  // First out of each other's way, then to the numbers that the worker expects.
  int moved[8] = {};
  std::size_t count = 0;
  for (int fd : descriptors) moved[count++] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 64);
  const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(null_fd, fd);
  int top = kWorkerReportFd;
  for (std::size_t i = 0; i < count; ++i, ++top) {
    if (moved[i] >= 0) {
      dup2(moved[i], top);
    } else {
      close(top);
    }
  }
  close_range(static_cast<unsigned>(top), ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_IGN);
  execve(path, arguments, environment);
  _exit(127);
}

// A child that is ended and reaped at the latest on destruction.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  Status start(const std::string& path, const std::vector<std::string>& arguments,
               std::span<const int> descriptors) {
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) {
      pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) return fail_errno("fork");
    if (pid_ == 0) become(path.c_str(), pointers.data(), descriptors);
    return {};
  }
  pid_t pid() const { return pid_; }
  // Kills it when it still runs. Its wait status.
  int end() {
    if (pid_ <= 0) return status_;
    kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
    return wait();
  }
  int wait() {
    if (pid_ > 0) TEMP_FAILURE_RETRY(waitpid(pid_, &status_, 0));
    pid_ = -1;
    return status_;
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

Status write_proc(pid_t pid, const char* name, std::string_view text) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return fail_errno("open " + path);
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail_errno("write " + path);
  }
  return {};
}

// newuidmap PID INSIDE OUTSIDE COUNT…
Status run_map_helper(pid_t pid, const std::string& lines, bool groups) {
  const std::string path = id_map_helper(groups);
  if (path.empty()) {
    return fail(Error::precondition("newuidmap and newgidmap are not installed (package uidmap)"));
  }
  std::vector<std::string> arguments = {path, std::to_string(pid)};
  std::string word;
  for (char c : lines) {
    if (c != ' ' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      arguments.push_back(std::move(word));
      word.clear();
    }
  }
  Child helper;
  TRY(helper.start(path, arguments, {}));
  const int status = helper.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(
        Error(Code::kPermissionDenied,
              path + " refused the id map; look at the ranges in /etc/subuid and /etc/subgid"));
  }
  return {};
}

Status write_maps(pid_t pid, const IdMapping& ids) {
  if (ids.layout == IdLayout::kSubuid) {
    TRY(run_map_helper(pid, map_lines(ids, false), false));
    return run_map_helper(pid, map_lines(ids, true), true);
  }
  if (ids.layout == IdLayout::kSingle) TRY(write_proc(pid, "setgroups", "deny"));
  TRY(write_proc(pid, "uid_map", map_lines(ids, false)));
  return write_proc(pid, "gid_map", map_lines(ids, true));
}

// What goes into the worker: the file's bytes from its start, hashed on the way.
class Feed {
 public:
  Feed(Fd socket, int archive_fd) : socket_(std::move(socket)), archive_fd_(archive_fd) {}

  // Socket to wait for, -1 once all is sent or the worker takes no more.
  int fd() const { return socket_.get(); }
  std::uint64_t done() const { return offset_; }

  Status step() {
    if (sent_ == size_) {
      TRY(refill());
      if (size_ == 0) {
        socket_.reset();
        return {};
      }
    }
    ssize_t sent =
        send(socket_.get(), buffer_.data() + sent_, size_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      socket_.reset();  // the archive ends before its file does, or the worker has failed
    } else if (errno != EAGAIN && errno != EINTR) {
      return fail_errno("send to the image worker");
    }
    return {};
  }

  // Hashes what the worker did not want, and gives the digest of the whole file.
  Result<std::string> digest() {
    do {
      TRY(refill());
    } while (size_ != 0);
    return hash_.finish();
  }

 private:
  Status refill() {
    ssize_t got = TEMP_FAILURE_RETRY(
        pread(archive_fd_, buffer_.data(), buffer_.size(), static_cast<off_t>(offset_)));
    if (got < 0) return fail_errno("read the archive");
    size_ = static_cast<std::size_t>(got);
    sent_ = 0;
    offset_ += size_;
    hash_.update({buffer_.data(), size_});
    return {};
  }

  Fd socket_;
  int archive_fd_;
  std::vector<char> buffer_ = std::vector<char>(kFeedSize);
  std::size_t size_ = 0, sent_ = 0;
  std::uint64_t offset_ = 0;
  Sha256 hash_;
};

class Worker {
 public:
  explicit Worker(Clock::time_point deadline) : deadline_(deadline) {}

  ~Worker() {
    child_.end();
    // The one that does the work is a child of that process and dies with it, but not at the same
    // instant: it still writes until the last copy of the socket is closed.
    char buffer[kMaxWorkerMessage];
    while (report_.valid() && recv(report_.get(), buffer, sizeof buffer, 0) > 0) {
    }
  }

  Status start(const std::vector<std::string>& arguments, int archive_fd, int destination_fd,
               int lock_fd, const IdMapping& ids) {
    TRY_ASSIGN(std::string program, helper_binary("caisson-image-worker"));
    TRY_ASSIGN(Pair report, socket_pair(SOCK_SEQPACKET));
    report_ = std::move(report.ours);
    std::vector<std::string> all = {program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const int descriptors[] = {report.theirs.get(), archive_fd, destination_fd, lock_fd};
    TRY(child_.start(program, all, descriptors));
    report.theirs.reset();
    TRY_ASSIGN(std::string hello, receive(nullptr, nullptr));
    if (hello != std::string(1, kWorkerReady)) return fail(failure(hello));
    TRY(write_maps(child_.pid(), ids));
    if (send(report_.get(), &kWorkerGo, 1, MSG_NOSIGNAL) != 1) return fail_errno("send");
    return {};
  }

  // The next message; feeds the archive meanwhile.
  Result<std::string> receive(Feed* feed, const std::function<void()>& fed) {
    for (;;) {
      const int feed_fd = feed == nullptr ? -1 : feed->fd();
      std::array<pollfd, 2> polled = {{{report_.get(), POLLIN, 0}, {feed_fd, POLLOUT, 0}}};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) {
        return fail(Error(Code::kDeadlineExceeded, "the image took longer than its time limit"));
      }
      const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::min(left, 1000l)));
      if (ready < 0 && errno != EINTR) return fail_errno("poll");
      if (ready <= 0) continue;
      if (polled[0].revents != 0) {
        std::string message(kMaxWorkerMessage, '\0');
        ssize_t got = TEMP_FAILURE_RETRY(recv(report_.get(), message.data(), message.size(), 0));
        if (got < 0) return fail_errno("receive from the image worker");
        message.resize(static_cast<std::size_t>(got));
        if (message.empty()) return fail(failure(message));
        return message;
      }
      if (polled[1].revents != 0) {
        TRY(feed->step());
        if (fed) fed();
      }
    }
  }

  // What a message that is no success means.
  Error failure(std::string_view message) {
    if (message.empty()) {
      const int status = child_.wait();
      return Error::internal("the image worker ended without a word (" +
                             (WIFSIGNALED(status)
                                  ? "signal " + std::to_string(WTERMSIG(status))
                                  : "status " + std::to_string(WEXITSTATUS(status))) +
                             ")");
    }
    if (message.front() == kWorkerRefused) {
      return Error::invalid(printable(message.substr(1), kMaxWorkerMessage));
    }
    if (message.front() == kWorkerFailed) {
      return Error(Code::kFailedPrecondition, printable(message.substr(1), kMaxWorkerMessage));
    }
    return Error::internal("the image worker said something unexpected: " + printable(message));
  }

 private:
  Clock::time_point deadline_;
  Child child_;
  Fd report_;
};

}  // namespace

std::string encode_report(const UnpackReport& report) {
  std::string text;
  for (std::uint64_t value : {report.entries, report.bytes, report.dropped_devices,
                              report.dropped_attributes, report.absolute_names}) {
    text += std::to_string(value) + "\n";
  }
  return text;
}

Result<UnpackReport> decode_report(std::string_view text) {
  UnpackReport report;
  for (std::uint64_t* value : {&report.entries, &report.bytes, &report.dropped_devices,
                               &report.dropped_attributes, &report.absolute_names}) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc() || end == text.data() + text.size() || *end != '\n') {
      return fail(Error::internal("the image worker's report is malformed"));
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  if (!text.empty()) return fail(Error::internal("the image worker's report is malformed"));
  return report;
}

Result<UnpackReport> unpack_by_worker(int archive_fd, const std::string& digest, int destination_fd,
                                      int lock_fd, const IdMapping& ids, const UnpackLimits& limits,
                                      const Progress& progress) {
  struct stat archive = {};
  if (fstat(archive_fd, &archive) != 0) return fail_errno("stat the archive");
  const auto total = static_cast<std::uint64_t>(archive.st_size);
  TRY_ASSIGN(Pair pipe, socket_pair(SOCK_STREAM));
  Worker worker(Clock::now() + limits.time);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits.time).count() + 1;
  TRY(worker.start(
      {"unpack", std::string(to_string(ids.layout)), std::to_string(limits.entries),
       std::to_string(limits.bytes), std::to_string(limits.ratio), std::to_string(seconds)},
      pipe.theirs.get(), destination_fd, lock_fd, ids));
  pipe.theirs.reset();
  Feed feed(std::move(pipe.ours), archive_fd);
  TRY_ASSIGN(std::string message, worker.receive(&feed, [&] {
    if (progress) progress(std::min(feed.done(), total), total);
  }));
  if (message.front() != kWorkerDone) return fail(worker.failure(message));
  TRY_ASSIGN(UnpackReport report, decode_report(std::string_view(message).substr(1)));
  TRY_ASSIGN(std::string fed, feed.digest());
  if (fed != digest) {
    return fail(Error(Code::kDataLoss, "the archive changed while it was being read"));
  }
  return report;
}

Status remove_by_worker(int directory_fd, const std::string& name, const IdMapping& ids) {
  Worker worker(Clock::now() + std::chrono::minutes(15));
  TRY(worker.start({"remove", name}, -1, directory_fd, -1, ids));
  TRY_ASSIGN(std::string message, worker.receive(nullptr, nullptr));
  if (message.front() != kWorkerDone) return fail(worker.failure(message));
  return {};
}

}  // namespace caisson::image
