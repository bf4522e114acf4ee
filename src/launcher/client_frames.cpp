#include <sys/socket.h>

#include "base/sys.h"
#include "launcher/supervisor_state.h"

namespace caisson::launcher {

using proto::Channel;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

namespace {

// How long nobody is let in after the descriptors were used up.
constexpr std::uint64_t kAcceptPauseUs = 100'000;

}  // namespace

void Supervisor::accept_client() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    // No descriptor is free: look again in a moment instead of at once.
    if (errno == EMFILE || errno == ENFILE) accept_again_us_ = sys::monotonic_us() + kAcceptPauseUs;
    return;
  }
  clients_.try_emplace(++last_client_, std::move(socket));
}

void Supervisor::forget_client(std::uint64_t id) {
  clients_.erase(id);
  kept_.drop_client(id);
  forget_waiting(id);
}

void Supervisor::drop_client(std::uint64_t id) {
  const bool first = clients_.at(id).first;
  forget_client(id);
  // Whoever died before the sandbox had its main command, or was settled, gives it none any more.
  if (first && !main_opened_ && !settled_) return end("its owner is gone");
  for (auto& [number, stream] : streams_) {
    if (stream.client != id) continue;
    stream.client = 0;
    orphan(number, stream);
  }
}

void Supervisor::orphan(std::uint32_t id, Stream& stream) {
  if (stream.command == nullptr)
    return guest_.send(Peer::Lane::kUrgent, id, FrameType::kClose, 0, "");
  if (stream.kept == nullptr) {
    stream.command->end_for(Verdict::kCancelled, "", "its client is gone");
    kill_command(id, stream);
    return cut_command(id, stream);
  }
  // The main command goes on without anybody; what its client had not acknowledged is granted.
  for (std::uint8_t channel = 0; channel < kChannels; ++channel) {
    const std::int64_t missing = proto::kInitialCredit - stream.from_guest[channel];
    if (missing > 0) grant(id, stream, channel, static_cast<std::size_t>(missing));
  }
  guest_.send(Peer::Lane::kData, id, FrameType::kFinish, static_cast<std::uint8_t>(Channel::kIn),
              "");
}

void Supervisor::refuse(std::uint64_t id, std::uint32_t stream, const Error& error) {
  Client* client = client_of(id);
  if (client == nullptr) return;
  proto::Fields fields;
  fields.put_error(error);
  client->peer.send(Peer::Lane::kData, stream, FrameType::kClose, 0, fields.bytes());
}

void Supervisor::read_client(std::uint64_t id) {
  Client* client = client_of(id);
  client->peer.receive();
  for (;;) {
    auto frame = client->peer.next();
    if (!frame) return drop_client(id);
    if (!frame->has_value()) break;
    if (auto taken = take_from_client(id, **frame); !taken) return drop_client(id);
    if (ended_) return;
  }
  if (client->peer.ended() || client->peer.broken()) drop_client(id);
}

void Supervisor::read_credit(std::uint64_t id) {
  Peer& peer = clients_.at(id).peer;
  peer.receive();
  for (;;) {
    const auto frame = peer.next();
    if (frame && !frame->has_value()) break;
    if (!frame) return forget_client(id);
    const std::uint32_t stream = (*frame)->header.stream;
    if (kept_.read_by(id, stream) == nullptr) continue;
    const FrameType type = (*frame)->header.type;
    if (type == FrameType::kClose || type == FrameType::kControl) kept_.leave(id, stream);
    if (type == FrameType::kCredit && !kept_.take_credit(id, **frame)) return forget_client(id);
  }
  if (peer.ended() || peer.broken()) forget_client(id);
}

Status Supervisor::take_from_client(std::uint64_t id, const proto::Frame& frame) {
  Client& client = clients_.at(id);
  if (!client.greeted) {
    // Also to whoever is dropped for speaking other versions, who then knows why.
    client.peer.send(Peer::Lane::kUrgent, 0, FrameType::kHello, 0, hello());
    client.greeted = true;
    auto checked = check_hello(frame);
    if (!checked.has_value()) client.peer.flush();
    return checked;
  }
  if (frame.header.stream == 0) return take_request(id, frame);
  if (must_wait(id, frame)) return {};
  if (frame.header.type == FrameType::kOpen) return open_stream(id, frame);
  if (KeptCommand* const read = kept_.read_by(id, frame.header.stream))
    return take_from_reader(id, frame, *read);
  const auto found = find(id, frame.header.stream);
  if (found == streams_.end()) return {};  // ended a moment ago
  return take_on_stream(found->first, found->second, frame);
}

