#include "guest/dial.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace caisson::guest {
namespace {

using proto::FrameType;
using proto::Tag;

constexpr std::uint32_t kCreditPortion = proto::kInitialCredit / 4;
constexpr auto kInput = static_cast<std::uint8_t>(proto::Channel::kIn);
constexpr auto kOutput = static_cast<std::uint8_t>(proto::Channel::kOut);
constexpr std::string_view kLoopback4 = "127.0.0.1";
constexpr std::string_view kLoopback6 = "::1";

// The address in the kernel's form, and its size.
socklen_t fill_address(const std::string& address, std::uint16_t port, sockaddr_storage& out) {
  if (address == kLoopback4) {
    auto& in = reinterpret_cast<sockaddr_in&>(out);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof(in);
  }
  if (address == kLoopback6) {
    auto& in = reinterpret_cast<sockaddr_in6&>(out);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    in.sin6_addr = in6addr_loopback;
    return sizeof(in);
  }
  auto& local = reinterpret_cast<sockaddr_un&>(out);
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path, address.data(), address.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + 1);
}

std::string connect_to(const std::string& address, std::uint16_t port) {
  return "connect to " + (port == 0 ? address : "port " + std::to_string(port) + " of " + address);
}

}  // namespace

Result<std::vector<DialStream::Target>> DialStream::targets_of(const proto::FieldReader& fields) {
  const bool has_path = fields.has(Tag::kPath);
  if (has_path == fields.has(Tag::kPort))
    return fail(Error::invalid("dial: either a port or a path is needed"));
  if (has_path) {
    TRY_ASSIGN(const std::string_view path, fields.text(Tag::kPath));
    if (!path.starts_with('/') || path.size() >= sizeof(sockaddr_un::sun_path) ||
        path.find('\0') != std::string_view::npos)
      return fail(
          Error::invalid("dial: the path of a unix socket is absolute, shorter than 108 "
                         "bytes and has no zero byte"));
    return std::vector<Target>{{std::string(path), 0}};
  }
  TRY_ASSIGN(const std::uint64_t port, fields.number(Tag::kPort));
  if (port < 1 || port > 65535)
    return fail(Error::invalid("dial: port " + std::to_string(port) + ", allowed are 1 to 65535"));
  const auto number = static_cast<std::uint16_t>(port);
  if (!fields.has(Tag::kAddress))
    return std::vector<Target>{{std::string(kLoopback4), number},
                               {std::string(kLoopback6), number}};
  TRY_ASSIGN(const std::string_view address, fields.text(Tag::kAddress));
  if (address != kLoopback4 && address != kLoopback6)
    return fail(Error::invalid("dial: allowed addresses are 127.0.0.1 and ::1"));
  return std::vector<Target>{{std::string(address), number}};
}

Result<std::unique_ptr<DialStream>> DialStream::open(std::uint32_t id,
                                                     const proto::FieldReader& fields) {
  std::unique_ptr<DialStream> stream(new DialStream(id));
  TRY_ASSIGN(stream->targets_, targets_of(fields));
  TRY(stream->connect_next());
  return stream;
}

Status DialStream::connect_next() {
  Error last = Error::internal("dial: no address");
  while (target_ < targets_.size()) {
    const Target& target = targets_[target_++];
    sockaddr_storage address{};
    const socklen_t size = fill_address(target.address, target.port, address);
    socket_ = Fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.valid()) {
      if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 ||
          errno == EINPROGRESS) {
        connecting_ = true;
        return {};
      }
    }
    last = Error::syscall(connect_to(target.address, target.port), errno);
  }
  socket_.reset();
  return fail(std::move(last));
}

void DialStream::connected(Channel& channel) {
  int error_number = 0;
  socklen_t size = sizeof(error_number);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &size) != 0)
    error_number = errno;
  const Target& target = targets_[target_ - 1];
  if (error_number != 0) {
    Status next = connect_next();
    if (!next) {
      if (target_ >= targets_.size())
        next = fail(Error::syscall(connect_to(target.address, target.port), error_number));
      close(channel, next);
    }
    return;
  }
  connecting_ = false;
  const int on = 1;
  if (target.port != 0) ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  proto::Fields fields;
  fields.put(Tag::kAddress, target.address);
  channel.send(proto::encode_frame(id_, FrameType::kEvent, 0, fields.bytes()));
  write_input(channel);
}

