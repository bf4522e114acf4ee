#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

#include "io/address.h"
#include "io/pollable.h"
#include "io/sockets.h"
#include "io/stream.h"

namespace caisson::io {
namespace {

using Held = std::shared_ptr<Pollable>;

constexpr std::chrono::milliseconds kPause{100};
constexpr int kBacklog = 4096;

Async<Result<std::unique_ptr<Stream>>> accept_on(Held listening, Loop& loop) {
  co_await Pollable::take_turn(listening);
  for (;;) {
    if (listening->closed()) co_return fail(closed_error());
    Fd accepted(::accept4(listening->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.valid()) {
      auto held = Pollable::create(loop, std::move(accepted));
      if (held.has_value()) co_return stream_of(std::move(*held));
      co_await Pollable::pause(listening, kPause);
      continue;
    }
    if (errno == EAGAIN) {
      CO_TRY(co_await Pollable::wait(listening, Pollable::Direction::kIn, {}));
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // No descriptors, no memory, or no network: it may pass.
      co_await Pollable::pause(listening, kPause);
    }
  }
}

class SocketListener final : public Listener {
 public:
  SocketListener(Loop& loop, Held socket)
      : loop_(loop), socket_(std::move(socket)), address_(own_address(socket_->fd())) {}
  ~SocketListener() override { socket_->close(); }

  Async<Result<std::unique_ptr<Stream>>> accept() override { return accept_on(socket_, loop_); }
  void close() override { socket_->close(); }
  std::string address() const override { return address_.text(); }
  unsigned short port() const override { return address_.port(); }

 private:
  Loop& loop_;
  Held socket_;
  SocketAddress address_;
};

}  // namespace

Result<std::unique_ptr<Listener>> adopt_listener(Loop& loop, Fd socket) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return fail_errno("fcntl O_NONBLOCK");
  TRY_ASSIGN(Held held, Pollable::create(loop, std::move(socket)));
  return std::make_unique<SocketListener>(loop, std::move(held));
}

Result<Fd> bind_tcp(const std::string& address) {
  TRY_ASSIGN(const SocketAddress parsed, parse_address(address));
  Fd socket(::socket(parsed.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("socket");
  const int yes = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
    return fail_errno("setsockopt SO_REUSEADDR");
  if (::bind(socket.get(), parsed.get(), parsed.length) != 0) return fail_errno("bind " + address);
  if (::listen(socket.get(), kBacklog) != 0) return fail_errno("listen " + address);
  return socket;
}

Result<std::unique_ptr<Listener>> listen_tcp(Loop& loop, const std::string& address) {
  TRY_ASSIGN(Fd socket, bind_tcp(address));
  return adopt_listener(loop, std::move(socket));
}

}  // namespace caisson::io
