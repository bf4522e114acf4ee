#include "egress/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "egress/socket_address.h"

namespace caisson::egress {
namespace {

// For a client to read an answer before its connection is closed.
constexpr std::chrono::milliseconds kLinger = std::chrono::seconds(2);
// One address that does not answer must not use up the time of the others.
constexpr int kConnectShares = 4;
constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";

bool would_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// What of poll(2) says that reading will not wait.
bool readable(short events) {
  return (events & (POLLIN | POLLHUP | POLLERR)) != 0;
}

void set_no_delay(int fd) {
  const int one = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

}  // namespace

void RelayBuffer::add(std::string_view more) {
  // A receiver that is always a little behind never empties it.
  bytes.erase(0, sent);
  sent = 0;
  bytes.append(more);
}

Connection::Connection(Fd client, const ProxyLimits& limits)
    : limits_(limits), client_(std::move(client)) {
  set_no_delay(client_.get());
  touch();
}

std::optional<Answer> Connection::take_malformed() {
  return std::exchange(malformed_, std::nullopt);
}

pollfd Connection::client_entry() const {
  short events = 0;
  const bool reads = phase_ == Phase::kHead || phase_ == Phase::kLinger ||
                     (phase_ == Phase::kRelay && !client_ended_ && to_server_.room() != 0);
  if (reads) events |= POLLIN;
  if (!to_client_.empty()) events |= POLLOUT;
  return {client_.get(), events, 0};
}

pollfd Connection::server_entry() const {
  short events = 0;
  if (phase_ == Phase::kConnect) events |= POLLOUT;
  if (phase_ == Phase::kRelay) {
    if (!server_ended_ && to_client_.room() != 0) events |= POLLIN;
    if (!to_server_.empty()) events |= POLLOUT;
  }
  // A server that has ended would be told of again and again.
  return {events == 0 ? -1 : server_.get(), events, 0};
}

void Connection::progress(short client_events, short server_events, Report& report) {
  // A client that is gone for good needs no answer; where its bytes are read that shows by itself.
  const bool reads = (client_entry().events & POLLIN) != 0;
  if (!reads && (client_events & (POLLERR | POLLHUP)) != 0) return end();
  switch (phase_) {
    case Phase::kHead:
      if (readable(client_events)) read_head();
      return;
    case Phase::kDecide:
      return;
    case Phase::kConnect:
      if (server_events != 0) connected();
      return;
    case Phase::kRelay:
      return relay(client_events, server_events, report);
    case Phase::kAnswer:
      return answer(client_events);
    case Phase::kLinger:
      if (readable(client_events)) linger();
      return;
  }
}

void Connection::time_out() {
  switch (phase_) {
    case Phase::kDecide:
      return refuse({504, "the name of " + target().host.name + " was not resolved in time"});
    case Phase::kConnect:
      return try_next();
    case Phase::kHead:
    case Phase::kRelay:
    case Phase::kAnswer:
    case Phase::kLinger:
      return end();
  }
}

void Connection::read_head() {
  std::array<char, kMostHead> room;
  const ssize_t got =
      ::recv(client_.get(), room.data(), std::min(room.size(), kMostHead - head_bytes_.size()), 0);
  if (got < 0 && would_wait(errno)) return;
  if (got <= 0) return end();
  head_bytes_.append(room.data(), static_cast<std::size_t>(got));
  ParsedHead parsed = parse_request_head(head_bytes_);
  if (parsed.refusal) {
    malformed_ = parsed.refusal;
    return refuse(*parsed.refusal);
  }
  if (!parsed.head) return;
  head_ = std::move(parsed.head);
  head_bytes_.erase(0, parsed.used);
  phase_ = Phase::kDecide;
  need_ = Need::kDecision;
  connect_by_ = deadline_ = Clock::now() + limits_.connect;
}

void Connection::wait_for_addresses() {
  need_ = Need::kNothing;
}

void Connection::connect(std::vector<policy::IpAddress> addresses) {
  if (phase_ != Phase::kDecide) return;
  need_ = Need::kNothing;
  addresses_ = std::move(addresses);
  phase_ = Phase::kConnect;
  try_next();
}

void Connection::try_next() {
  const auto now = Clock::now();
  while (next_address_ < addresses_.size() && now < connect_by_) {
    const policy::IpAddress& address = addresses_[next_address_++];
    const SocketAddress to = socket_address(address, target().port);
    server_ = Fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!server_.valid()) continue;
    if (::connect(server_.get(), to.get(), to.size) != 0 && errno != EINPROGRESS) continue;
    deadline_ = next_address_ == addresses_.size()
                    ? connect_by_
                    : std::min(connect_by_, now + limits_.connect / kConnectShares);
    return;
  }
  server_.reset();
  if (now >= connect_by_) return refuse({504, target().host.name + " did not answer in time"});
  refuse(
      {502, "no connection to " + target().host.name + " port " + std::to_string(target().port)});
}

void Connection::connected() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(server_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
    return try_next();
  set_no_delay(server_.get());
  phase_ = Phase::kRelay;
  touch();
  if (head_->tunnel) {
    to_client_.add(kEstablished);
  } else {
    to_server_.add(head_->forward);
    framer_.emplace(*head_);
  }
  take_body(std::exchange(head_bytes_, {}));
}

// From the client, for the server.
void Connection::take_body(std::string_view bytes) {
  if (!framer_) return to_server_.add(bytes);
  const auto used = framer_->take(bytes);
  if (!used) return end();
  to_server_.add(bytes.substr(0, *used));
  // What comes behind the body was never asked for by anybody whom we know.
  if (framer_->whole()) client_ended_ = true;
}

Connection::Moved Connection::send_from(RelayBuffer& buffer, int fd, std::uint64_t& count) {
  if (buffer.empty()) return Moved::kNone;
  const ssize_t sent = ::send(fd, buffer.bytes.data() + buffer.sent,
                              buffer.bytes.size() - buffer.sent, MSG_NOSIGNAL);
  if (sent < 0) return would_wait(errno) ? Moved::kNone : Moved::kBroken;
  buffer.sent += static_cast<std::size_t>(sent);
  count += static_cast<std::uint64_t>(sent);
  return Moved::kSome;
}

Connection::Moved Connection::read_client() {
  std::array<char, RelayBuffer::kMost> room;
  const ssize_t got = ::recv(client_.get(), room.data(), to_server_.room(), 0);
  if (got < 0) return would_wait(errno) ? Moved::kNone : Moved::kBroken;
  if (got == 0) return Moved::kEnd;
  take_body({room.data(), static_cast<std::size_t>(got)});
  return Moved::kSome;
}

void Connection::relay(short client_events, short server_events, Report& report) {
  if (readable(client_events) && !client_ended_ && to_server_.room() != 0) {
    const Moved moved = read_client();
    if (moved == Moved::kBroken || need_ == Need::kEnd) return end();
    // A body that breaks off must not look whole to the server.
    if (moved == Moved::kEnd && framer_) return end();
    if (moved == Moved::kEnd) client_ended_ = true;
    if (moved == Moved::kSome) touch();
  }
  if (readable(server_events) && !server_ended_ && to_client_.room() != 0) {
    std::array<char, RelayBuffer::kMost> room;
    const ssize_t got = ::recv(server_.get(), room.data(), to_client_.room(), 0);
    if (got < 0 && !would_wait(errno)) {
      // What it said before still reaches the client, where nothing else is to be told.
      server_ended_ = true;
      client_ended_ = true;
      to_server_ = {};
    } else if (got == 0) {
      server_ended_ = true;
    } else if (got > 0) {
      to_client_.add({room.data(), static_cast<std::size_t>(got)});
      touch();
    }
  }
  Moved moved = send_from(to_server_, server_.get(), report.bytes_out);
  if (moved == Moved::kSome) touch();
  if (moved == Moved::kBroken) {
    // The server wants no more, but may have answered.
    to_server_ = {};
    client_ended_ = true;
  }
  moved = send_from(to_client_, client_.get(), report.bytes_in);
  if (moved == Moved::kSome) touch();
  if (moved == Moved::kBroken) return end();

  // A server takes the end of a plain request's connection for the client's having gone.
  if (!framer_ && client_ended_ && to_server_.empty() && !std::exchange(told_server_, true))
    (void)::shutdown(server_.get(), SHUT_WR);
  if (!server_ended_ || !to_client_.empty()) return;
  if (framer_ || (client_ended_ && to_server_.empty())) {
    // The client may still be sending; closed under it, its last bytes would be lost.
    if (client_ended_ && !framer_) return end();
    (void)::shutdown(client_.get(), SHUT_WR);
    phase_ = Phase::kLinger;
    server_.reset();
    deadline_ = Clock::now() + kLinger;
    return;
  }
  if (!std::exchange(told_client_, true)) (void)::shutdown(client_.get(), SHUT_WR);
}

void Connection::refuse(const Answer& answer) {
  need_ = Need::kNothing;
  server_.reset();
  to_client_ = {};
  to_client_.add(response(answer));
  phase_ = Phase::kAnswer;
  deadline_ = Clock::now() + kLinger;
}

void Connection::answer(short client_events) {
  if ((client_events & (POLLERR | POLLHUP)) != 0) return end();
  std::uint64_t uncounted = 0;
  if (send_from(to_client_, client_.get(), uncounted) == Moved::kBroken) return end();
  if (!to_client_.empty()) return;
  (void)::shutdown(client_.get(), SHUT_WR);
  phase_ = Phase::kLinger;
  deadline_ = Clock::now() + kLinger;
}

// Closed with unread bytes, a connection would be reset and the answer lost.
void Connection::linger() {
  std::array<char, RelayBuffer::kMost> room;
  const ssize_t got = ::recv(client_.get(), room.data(), room.size(), 0);
  if (got > 0 || (got < 0 && would_wait(errno))) return;
  end();
}

}  // namespace caisson::egress
