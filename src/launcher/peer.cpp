#include "launcher/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace caisson::launcher {
namespace {

constexpr std::size_t kReadSize = 128 * 1024;
constexpr std::size_t kMaxDescriptors = 16;
constexpr std::size_t kMaxWaiting = 64;

}  // namespace

Peer::Peer(Fd socket) : socket_(std::move(socket)) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  (void)::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
}

short Peer::events() const {
  const bool waiting = !urgent_.empty() || !data_.empty() || !current_.bytes.empty();
  return static_cast<short>(POLLIN | (waiting ? POLLOUT : 0));
}

void Peer::receive() {
  static thread_local std::string buffer(kReadSize, '\0');
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) broken_ = true;
    return;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      Fd received(fd);
      // More than anybody has a use for is closed at once.
      if (received_.size() < kMaxWaiting) received_.push_back(std::move(received));
    }
  }
  if (got == 0) {
    ended_ = true;
    return;
  }
  decoder_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
}

Result<std::optional<proto::Frame>> Peer::next() {
  return decoder_.next();
}

Fd Peer::take_descriptor() {
  if (received_.empty()) return {};
  Fd fd = std::move(received_.front());
  received_.pop_front();
  return fd;
}

void Peer::send(Lane lane, std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                std::string_view payload) {
  if (broken_) return;
  Item item{proto::encode_frame(stream, type, detail, payload), {}};
  queued_ += item.bytes.size();
  if (queued_ > kMaxQueued) {
    broken_ = true;
    return;
  }
  (lane == Lane::kUrgent ? urgent_ : data_).push_back(std::move(item));
}

void Peer::send_with(std::uint32_t stream, std::uint8_t detail, std::string_view payload,
                     std::vector<Fd> descriptors) {
  if (broken_) return;
  Item item{proto::encode_frame(stream, proto::FrameType::kOpen, detail, payload),
            std::move(descriptors)};
  queued_ += item.bytes.size();
  urgent_.push_back(std::move(item));
}

bool Peer::write_item(Item& item) {
  while (written_ < item.bytes.size()) {
    iovec part{item.bytes.data() + written_, item.bytes.size() - written_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
    if (written_ == 0 && !item.descriptors.empty()) {
      const std::size_t count = item.descriptors.size();
      VERIFY(count <= kMaxDescriptors);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * count);
      for (std::size_t i = 0; i < count; ++i) {
        const int fd = item.descriptors[i].get();
        std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
      }
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) broken_ = true;
      return false;
    }
    written_ += static_cast<std::size_t>(sent);
  }
  queued_ -= item.bytes.size();
  written_ = 0;
  return true;
}

void Peer::flush() {
  while (!broken_) {
    if (current_.bytes.empty()) {
      std::deque<Item>& lane = urgent_.empty() ? data_ : urgent_;
      if (lane.empty()) return;
      current_ = std::move(lane.front());
      lane.pop_front();
    }
    if (!write_item(current_)) return;
    current_ = Item();
  }
}

}  // namespace caisson::launcher
