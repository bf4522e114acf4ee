#include "image/registry/fetcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr const char* kProgram = "caisson-image-fetch";
constexpr std::size_t kBufferSize = 256 << 10;
constexpr int kPipeSize = 1 << 20;
// Of an answer that is no success: enough for its message.
constexpr std::size_t kMaxOtherBody = 64 << 10;
constexpr std::chrono::seconds kStartTime{20};

// The worker's whole environment.
constexpr const char* kVariables[] = {"http_proxy", "https_proxy",   "HTTPS_PROXY",
                                      "all_proxy",  "ALL_PROXY",     "no_proxy",
                                      "NO_PROXY",   "SSL_CERT_FILE", "SSL_CERT_DIR"};

struct Pair {
  Fd ours, theirs;
};

Result<Pair> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return fail_errno("socketpair");
  }
  return Pair{Fd(fds[0]), Fd(fds[1])};
}

// Runs in a forked child of a process that may have threads: system calls only.
[[noreturn]] void become(const char* path, char* const* arguments, char* const* environment,
                         int socket_fd) {
  const int socket = ::fcntl(socket_fd, F_DUPFD_CLOEXEC, 64);
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null_fd, fd);
  ::dup2(socket, kFetchSocketFd);
  ::close_range(kFetchSocketFd + 1, ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(path, arguments, environment);
  ::_exit(127);
}

Status write_at(int fd, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t done =
        TEMP_FAILURE_RETRY(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)));
    if (done < 0) return fail_errno("write a blob");
    offset += static_cast<std::uint64_t>(done);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return {};
}

bool is_good(int status) {
  return status == 200 || status == 206;
}

}  // namespace

Result<Fetcher> Fetcher::start() {
  TRY_ASSIGN(std::string program, helper_binary(kProgram));
  TRY_ASSIGN(Pair pair, socket_pair());
  std::vector<std::string> variables;
  for (const char* name : kVariables) {
    if (const char* value = ::getenv(name); value != nullptr) {
      variables.push_back(std::string(name) + "=" + value);
    }
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  char* const arguments[] = {program.data(), nullptr};
  Fetcher fetcher;
  fetcher.buffer_.resize(kBufferSize);
  fetcher.pid_ = ::fork();
  if (fetcher.pid_ < 0) return fail_errno("fork");
  if (fetcher.pid_ == 0) {
    become(program.c_str(), arguments, environment.data(), pair.theirs.get());
  }
  pair.theirs.reset();
  fetcher.socket_ = std::move(pair.ours);
  pollfd polled = {fetcher.socket_.get(), POLLIN, 0};
  const int wait = static_cast<int>(std::chrono::milliseconds(kStartTime).count());
  if (TEMP_FAILURE_RETRY(::poll(&polled, 1, wait)) <= 0) {
    return fail(Error(Code::kDeadlineExceeded, std::string(kProgram) + " does not start"));
  }
  TRY_ASSIGN(sys::Message hello, sys::recv_message(fetcher.socket_.get(), kMaxFetchMessage));
  if (hello.bytes.empty()) return fail(fetcher.worker_failure());
  TRY_ASSIGN(FetchMessage first, decode_fetch_message(hello.bytes));
  if (!first.result || first.result->id != 0) {
    return fail(Error::internal(std::string(kProgram) + " begins with something unexpected"));
  }
  if (first.result->end != FetchEnd::kDone) {
    return fail(Error::precondition(std::string(kProgram) + ": " + first.result->text));
  }
  return fetcher;
}

Fetcher::Fetcher(Fetcher&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::move(other.socket_)),
      last_id_(other.last_id_),
      slots_(std::move(other.slots_)),
      buffer_(std::move(other.buffer_)) {}

Fetcher::~Fetcher() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
  TEMP_FAILURE_RETRY(::waitpid(pid_, nullptr, 0));
}

Error Fetcher::worker_failure() {
  int status = 0;
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    TEMP_FAILURE_RETRY(::waitpid(pid_, &status, 0));
    pid_ = -1;
  }
  return Error::internal(std::string(kProgram) + " ended without a word (" +
                         (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                              : "status " + std::to_string(WEXITSTATUS(status))) +
                         ")");
}

