#include "launcher/additions.h"
#include "launcher/supervisor_state.h"

namespace caisson::launcher {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

void Supervisor::guest_cheated(const std::string& how) {
  end("the guest broke the protocol: " + how);
}
void Supervisor::read_guest() {
  guest_.receive();
  for (;;) {
    auto frame = guest_.next();
    if (!frame) return guest_cheated(frame.error().message());
    if (!frame->has_value()) break;
    take_from_guest(**frame);
    if (ended_) return;
  }
  if (guest_.ended() || guest_.broken()) guest_gone("the guest closed its channel");
}

void Supervisor::take_from_guest(const proto::Frame& frame) {
  if (!greeted_) {
    if (auto greeted = check_hello(frame); !greeted)
      return guest_cheated(greeted.error().message());
    greeted_ = true;
    return;
  }
  const std::uint32_t id = frame.header.stream;
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;  // closed from here a moment ago
  Stream& stream = found->second;
  Client* client = client_of(stream.client);
  switch (frame.header.type) {
    case FrameType::kData:
      return guest_data(id, stream, frame);
    case FrameType::kEvent:
      return guest_event(stream, frame);
    case FrameType::kCredit: {
      const auto amount = proto::parse_credit(frame.payload);
      if (!amount || frame.header.detail >= kChannels) return guest_cheated("a bad CREDIT frame");
      stream.to_guest[frame.header.detail] += *amount;
      // A guest grants what it has taken, so that no sum is far from what it began with.
      if (stream.to_guest[frame.header.detail] > 4 * std::int64_t{proto::kInitialCredit})
        return guest_cheated("more credit than it can have");
      if (client != nullptr)
        client->peer.send(Peer::Lane::kUrgent, stream.client_stream, FrameType::kCredit,
                          frame.header.detail, frame.payload);
      if (stream.kept != nullptr) pass_input(*stream.kept);
      return;
    }
    case FrameType::kFinish:
      if (stream.kept != nullptr && frame.header.detail == static_cast<std::uint8_t>(Channel::kIn))
        kept_.close_input(*stream.kept);
      if (client != nullptr)
        client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kFinish,
                          frame.header.detail, frame.payload);
      return;
    case FrameType::kClose:
      return guest_close(id, stream, frame.payload);
    default:
      return guest_cheated("a frame that only a client sends");
  }
}

void Supervisor::guest_event(Stream& stream, const proto::Frame& frame) {
  if (stream.command != nullptr) {
    const auto fields = proto::FieldReader::parse(frame.payload);
    if (!fields) return guest_cheated("a bad EVENT frame");
    if (fields->has(Tag::kListener)) stream.command->set_listener(guest_.take_descriptor());
    if (const auto pid = fields->number_or_none(Tag::kStarted); pid) {
      stream.started = true;
      if (stream.kept != nullptr) stream.kept->pid = static_cast<std::uint32_t>(*pid);
    }
  }
  Client* client = client_of(stream.client);
  if (client == nullptr) return;
  std::string payload = frame.payload;
  if (stream.kind == proto::Kind::kMetrics) {
    if (const auto usage = box_->usage(); usage) payload = with_counters(payload, *usage);
  }
  client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kEvent, 0, payload);
}

void Supervisor::guest_data(std::uint32_t id, Stream& stream, const proto::Frame& frame) {
  const std::uint8_t channel = frame.header.detail;
  if (channel >= kChannels || channel == static_cast<std::uint8_t>(Channel::kIn))
    return guest_cheated("bytes on a channel that is not for them");
  const auto size = static_cast<std::int64_t>(frame.payload.size());
  stream.from_guest[channel] -= size;
  if (stream.from_guest[channel] < 0) return guest_cheated("more bytes than were granted");
  std::string_view bytes = frame.payload;
  if (stream.command != nullptr) {
    const bool was_ending = stream.command->ending();
    bytes = bytes.substr(0, stream.command->count_output(bytes.size()));
    if (!was_ending && stream.command->ending()) kill_command(id, stream);
    if (stream.kept != nullptr)
      kept_.add_output(*stream.kept, static_cast<Channel>(channel), bytes);
  }
  Client* client = client_of(stream.client);
  const std::size_t passed = client == nullptr ? 0 : bytes.size();
  if (passed > 0)
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kData, channel, bytes);
  // What nobody will acknowledge is granted again at once, so that the command goes on.
  if (const std::size_t dropped = frame.payload.size() - passed; dropped > 0) {
    if (stream.kept != nullptr && kept_.must_wait(*stream.kept)) {
      stream.held_back[channel] += dropped;
    } else {
      grant(id, stream, channel, dropped);
    }
  }
}

void Supervisor::guest_close(std::uint32_t id, Stream& stream, std::string_view payload) {
  if (stream.command != nullptr) {
    finish_command(stream, payload);
  } else if (Client* client = client_of(stream.client)) {
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kClose, 0, payload);
  }
  const bool was_last = lives_for(stream);
  if (reboot_ && reboot_->stream == id) finish_reboot(payload);
  over_.push_back(std::move(stream.command));
  streams_.erase(id);
  if (was_last) end("");
}

}  // namespace caisson::launcher
