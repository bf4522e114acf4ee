#include "launcher/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/sys.h"

namespace caisson::launcher {
namespace {

constexpr std::size_t kReadSize = 128 * 1024;
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
  sys::ReceivedPart part = sys::receive_part(socket_.get(), buffer, MSG_DONTWAIT);
  if (part.count < 0) {
    if (errno != EAGAIN) broken_ = true;
    return;
  }
  for (Fd& fd : part.descriptors) {
    // More than anybody has a use for is closed at once.
    if (received_.size() < kMaxWaiting) received_.push_back(std::move(fd));
  }
  if (part.count == 0) {
    ended_ = true;
    return;
  }
  decoder_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(part.count)));
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

void Peer::send_with(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                     std::string_view payload, std::vector<Fd> descriptors) {
  if (broken_) return;
  Item item{proto::encode_frame(stream, type, detail, payload), std::move(descriptors)};
  queued_ += item.bytes.size();
  urgent_.push_back(std::move(item));
}

bool Peer::write_item(Item& item) {
  while (written_ < item.bytes.size()) {
    std::vector<int> descriptors;
    if (written_ == 0)
      for (const Fd& fd : item.descriptors) descriptors.push_back(fd.get());
    const ssize_t sent = sys::send_part(
        socket_.get(), std::string_view(item.bytes).substr(written_), descriptors, MSG_DONTWAIT);
    if (sent < 0) {
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
