#include "launcher/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <span>

#include "base/sys.h"

namespace caisson::launcher {
namespace {

constexpr std::size_t kReadSize = 128 * 1024;
constexpr std::size_t kMaxWaiting = 64;
constexpr std::size_t kKeptCapacity = 256 * 1024;

}  // namespace

Peer::Peer(Fd socket) : socket_(std::move(socket)) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  (void)::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
}

short Peer::events() const {
  const bool waiting = !urgent_.rest().empty() || !data_.rest().empty();
  return static_cast<short>(POLLIN | (waiting ? POLLOUT : 0));
}

void Peer::receive() {
  // Not filled with anything: of the room for the largest message a sandbox that says little takes
  // a page.
  static thread_local const std::unique_ptr<char[]> buffer =
      std::make_unique_for_overwrite<char[]>(kReadSize);
  sys::ReceivedPart part =
      sys::receive_part(socket_.get(), std::span(buffer.get(), kReadSize), MSG_DONTWAIT);
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
  decoder_.feed(std::string_view(buffer.get(), static_cast<std::size_t>(part.count)));
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

void Peer::Queue::drop(std::size_t count) {
  begin += count;
  written += count;
  if (begin == bytes.size()) {
    bytes.clear();
    begin = 0;
    // What a reader that was slow for once made it grow to is given back.
    if (bytes.capacity() > kKeptCapacity) bytes.shrink_to_fit();
  } else if (begin > kKeptCapacity && begin > bytes.size() / 2) {
    bytes.erase(0, begin);
    begin = 0;
  }
}

bool Peer::put(Lane lane, std::string_view frame) {
  if (!broken_ && urgent_.rest().size() + data_.rest().size() + frame.size() > kMaxQueued)
    broken_ = true;
  if (broken_) return false;
  queue(lane).bytes += frame;
  return true;
}

void Peer::send(Lane lane, std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                std::string_view payload) {
  put(lane, proto::encode_frame(stream, type, detail, payload));
}

void Peer::send_with(std::uint32_t stream, proto::FrameType type, std::uint8_t detail,
                     std::string_view payload, std::vector<Fd> descriptors) {
  if (handed_.size() >= kMaxHanded) broken_ = true;
  const std::uint64_t at = urgent_.written + urgent_.rest().size();
  if (put(Lane::kUrgent, proto::encode_frame(stream, type, detail, payload)))
    handed_.push_back({at, std::move(descriptors)});
}

// Of one frame, as much as the socket takes; whether it took anything.
bool Peer::write_some() {
  if (left_ == 0) {
    lane_ = urgent_.rest().empty() ? Lane::kData : Lane::kUrgent;
    if (queue(lane_).rest().empty()) return false;
    left_ = proto::encoded_size(queue(lane_).rest());
  }
  Queue& from = queue(lane_);
  const bool with_descriptors =
      lane_ == Lane::kUrgent && !handed_.empty() && handed_.front().at == from.written;
  std::vector<int> descriptors;
  if (with_descriptors)
    for (const Fd& fd : handed_.front().descriptors) descriptors.push_back(fd.get());
  const ssize_t sent =
      sys::send_part(socket_.get(), from.rest().substr(0, left_), descriptors, MSG_DONTWAIT);
  if (sent < 0) {
    if (errno != EAGAIN) broken_ = true;
    return false;
  }
  if (with_descriptors) handed_.pop_front();
  left_ -= static_cast<std::size_t>(sent);
  from.drop(static_cast<std::size_t>(sent));
  return true;
}

void Peer::flush() {
  while (!broken_ && write_some()) {
  }
}

}  // namespace caisson::launcher
