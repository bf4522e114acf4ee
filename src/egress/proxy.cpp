#include "egress/proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "egress/confine.h"
#include "egress/proxy_loop.h"
#include "egress/report.h"
#include "egress/resolver.h"

namespace caisson::egress {
namespace {

constexpr const char* kAddress = "http://127.0.0.1:3128";
// First byte of what the process says.
constexpr char kReady = 'R';
constexpr char kFailed = 'F';
constexpr char kDone = 'D';
constexpr int kPatienceMs = 10'000;
constexpr std::size_t kDescriptors = 256;
// 64 connections with two full buffers, which a growing string may double, are 16 MiB.
constexpr std::size_t kMostMemory = 128 * 1024 * 1024;

[[noreturn]] void be_proxy(Fd listener, Fd control, int parent, const AllowList& allowed,
                           const ProxyLimits& limits) {
  const auto tell = [&](char kind, const std::string& text) {
    (void)sys::send_message(control.get(), kind + text, {});
  };
  // The resolver reads files of the host that are closed to us afterwards.
  auto resolver = Resolver::create();
  const Confinement how{.name = "caisson-egress",
                        .parent = parent,
                        .keep = {listener.get(), control.get()},
                        .descriptors = kDescriptors,
                        .memory = kMostMemory};
  auto ready = resolver ? confine(how) : Status(fail(std::move(resolver).error()));
  if (!ready) {
    tell(kFailed, ready.error().message());
    ::_exit(1);
  }
  tell(kReady, "");
  const Report report = run_proxy(listener, control, allowed, limits, std::move(*resolver));
  tell(kDone, encode_report(report));
  ::_exit(0);
}

// The next message of that kind; empty where it does not come.
std::string receive(int control_fd) {
  pollfd entry{control_fd, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&entry, 1, kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return "";
  auto message = sys::recv_message(control_fd, kMostReport + 1);
  return message ? std::move(message->bytes) : "";
}

}  // namespace

Result<EgressProxy> EgressProxy::start(Fd listener, AllowList allowed, ProxyLimits limits) {
  const int flags = ::fcntl(listener.get(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_errno("the egress proxy's listener");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  Fd here(ends[0]);
  Fd there(ends[1]);
  const int parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork of the egress proxy");
  if (pid == 0) {
    here.reset();
    be_proxy(std::move(listener), std::move(there), parent, allowed, limits);
  }
  there.reset();
  EgressProxy proxy(std::move(here), pid);
  const std::string word = receive(proxy.control_.get());
  if (word.empty()) return fail(Error::internal("the egress proxy did not start"));
  if (word[0] != kReady)
    return fail(Error::precondition("the egress proxy cannot start: " + word.substr(1)));
  return proxy;
}

EgressProxy::EgressProxy(EgressProxy&& other) noexcept
    : control_(std::move(other.control_)), pid_(std::exchange(other.pid_, -1)) {}

EgressProxy& EgressProxy::operator=(EgressProxy&& other) noexcept {
  if (this == &other) return *this;
  end();
  control_ = std::move(other.control_);
  pid_ = std::exchange(other.pid_, -1);
  return *this;
}

EgressProxy::~EgressProxy() {
  end();
}

void EgressProxy::end() {
  control_.reset();
  if (pid_ <= 0) return;
  (void)::kill(pid_, SIGKILL);  // not reaped yet, so the number is still its own
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Report EgressProxy::stop() {
  Report report;
  if (pid_ > 0 && ::shutdown(control_.get(), SHUT_WR) == 0) {
    const std::string word = receive(control_.get());
    if (!word.empty() && word[0] == kDone) {
      if (auto told = decode_report(std::string_view(word).substr(1))) report = std::move(*told);
    }
  }
  end();
  return report;
}

std::vector<std::string> EgressProxy::environment(const AllowList& allowed) {
  std::vector<std::string> variables;
  for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"})
    variables.push_back(std::string(name) + "=" + kAddress);
  if (!allowed.names_loopback()) variables.push_back("no_proxy=localhost,127.0.0.1,::1");
  return variables;
}

}  // namespace caisson::egress