Result<std::uint32_t> Fetcher::begin(FetchRequest request, const FetchSink& sink) {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
  Fd reader(fds[0]), writer(fds[1]);
  // Fewer handovers; a smaller pipe does as well.
  if (::fcntl(reader.get(), F_SETPIPE_SZ, kPipeSize) < 0) errno = 0;
  if (::fcntl(reader.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl");
  request.id = ++last_id_;
  // Whatever comes as another answer's text has room too.
  request.limit = std::max<std::uint64_t>(sink.limit, kMaxOtherBody);
  const std::string message = request.encode();
  if (message.size() > kMaxFetchMessage) {
    return fail(Error::invalid("a request's URL and headers are longer than allowed"));
  }
  const int passed[] = {writer.get()};
  TRY(sys::send_message(socket_.get(), message, passed));
  slots_[request.id] = {.sink = sink, .pipe = std::move(reader), .outcome = {}};
  return request.id;
}

Status Fetcher::take_messages() {
  for (;;) {
    pollfd polled = {socket_.get(), POLLIN, 0};
    if (TEMP_FAILURE_RETRY(::poll(&polled, 1, 0)) <= 0) return {};
    TRY_ASSIGN(sys::Message message, sys::recv_message(socket_.get(), kMaxFetchMessage));
    if (message.bytes.empty()) return fail(worker_failure());
    TRY_ASSIGN(FetchMessage decoded, decode_fetch_message(message.bytes));
    const std::uint32_t id = decoded.head ? decoded.head->id : decoded.result->id;
    if (id == 0 && decoded.result) {
      return fail(Error::internal(std::string(kProgram) + ": " + decoded.result->text));
    }
    const auto found = slots_.find(id);
    if (found == slots_.end()) continue;  // abandoned
    Slot& slot = found->second;
    if (decoded.head && slot.outcome.head.status == 0 && !slot.ended) {
      slot.outcome.head = std::move(*decoded.head);
    } else if (decoded.result && !slot.ended) {
      slot.outcome.result = std::move(*decoded.result);
      slot.ended = true;
    } else if (!slot.cut) {
      return fail(Error::internal(std::string(kProgram) + " repeats itself"));
    }
  }
}

Status Fetcher::take_bytes(Slot& slot) {
  FetchOutcome& outcome = slot.outcome;
  const ssize_t got = TEMP_FAILURE_RETRY(::read(slot.pipe.get(), buffer_.data(), buffer_.size()));
  if (got < 0) {
    if (errno == EAGAIN) return {};
    return fail_errno("read from the fetcher");
  }
  if (got == 0) {
    slot.pipe.reset();
    return {};
  }
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(got));
  const auto too_large = [&] {
    outcome.result = {.id = outcome.result.id,
                      .end = FetchEnd::kTooLarge,
                      .text = "more bytes than were to come"};
    slot.ended = slot.cut = true;
    slot.pipe.reset();
  };
  if (!is_good(outcome.head.status)) {
    if (outcome.body.size() < kMaxOtherBody) {
      outcome.body += bytes.substr(0, kMaxOtherBody - outcome.body.size());
    }
    return {};
  }
  if (slot.sink.file_fd < 0) {
    if (outcome.body.size() + bytes.size() > slot.sink.limit) {
      too_large();
      return {};
    }
    outcome.body += bytes;
    outcome.received += bytes.size();
    return {};
  }
  const std::uint64_t start = outcome.head.status == 206 ? slot.sink.offset : 0;
  const std::uint64_t at = start + outcome.received;
  if (at + bytes.size() > slot.sink.limit) {
    too_large();
    return {};
  }
  TRY(write_at(slot.sink.file_fd, bytes, at));
  outcome.received += bytes.size();
  outcome.file_size = at + bytes.size();
  return {};
}

Status Fetcher::pump(std::chrono::milliseconds wait) {
  std::vector<pollfd> polled = {{socket_.get(), POLLIN, 0}};
  std::vector<std::uint32_t> ids = {0};
  for (const auto& [id, slot] : slots_) {
    // Bytes are for the answer that they belong to, so its head comes first.
    if (!slot.pipe.valid() || (slot.outcome.head.status == 0 && !slot.ended)) continue;
    polled.push_back({slot.pipe.get(), POLLIN, 0});
    ids.push_back(id);
  }
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  if (ready < 0 && errno != EINTR) return fail_errno("poll");
  if (ready <= 0) return {};
  if (polled[0].revents != 0) TRY(take_messages());
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    if (auto slot = slots_.find(ids[i]); slot != slots_.end()) TRY(take_bytes(slot->second));
  }
  return {};
}

bool Fetcher::is_done(std::uint32_t id) const {
  const auto slot = slots_.find(id);
  return slot != slots_.end() && slot->second.ended && !slot->second.pipe.valid();
}

FetchOutcome Fetcher::take(std::uint32_t id) {
  auto node = slots_.extract(id);
  VERIFY(!node.empty());
  return std::move(node.mapped().outcome);
}

std::uint64_t Fetcher::received(std::uint32_t id) const {
  const auto slot = slots_.find(id);
  return slot == slots_.end() ? 0 : slot->second.outcome.received;
}

void Fetcher::abandon(std::uint32_t id) {
  const auto slot = slots_.find(id);
  if (slot == slots_.end()) return;
  const bool running = !slot->second.ended;
  slots_.erase(slot);
  // If the worker is gone, the next pump says so.
  if (running && !sys::send_message(socket_.get(), encode_cancel(id), {}).has_value()) errno = 0;
}

}  // namespace caisson::image
