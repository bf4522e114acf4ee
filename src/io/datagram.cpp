#include "io/datagram.h"

#include <sys/socket.h>

#include <cerrno>

#include "io/address.h"
#include "io/pollable.h"

namespace caisson::io {
namespace {

constexpr std::chrono::milliseconds kPause{100};

Async<Result<DatagramSocket::Datagram>> receive_on(std::shared_ptr<Pollable> socket,
                                                   std::size_t most) {
  DatagramSocket::Datagram datagram;
  for (;;) {
    co_await Pollable::take_turn(socket);
    if (socket->closed()) co_return fail(closed_error());
    auto from = std::make_shared<SocketAddress>();
    from->length = sizeof(from->storage);
    datagram.bytes.resize(most);
    // With MSG_TRUNC the datagram's own length comes back.
    const ssize_t count =
        ::recvfrom(socket->fd(), datagram.bytes.data(), most, MSG_DONTWAIT | MSG_TRUNC,
                   reinterpret_cast<sockaddr*>(&from->storage), &from->length);
    if (count >= 0 && static_cast<std::size_t>(count) > most) continue;
    if (count >= 0) {
      datagram.bytes.resize(static_cast<std::size_t>(count));
      datagram.from = std::move(from);
      co_return datagram;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      datagram.bytes = {};
      CO_TRY(co_await Pollable::wait(socket, Pollable::Direction::kIn, {}));
      continue;
    }
    // What an earlier answer met on its way comes once; anything else may pass.
    if (errno != ECONNREFUSED && errno != EHOSTUNREACH && errno != ENETUNREACH)
      co_await Pollable::pause(socket, kPause);
  }
}

}  // namespace

Result<std::unique_ptr<DatagramSocket>> DatagramSocket::adopt(Loop& loop, Fd socket) {
  TRY_ASSIGN(std::shared_ptr<Pollable> held, Pollable::create(loop, std::move(socket)));
  return std::make_unique<DatagramSocket>(std::move(held));
}

DatagramSocket::DatagramSocket(std::shared_ptr<Pollable> socket) : socket_(std::move(socket)) {}

DatagramSocket::~DatagramSocket() {
  socket_->close();
}

Async<Result<DatagramSocket::Datagram>> DatagramSocket::receive(std::size_t most) {
  return receive_on(socket_, most);
}

void DatagramSocket::send(std::string_view bytes, const SocketAddress& to) {
  if (socket_->closed()) return;
  (void)!::sendto(socket_->fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, to.get(),
                  to.length);
}

void DatagramSocket::close() {
  socket_->close();
}

}  // namespace caisson::io
