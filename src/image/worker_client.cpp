#include "image/worker_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "image/reference.h"
#include "image/worker_protocol.h"

namespace caisson::image {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFeedSize = 128 * 1024;

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
  ChildProcess helper;
  TRY(helper.start(path, arguments, {}));
  const int status = helper.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(
        Error(Code::kPermissionDenied,
              path + " refused the id map; look at the ranges in /etc/subuid and /etc/subgid"));
  }
  return {};
}

// One id, which may be its writer's own.
bool is_single(std::string_view lines) {
  return lines.ends_with(" 1\n") && lines.find('\n') == lines.size() - 1;
}

}  // namespace

Status write_id_maps(pid_t pid, const std::string& uid_lines, const std::string& gid_lines) {
  const bool root = geteuid() == 0;
  if (!root && !(is_single(uid_lines) && is_single(gid_lines))) {
    TRY(run_map_helper(pid, uid_lines, false));
    return run_map_helper(pid, gid_lines, true);
  }
  if (!root) TRY(write_proc(pid, "setgroups", "deny"));
  TRY(write_proc(pid, "uid_map", uid_lines));
  return write_proc(pid, "gid_map", gid_lines);
}

Feed::Feed(int socket_fd, int file_fd, std::uint64_t size)
    : socket_fd_(socket_fd), file_fd_(file_fd), buffer_(kFeedSize), size_(size) {}

Status Feed::refill() {
  const std::size_t wanted = std::min<std::uint64_t>(buffer_.size(), size_ - offset_);
  sent_ = held_ = 0;
  if (wanted == 0) return {};
  const ssize_t got =
      TEMP_FAILURE_RETRY(pread(file_fd_, buffer_.data(), wanted, static_cast<off_t>(offset_)));
  if (got < 0) return fail_errno("read the archive");
  if (got == 0) {
    return fail(Error(Code::kDataLoss, "the archive became shorter while it was being read"));
  }
  held_ = static_cast<std::size_t>(got);
  offset_ += held_;
  hash_.update({buffer_.data(), held_});
  return {};
}

Status Feed::step() {
  if (sent_ == held_) {
    TRY(refill());
    if (held_ == 0) {
      open_ = false;
      return {};
    }
  }
  const ssize_t sent =
      ::send(socket_fd_, buffer_.data() + sent_, held_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    sent_ += static_cast<std::size_t>(sent);
  } else if (errno == EPIPE || errno == ECONNRESET) {
    open_ = false;  // the worker has failed and says so
  } else if (errno != EAGAIN && errno != EINTR) {
    return fail_errno("send to the image worker");
  }
  return {};
}

Result<std::string> Feed::digest() {
  do {
    TRY(refill());
  } while (held_ != 0);
  return hash_.finish();
}

WorkerClient::~WorkerClient() {
  stop();
}

std::uint64_t WorkerClient::end() {
  // A worker that waits for an order ends by itself then, and is counted by the process around it;
  // one that does something else is ended.
  constexpr int kPatience = 1000;  // milliseconds
  if (report_.valid() && shutdown(report_.get(), SHUT_WR) == 0) {
    pollfd hung_up = {report_.get(), POLLIN, 0};
    poll(&hung_up, 1, kPatience);
  }
  stop();
  return child_.peak_memory();
}

void WorkerClient::stop() {
  child_.end();
  // The one that does the work is a child of that process and dies with it, but not at the same
  // instant: it still writes until the last copy of the socket is closed.
  char buffer[kMaxWorkerMessage];
  while (report_.valid() && recv(report_.get(), buffer, sizeof buffer, 0) > 0) {
  }
  report_.reset();
}

Status WorkerClient::start(const std::vector<std::string>& arguments,
                           std::span<const int> descriptors, const IdMapping& ids,
                           std::chrono::milliseconds limit) {
  TRY_ASSIGN(std::string program, helper_binary("caisson-image-worker"));
  TRY_ASSIGN(SocketPair report, make_socket_pair(SOCK_SEQPACKET));
  report_ = std::move(report.ours);
  std::vector<std::string> all = {program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<int> given = {report.theirs.get()};
  given.insert(given.end(), descriptors.begin(), descriptors.end());
  TRY(child_.start(program, all, given));
  report.theirs.reset();
  TRY(expect(kWorkerReady, limit));
  TRY(write_id_maps(child_.pid(), map_lines(ids, false), map_lines(ids, true)));
  return send(kWorkerGo, "");
}

Status WorkerClient::send(char kind, std::string_view text) {
  const std::string message = kind + std::string(text);
  if (::send(report_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) {
    // It has ended; what it said before that tells why.
    if (errno != EPIPE && errno != ECONNRESET) return fail_errno("send to the image worker");
  }
  return {};
}

Result<std::string> WorkerClient::receive(std::chrono::milliseconds limit, Feed* feed,
                                          const std::function<void()>& fed) {
  const Clock::time_point deadline = Clock::now() + limit;
  for (;;) {
    const int feed_fd = feed == nullptr ? -1 : feed->fd();
    std::array<pollfd, 2> polled = {{{report_.get(), POLLIN, 0}, {feed_fd, POLLOUT, 0}}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
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
      return message;
    }
    if (polled[1].revents != 0) {
      TRY(feed->step());
      if (fed) fed();
    }
  }
}

Result<std::string> WorkerClient::expect(char kind, std::chrono::milliseconds limit, Feed* feed,
                                         const std::function<void()>& fed) {
  TRY_ASSIGN(std::string message, receive(limit, feed, fed));
  if (message.empty() || message.front() != kind) return fail(error_of(message));
  return message.substr(1);
}

Error WorkerClient::error_of(std::string_view message) {
  if (message.empty()) {
    const int status = child_.wait();
    return Error::internal("the image worker ended without a word (" +
                           (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "status " + std::to_string(WEXITSTATUS(status))) +
                           ")");
  }
  const std::string text = printable(message.substr(1), kMaxWorkerMessage);
  if (message.front() == kWorkerRefused) return Error::invalid(text);
  if (message.front() == kWorkerFailed) return Error(Code::kFailedPrecondition, text);
  return Error::internal("the image worker said something unexpected: " + printable(message));
}

}  // namespace caisson::image
