#include "guest/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/sys.h"

namespace caisson::guest {
namespace {

constexpr std::size_t kReceiveChunk = 64 * 1024;

Status set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return fail_errno("channel: fcntl");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return fail_errno("channel: fcntl");
  return {};
}

}  // namespace

Channel::Channel(Fd in, Fd out, bool passes_descriptors)
    : in_(std::move(in)),
      out_(std::move(out)),
      passes_descriptors_(passes_descriptors),
      staging_(std::make_unique_for_overwrite<char[]>(kStaging)) {}

Result<Channel> Channel::create(Fd in, Fd out) {
  TRY(set_nonblocking(in.get()));
  if (out.valid()) TRY(set_nonblocking(out.get()));
  int domain = 0;
  socklen_t size = sizeof(domain);
  const bool unix_socket = !out.valid() &&
                           ::getsockopt(in.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
                           domain == AF_UNIX;
  return Channel(std::move(in), std::move(out), unix_socket);
}

Result<bool> Channel::receive() {
  char bytes[kReceiveChunk];
  ssize_t count = 0;
  if (passes_descriptors_) {
    sys::ReceivedPart part = sys::receive_part(in_.get(), bytes);
    count = part.count;
    for (Fd& fd : part.descriptors) descriptors_.push_back(std::move(fd));
    if (part.cut || descriptors_.size() > kMaxWaitingDescriptors)
      return fail(Error::invalid("channel: more than 64 descriptors that no frame has taken"));
  } else {
    count = ::read(in_.get(), bytes, sizeof(bytes));
  }
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return true;
    return fail_errno("channel: read");
  }
  if (count == 0) return false;
  decoder_.feed(std::string_view(bytes, static_cast<std::size_t>(count)));
  return true;
}

Result<Fd> Channel::take_descriptor() {
  if (descriptors_.empty())
    return fail(Error::invalid("channel: a frame takes a descriptor that was not sent with it"));
  Fd fd = std::move(descriptors_.front());
  descriptors_.pop_front();
  return fd;
}

void Channel::send(std::string frame, Fd descriptor) {
  control_bytes_ += frame.size();
  control_.push_back({std::move(frame), std::move(descriptor)});
}

void Channel::stage_control() {
  while (!control_.empty() && !staged_descriptor_.valid()) {
    Waiting& first = control_.front();
    if (first.descriptor.valid()) {
      if (size_ != offset_) return;  // it must begin a message of its own
      staged_descriptor_ = std::move(first.descriptor);
    }
    if (size_ == offset_) size_ = offset_ = 0;
    if (kStaging - size_ < first.bytes.size()) return;
    std::memcpy(staging_.get() + size_, first.bytes.data(), first.bytes.size());
    size_ += first.bytes.size();
    control_bytes_ -= first.bytes.size();
    control_.pop_front();
  }
}

Result<std::size_t> Channel::write_some(std::string_view bytes, int descriptor) {
  ssize_t count = 0;
  if (passes_descriptors_) {
    const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
    count = sys::send_part(out_fd(), bytes, descriptors);
  } else {
    count = ::write(out_fd(), bytes.data(), bytes.size());
  }
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::size_t{0};
    return fail_errno("channel: write");
  }
  return static_cast<std::size_t>(count);
}

Status Channel::flush() {
  for (;;) {
    stage_control();
    if (size_ == offset_) return {};
    TRY_ASSIGN(const std::size_t count,
               write_some(std::string_view(staging_.get() + offset_, size_ - offset_),
                          staged_descriptor_.get()));
    if (count == 0) return {};
    staged_descriptor_.reset();
    offset_ += count;
  }
}

char* Channel::data_room() {
  if (size_ == offset_) size_ = offset_ = 0;
  stage_control();
  if (!control_.empty() || staged_descriptor_.valid() || size_ > kDataMark) return nullptr;
  return staging_.get() + size_ + proto::kHeaderSize;
}

void Channel::commit(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                     std::size_t bytes) {
  proto::encode_header(
      {static_cast<std::uint32_t>(bytes), stream, type, detail, 0},
      std::span<std::uint8_t, proto::kHeaderSize>(
          reinterpret_cast<std::uint8_t*>(staging_.get() + size_), proto::kHeaderSize));
  size_ += proto::kHeaderSize + bytes;
}

bool Channel::append(std::string_view frame) {
  if (data_room() == nullptr || kStaging - size_ < frame.size()) return false;
  std::memcpy(staging_.get() + size_, frame.data(), frame.size());
  size_ += frame.size();
  return true;
}

}  // namespace caisson::guest
