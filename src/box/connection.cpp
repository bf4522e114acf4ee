#include "box/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/sys.h"

namespace caisson::box {
namespace {

constexpr std::size_t kReadSize = 64 * 1024;
constexpr std::uint64_t kMostCredit = 1ull << 32;
// More than a sandbox sends at once is closed.
constexpr std::size_t kMostDescriptors = 4;

Error broken(std::string_view what) {
  return Error(Code::kDataLoss, "the sandbox broke the protocol: " + std::string(what));
}

}  // namespace

Connection::Connection(Fd socket) : socket_(std::move(socket)) {
  send(0, proto::FrameType::kHello, 0, proto::hello_payload());
}

std::uint32_t Connection::new_stream() {
  const std::uint32_t stream = next_stream_;
  next_stream_ += 2;
  return stream;
}

void Connection::send(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                      std::string_view payload) {
  if (sent_ > 0 && sent_ >= out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  out_ += proto::encode_frame(stream, type, detail, payload);
}

Status Connection::write_some() {
  while (wants_write()) {
    const ssize_t count = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      if (errno == EPIPE || errno == ECONNRESET) {
        // The peer has gone; what it sent before may still be read, and says why.
        sent_ = out_.size();
        return {};
      }
      return fail_errno("send to the sandbox");
    }
    sent_ += static_cast<std::size_t>(count);
  }
  return {};
}

Status Connection::read_some() {
  char buffer[kReadSize];
  for (;;) {
    sys::ReceivedPart part = sys::receive_part(socket_.get(), buffer, MSG_DONTWAIT);
    for (Fd& fd : part.descriptors) {
      if (received_.size() < kMostDescriptors) received_.push_back(std::move(fd));
    }
    if (part.count > 0) {
      decoder_.feed({buffer, static_cast<std::size_t>(part.count)});
      return {};
    }
    if (part.count == 0 || errno == ECONNRESET) {
      ended_ = true;
      return {};
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return {};
    return fail_errno("receive from the sandbox");
  }
}

Status Connection::progress(short revents) {
  if (wants_write() && (revents & (POLLOUT | POLLERR | POLLHUP)) != 0) TRY(write_some());
  if ((revents & (POLLIN | POLLERR | POLLHUP)) != 0) TRY(read_some());
  return {};
}

Result<std::optional<proto::Frame>> Connection::next() {
  for (;;) {
    TRY_ASSIGN(std::optional<proto::Frame> frame, decoder_.next());
    if (!frame.has_value()) {
      if (ended_)
        return fail(
            Error::unavailable("the sandbox has gone: its supervisor closed the connection"));
      return std::nullopt;
    }
    const bool hello = frame->header.type == proto::FrameType::kHello;
    if (hello != !greeted_ || (hello && frame->header.stream != 0))
      return fail(broken("a connection begins with one HELLO"));
    if (!hello) return frame;
    TRY(proto::check_hello(frame->payload));
    greeted_ = true;
  }
}

Fd Connection::take_descriptor() {
  if (received_.empty()) return {};
  Fd fd = std::move(received_.front());
  received_.pop_front();
  return fd;
}

Result<proto::Frame> Connection::wait(int silence_ms) {
  for (;;) {
    TRY_ASSIGN(std::optional<proto::Frame> frame, next());
    if (frame.has_value()) return std::move(*frame);
    pollfd entry = {.fd = fd(), .events = events(), .revents = 0};
    const int ready = ::poll(&entry, 1, silence_ms);
    if (ready < 0 && errno != EINTR) return fail_errno("poll");
    if (ready == 0)
      return fail(Error(Code::kDeadlineExceeded,
                        "the sandbox has not answered for " + std::to_string(silence_ms) + " ms"));
    TRY(progress(entry.revents));
  }
}

Status Connection::flush(std::size_t most) {
  TRY(write_some());
  while (queued() > most) {
    pollfd entry = {.fd = fd(), .events = events(), .revents = 0};
    if (::poll(&entry, 1, -1) < 0 && errno != EINTR) return fail_errno("poll");
    TRY(progress(entry.revents));
    if (ended_) return {};
  }
  return {};
}

void Connection::finish() {
  ::shutdown(socket_.get(), SHUT_WR);
}

Status Credit::granted(std::string_view payload) {
  if (payload.size() != 4) return fail(broken("a CREDIT frame has four bytes"));
  std::uint32_t bytes = 0;
  for (std::size_t i = 0; i < 4; ++i)
    bytes |= static_cast<std::uint32_t>(static_cast<unsigned char>(payload[i])) << (8 * i);
  may_send_ += bytes;
  if (may_send_ > kMostCredit) return fail(broken("credit beyond any use"));
  return {};
}

Status Credit::received(std::uint8_t channel, std::size_t bytes) {
  if (channel != static_cast<std::uint8_t>(proto::Channel::kOut) &&
      channel != static_cast<std::uint8_t>(proto::Channel::kErr))
    return fail(broken("data on a channel that does not exist"));
  if (bytes > granted_[channel]) return fail(broken("more data than was granted"));
  granted_[channel] -= bytes;
  return {};
}

std::uint32_t Credit::consumed(std::uint8_t channel, std::size_t bytes) {
  owed_[channel] += bytes;
  if (owed_[channel] < proto::kInitialCredit / 4) return 0;
  const auto grant = static_cast<std::uint32_t>(owed_[channel]);
  granted_[channel] += owed_[channel];
  owed_[channel] = 0;
  return grant;
}

std::string credit_payload(std::uint32_t bytes) {
  std::string payload;
  for (unsigned i = 0; i < 4; ++i) payload += static_cast<char>(bytes >> (8 * i));
  return payload;
}

}  // namespace caisson::box
