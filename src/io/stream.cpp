#include "io/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "io/address.h"
#include "io/pollable.h"
#include "io/sockets.h"

namespace caisson::io {
namespace {

using Held = std::shared_ptr<Pollable>;

constexpr std::chrono::seconds kConnectTime{10};
constexpr std::chrono::milliseconds kFullBacklogPause{5};

Error broken(std::string_view what) {
  const int number = errno;
  return Error::unavailable(std::string(what) + ": " + std::strerror(number));
}

Async<Result<std::size_t>> read_some(Held socket, std::span<char> into, Clock::duration timeout) {
  VERIFY(!into.empty());
  // Before the call: what has come is not lost where this coroutine is cancelled.
  co_await Pollable::take_turn(socket);
  for (;;) {
    if (socket->closed()) co_return fail(closed_error());
    const ssize_t count = ::recv(socket->fd(), into.data(), into.size(), MSG_DONTWAIT);
    if (count >= 0) co_return static_cast<std::size_t>(count);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) co_return fail(broken("the connection broke while reading"));
    CO_TRY(co_await Pollable::wait(socket, Pollable::Direction::kIn, timeout));
  }
}

Async<Status> write_all(Held socket, std::string_view bytes, Clock::duration timeout) {
  while (!bytes.empty()) {
    co_await Pollable::take_turn(socket);
    if (socket->closed()) co_return fail(closed_error());
    const ssize_t count =
        ::send(socket->fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) co_return fail(broken("the connection broke while writing"));
    CO_TRY(co_await Pollable::wait(socket, Pollable::Direction::kOut, timeout));
  }
  co_return Status();
}

// Its coroutines hold the socket themselves, so that they end well when this is destroyed.
class SocketStream final : public Stream {
 public:
  SocketStream(Held socket, std::string peer)
      : socket_(std::move(socket)), peer_(std::move(peer)) {}
  ~SocketStream() override { socket_->close(); }

  Async<Result<std::size_t>> read(std::span<char> into) override {
    return read_some(socket_, into, timeout_);
  }
  Async<Status> wait_readable() override {
    return Pollable::wait(socket_, Pollable::Direction::kIn, timeout_);
  }
  bool quiet() const override {
    if (socket_->closed()) return false;
    pollfd entry{socket_->fd(), POLLIN | POLLRDHUP, 0};
    return TEMP_FAILURE_RETRY(::poll(&entry, 1, 0)) == 0;
  }
  Async<Status> write(std::string_view bytes) override {
    return write_all(socket_, bytes, timeout_);
  }
  Async<void> finish() override {
    if (!socket_->closed()) ::shutdown(socket_->fd(), SHUT_WR);
    co_return;
  }
  void close(Close how) override {
    if (socket_->closed()) return;
    if (how == Close::kReset) {
      const linger now{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket_->fd(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    socket_->close();
  }
  void set_timeout(Clock::duration time) override { timeout_ = time; }
  std::string peer() const override { return peer_; }
  std::string original_destination() const override {
    return socket_->closed() ? std::string() : original_address(socket_->fd()).text();
  }

 private:
  Held socket_;
  std::string peer_;
  Clock::duration timeout_{};
};

Result<Fd> new_socket(int family) {
  Fd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return fail_errno("socket");
  return made;
}

// Until the kernel says how connect(2) ended.
Async<Status> connected(Held socket, SocketAddress address) {
  const Clock::time_point until = Clock::now() + kConnectTime;
  for (;;) {
    if (::connect(socket->fd(), address.get(), address.length) == 0) co_return Status();
    if (errno == EINTR) continue;
    if (errno == EINPROGRESS) break;
    // A unix socket whose backlog is full: there is nothing to wait for but time.
    if (errno != EAGAIN || Clock::now() >= until) co_return fail(broken("connect"));
    co_await Pollable::pause(socket, kFullBacklogPause);
  }
  CO_TRY(co_await Pollable::wait(socket, Pollable::Direction::kOut, kConnectTime));
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket->fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0) co_return Status();
  errno = error;
  co_return fail(broken("connect"));
}

Async<Result<std::unique_ptr<Stream>>> connect_to(Loop& loop, SocketAddress address,
                                                  std::string name) {
  CO_TRY_ASSIGN(Fd made, new_socket(address.family()));
  CO_TRY_ASSIGN(Held socket, Pollable::create(loop, std::move(made)));
  const Status status = co_await connected(socket, address);
  if (!status.has_value()) {
    socket->close();
    co_return fail(Error::unavailable(name + ": " + status.error().message()));
  }
  co_return stream_of(std::move(socket));
}

}  // namespace

std::unique_ptr<Stream> stream_of(Held socket) {
  const SocketAddress peer = peer_address(socket->fd());
  if (peer.family() == AF_INET || peer.family() == AF_INET6) {
    const int yes = 1;
    // Who writes has gathered what belongs together already.
    ::setsockopt(socket->fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    ::setsockopt(socket->fd(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
  }
  return std::make_unique<SocketStream>(std::move(socket), peer.text());
}

Async<Result<std::unique_ptr<Stream>>> connect_unix(Loop& loop, std::string path) {
  SocketAddress address;
  auto& unix_address = reinterpret_cast<sockaddr_un&>(address.storage);
  if (path.empty() || path.size() >= sizeof(unix_address.sun_path))
    co_return fail(Error::invalid("'" + path + "' is no path of a socket: 1 to 107 bytes"));
  unix_address.sun_family = AF_UNIX;
  std::memcpy(unix_address.sun_path, path.c_str(), path.size() + 1);
  address.length = sizeof(unix_address);
  co_return co_await connect_to(loop, address, std::move(path));
}

Async<Result<std::unique_ptr<Stream>>> connect_tcp(Loop& loop, std::string address) {
  CO_TRY_ASSIGN(const SocketAddress parsed, parse_address(address));
  co_return co_await connect_to(loop, parsed, std::move(address));
}

Result<std::unique_ptr<Stream>> adopt(Loop& loop, Fd socket) {
  TRY_ASSIGN(Held held, Pollable::create(loop, std::move(socket)));
  return stream_of(std::move(held));
}

}  // namespace caisson::io