void DialStream::prepare(Poller& poller) {
  short events = 0;
  if (connecting_ || input_offset_ < input_.size()) events |= POLLOUT;
  if (!connecting_ && !output_finished_ && output_credit_ > 0) events |= POLLIN;
  index_ = events != 0 ? poller.add(socket_.get(), events) : Poller::kNone;
}

void DialStream::service(const Poller& poller, Channel& channel) {
  const short ready = poller.ready(index_);
  if (ready == 0 || closed_) return;
  if (connecting_) {
    connected(channel);
    return;
  }
  if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) readable_ = true;
  if ((ready & (POLLOUT | POLLERR)) != 0) write_input(channel);
}

bool DialStream::produce(Channel& channel) {
  if (closed_ || connecting_ || !readable_ || output_finished_ || output_credit_ == 0) return false;
  char* const room = channel.data_room();
  if (room == nullptr) return false;
  const std::size_t wanted = std::min<std::size_t>(Channel::kDataChunk, output_credit_);
  const ssize_t count = ::recv(socket_.get(), room, wanted, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    readable_ = false;
    return false;
  }
  if (count < 0) {
    close(channel, fail_errno("dial: read"));
    return false;
  }
  if (count == 0) {
    output_finished_ = true;
    channel.commit(id_, FrameType::kFinish, kOutput, 0);
    if (input_shut_) close(channel, {});
    return true;
  }
  channel.commit(id_, FrameType::kData, kOutput, static_cast<std::size_t>(count));
  output_credit_ -= static_cast<std::size_t>(count);
  return true;
}

Status DialStream::take(const proto::Frame& frame, Channel& channel) {
  switch (frame.header.type) {
    case FrameType::kData:
      if (frame.header.detail != kInput)
        return fail(Error::invalid("dial: data for an output channel"));
      if (input_finished_) return fail(Error::invalid("dial: data after the input was finished"));
      if (frame.payload.size() > input_credit_)
        return fail(Error::invalid("dial: " + std::to_string(frame.payload.size()) +
                                   " bytes of input, the credit is " +
                                   std::to_string(input_credit_)));
      input_credit_ -= frame.payload.size();
      if (input_shut_) return {};
      input_.erase(0, input_offset_);
      input_offset_ = 0;
      input_.append(frame.payload);
      write_input(channel);
      return {};
    case FrameType::kFinish:
      if (frame.header.detail != kInput)
        return fail(Error::invalid("dial: only the input can be finished"));
      input_finished_ = true;
      write_input(channel);
      return {};
    case FrameType::kCredit: {
      TRY_ASSIGN(const std::uint32_t bytes, proto::parse_credit(frame.payload));
      if (frame.header.detail != kOutput)
        return fail(Error::invalid("dial: credit for a channel that this side does not send"));
      output_credit_ += bytes;
      return {};
    }
    case FrameType::kClose:
      close(channel, fail(Error(Code::kCancelled, "cancelled by the peer")));
      return {};
    default:
      return fail(Error::invalid("dial: a frame of type " +
                                 std::to_string(static_cast<int>(frame.header.type)) +
                                 " does not belong on this stream"));
  }
}

void DialStream::write_input(Channel& channel) {
  if (connecting_ || closed_) return;
  while (input_offset_ < input_.size()) {
    const ssize_t count = ::send(socket_.get(), input_.data() + input_offset_,
                                 input_.size() - input_offset_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (count < 0) {
      // The far end takes no more; what it has still to say is passed on.
      input_.clear();
      input_offset_ = 0;
      input_shut_ = true;
      if (output_finished_) close(channel, {});
      return;
    }
    input_offset_ += static_cast<std::size_t>(count);
    input_returned_ += static_cast<std::uint32_t>(count);
  }
  if (input_offset_ == input_.size()) {
    input_.clear();
    input_offset_ = 0;
  }
  if (input_returned_ >= kCreditPortion && !input_finished_) {
    channel.send(proto::encode_credit(id_, proto::Channel::kIn, input_returned_));
    input_credit_ += input_returned_;
    input_returned_ = 0;
  }
  if (input_finished_ && input_.empty() && !input_shut_) {
    input_shut_ = true;
    ::shutdown(socket_.get(), SHUT_WR);
    if (output_finished_) close(channel, {});
  }
}

void DialStream::close(Channel& channel, const Status& status) {
  if (closed_) return;
  proto::Fields fields;
  if (!status) fields.put_error(status.error());
  channel.send(proto::encode_frame(id_, FrameType::kClose, 0, fields.bytes()));
  socket_.reset();
  closed_ = true;
}

}  // namespace caisson::guest