Status Supervisor::take_on_stream(std::uint32_t id, Stream& stream, const proto::Frame& frame) {
  switch (frame.header.type) {
    case FrameType::kData: {
      if (frame.header.detail >= kChannels) return fail(Error::invalid("an unknown channel"));
      auto& credit = stream.to_guest[frame.header.detail];
      credit -= static_cast<std::int64_t>(frame.payload.size());
      if (credit < 0) return fail(Error::invalid("more bytes than were granted"));
      guest_.send(Peer::Lane::kData, id, frame.header.type, frame.header.detail, frame.payload);
      return {};
    }
    case FrameType::kCredit: {
      if (frame.header.detail >= kChannels) return fail(Error::invalid("an unknown channel"));
      TRY_ASSIGN(const std::uint32_t amount, proto::parse_credit(frame.payload));
      auto& credit = stream.from_guest[frame.header.detail];
      // A client that grants without end would let the guest fill our memory.
      if (credit + amount > static_cast<std::int64_t>(4 * proto::kInitialCredit))
        return fail(Error::invalid("too much credit"));
      credit += amount;
      guest_.send(Peer::Lane::kUrgent, id, frame.header.type, frame.header.detail, frame.payload);
      return {};
    }
    case FrameType::kControl: {
      if (stream.command != nullptr) {
        TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
        if (fields.number_or_none(Tag::kControlOperation) ==
            static_cast<std::uint64_t>(proto::ControlOperation::kShutdown)) {
          stream.command->end_for(Verdict::kCancelled, "", "cancelled");
          kill_command(id, stream);
          return {};
        }
      }
      guest_.send(Peer::Lane::kUrgent, id, frame.header.type, 0, frame.payload);
      return {};
    }
    case FrameType::kFinish:
    case FrameType::kClose:
      guest_.send(Peer::Lane::kData, id, frame.header.type, frame.header.detail, frame.payload);
      return {};
    default:
      return fail(Error::invalid("a frame that a client does not send"));
  }
}

Status Supervisor::open_stream(std::uint64_t id, const proto::Frame& frame) {
  const std::uint32_t stream = frame.header.stream;
  if (stream == 0 || find(id, stream) != streams_.end() || kept_.read_by(id, stream) != nullptr)
    return fail(Error::invalid("the stream is open already"));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
  const auto kind = static_cast<Kind>(frame.header.detail);
  if (kind == Kind::kExec && fields.has(Tag::kAttach)) {
    if (auto joined = join_command(id, stream, fields); !joined) refuse(id, stream, joined.error());
    return {};
  }
  if (streams_.size() >= proto::kMaxStreams) {
    refuse(id, stream, Error::exhausted("too many streams are open in this sandbox"));
    return {};
  }
  if (kind == Kind::kExec) {
    if (auto opened = open_command(id, frame, fields); !opened) refuse(id, stream, opened.error());
    return {};
  }
  if (plan_.privileges == 0 && fields.has(Tag::kPrivileges)) {
    refuse(id, stream,
           Error{Code::kPermissionDenied, "privileges: this sandbox's commands have none"});
    return {};
  }
  if (kind == Kind::kControl) {
    const auto operation = fields.number_or_none(Tag::kControlOperation);
    const auto allowed = [&](proto::ControlOperation wanted) {
      return operation == static_cast<std::uint64_t>(wanted);
    };
    if (!allowed(proto::ControlOperation::kPing) &&
        !allowed(proto::ControlOperation::kListProcesses)) {
      refuse(id, stream, Error{Code::kPermissionDenied, "this operation is not a client's"});
      return {};
    }
  }
  if (fields.has(Tag::kNoSetid)) {
    refuse(id, stream, Error::invalid("a field that a client does not send"));
    return {};
  }
  std::string payload = frame.payload;
  // As for commands: sudo's rights are not to leave a set-id file where the host finds it.
  if (kind == Kind::kFile && has_writable_grant(plan_))
    payload += proto::Fields().put_u8(Tag::kNoSetid, 1).bytes();
  if (payload.size() > proto::kMaxPayload) {
    refuse(id, stream, Error::invalid("the request is longer than 64 KiB"));
    return {};
  }
  (void)add_stream(id, stream, kind);
  guest_.send(Peer::Lane::kUrgent, last_stream_, FrameType::kOpen, frame.header.detail, payload);
  return {};
}

}  // namespace caisson::launcher
