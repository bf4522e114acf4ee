#include "launcher/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "base/verdict.h"
#include "launcher/command.h"
#include "launcher/peer.h"

namespace caisson::launcher {
namespace {

using proto::Channel;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

constexpr std::size_t kMaxClients = 512;
constexpr std::size_t kChannels = 3;
// A command that is to end and whose guest does not say so within this long loses its output that
// nobody has taken; after twice as long it ends with the box.
constexpr std::uint64_t kEndPatienceUs = 500'000;
// The guest must greet within this long.
constexpr std::uint64_t kGreetingUs = 10'000'000;
constexpr std::uint64_t kAcceptPauseUs = 100'000;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

struct Client {
  explicit Client(Fd socket) : peer(std::move(socket)) {}
  Peer peer;
  bool first = false;
  bool greeted = false;
};

// A stream that is open on the guest's side.
struct Stream {
  std::uint64_t client = 0;  // 0: nobody listens (any more)
  std::uint32_t client_stream = 0;
  Kind kind = Kind::kFile;
  std::unique_ptr<Command> command;         // kExec
  std::int64_t from_guest[kChannels] = {};  // credit that the guest may still use
  std::int64_t to_guest[kChannels] = {};    // credit that the client may still use
  bool main = false;                        // the first command of a detached sandbox
  bool cut = false;  // the guest was told that nobody waits for the output any more
};

// Somebody who follows the main command's output.
struct Follower {
  std::uint64_t client = 0;
  std::uint32_t stream = 0;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorInput input)
      : plan_(input.plan),
        box_(std::move(input.box)),
        listener_(std::move(input.listener)),
        broker_(std::move(input.broker)),
        command_limits_(std::move(input.command_limits)),
        guest_(Fd(::fcntl(box_->channel_fd(), F_DUPFD_CLOEXEC, 3))) {
    clients_.try_emplace(++last_client_, std::move(input.first_client));
    clients_.at(last_client_).first = true;
  }

  Status run();

 private:
  void greet();
  std::uint64_t next_deadline() const;
  void turn();

  void read_guest();
  void take_from_guest(const proto::Frame& frame);
  void guest_event(Stream& stream, const proto::Frame& frame);
  void guest_data(std::uint32_t id, Stream& stream, const proto::Frame& frame);
  void guest_close(std::uint32_t id, Stream& stream, std::string_view payload);
  void guest_cheated(const std::string& how);

  void read_client(std::uint64_t id);
  Status take_from_client(std::uint64_t id, const proto::Frame& frame);
  Status open_stream(std::uint64_t id, const proto::Frame& frame);
  Status attach(std::uint64_t id, std::uint32_t stream, bool follow);
  Status open_command(std::uint64_t id, const proto::Frame& frame,
                      const proto::FieldReader& fields);
  void drop_client(std::uint64_t id);
  void accept_client();
  void refuse(std::uint64_t client, std::uint32_t stream, const Error& error);

  void check_commands();
  void kill_command(Stream& stream);
  void cut_command(std::uint32_t id, Stream& stream);
  void finish_command(Stream& stream, std::optional<std::string_view> close);
  void end(std::string why);
  Client* client_of(std::uint64_t id) {
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
  }
  std::map<std::uint32_t, Stream>::iterator find(std::uint64_t client, std::uint32_t stream) {
    return std::find_if(streams_.begin(), streams_.end(), [&](const auto& entry) {
      return entry.second.client == client && entry.second.client_stream == stream;
    });
  }

  const wall::Plan& plan_;
  std::unique_ptr<wall::Box> box_;
  Fd listener_, broker_;
  proto::Fields command_limits_;
  Peer guest_;
  std::map<std::uint64_t, Client> clients_;
  std::map<std::uint32_t, Stream> streams_;
  std::uint64_t last_client_ = 0;
  std::uint32_t last_stream_ = 1;
  bool greeted_ = false;
  std::uint64_t greet_by_us_ = 0;
  std::uint64_t accept_again_us_ = 0;
  bool ended_ = false;
  std::string end_reason_;
  // Of a detached sandbox: what its first command wrote, and who follows it.
  bool main_opened_ = false;
  OutputTail tail_;
  std::optional<Outcome> main_outcome_;
  std::vector<Follower> followers_;
};

std::string hello() {
  proto::Fields fields;
  fields.put_u32(Tag::kVersion, proto::kVersion).put_u32(Tag::kMinVersion, proto::kMinVersion);
  return fields.bytes();
}

Status check_hello(const proto::Frame& frame) {
  if (frame.header.type != FrameType::kHello || frame.header.stream != 0)
    return fail(Error::invalid("the first frame must be HELLO"));
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
  TRY_ASSIGN(const std::uint64_t version, fields.number(Tag::kVersion));
  TRY_ASSIGN(const std::uint64_t oldest, fields.number(Tag::kMinVersion));
  TRY(proto::common_version(version, oldest));
  return {};
}

void Supervisor::greet() {
  guest_.send(Peer::Lane::kUrgent, 0, FrameType::kHello, 0, hello());
  greet_by_us_ = sys::monotonic_us() + kGreetingUs;
}

void Supervisor::end(std::string why) {
  if (ended_) return;
  ended_ = true;
  end_reason_ = std::move(why);
  (void)box_->kill();
}

void Supervisor::guest_cheated(const std::string& how) {
  end("the guest broke the protocol: " + how);
}

// --- from the guest

void Supervisor::read_guest() {
  guest_.receive();
  for (;;) {
    auto frame = guest_.next();
    if (!frame) return guest_cheated(frame.error().message());
    if (!frame->has_value()) break;
    take_from_guest(**frame);
    if (ended_) return;
  }
  if (guest_.ended() || guest_.broken()) end("the guest closed its channel");
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
      if (client != nullptr)
        client->peer.send(Peer::Lane::kUrgent, stream.client_stream, FrameType::kCredit,
                          frame.header.detail, frame.payload);
      return;
    }
    case FrameType::kFinish:
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
    if (fields->has(Tag::kListener))
      stream.command->refusals().set_listener(guest_.take_descriptor());
  }
  if (Client* client = client_of(stream.client))
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kEvent, 0, frame.payload);
}

void Supervisor::guest_data(std::uint32_t id, Stream& stream, const proto::Frame& frame) {
  const std::uint8_t channel = frame.header.detail;
  if (channel >= kChannels) return guest_cheated("an unknown channel");
  const auto size = static_cast<std::int64_t>(frame.payload.size());
  stream.from_guest[channel] -= size;
  if (stream.from_guest[channel] < 0) return guest_cheated("more bytes than were granted");
  std::string_view bytes = frame.payload;
  if (stream.command != nullptr) {
    const bool was_ending = stream.command->ending();
    bytes = bytes.substr(0, stream.command->count_output(bytes.size()));
    if (!was_ending && stream.command->ending()) kill_command(stream);
    if (stream.main) tail_.add(static_cast<Channel>(channel), bytes);
    if (stream.main) {
      for (const Follower& follower : followers_) {
        if (Client* client = client_of(follower.client))
          client->peer.send(Peer::Lane::kData, follower.stream, FrameType::kData, channel, bytes);
      }
    }
  }
  Client* client = client_of(stream.client);
  const std::size_t passed = client == nullptr ? 0 : bytes.size();
  if (passed > 0)
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kData, channel, bytes);
  // What nobody will acknowledge is granted again at once, so that the command goes on.
  if (const std::size_t dropped = frame.payload.size() - passed; dropped > 0) {
    stream.from_guest[channel] += static_cast<std::int64_t>(dropped);
    const std::string credit = proto::encode_credit(id, static_cast<Channel>(channel),
                                                    static_cast<std::uint32_t>(dropped));
    guest_.send(Peer::Lane::kUrgent, id, FrameType::kCredit, channel,
                std::string_view(credit).substr(proto::kHeaderSize));
  }
}

void Supervisor::guest_close(std::uint32_t id, Stream& stream, std::string_view payload) {
  if (stream.command != nullptr) {
    finish_command(stream, payload);
  } else if (Client* client = client_of(stream.client)) {
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kClose, 0, payload);
  }
  const bool was_main = stream.main;
  streams_.erase(id);
  if (was_main) end("");
}

void Supervisor::finish_command(Stream& stream, std::optional<std::string_view> close) {
  Outcome outcome = stream.command->finish(close, box_->held());
  if (!close && outcome.verdict == Verdict::kSandboxError && !end_reason_.empty()) {
    outcome.detail = end_reason_;
  }
  const std::string payload = encode_outcome(outcome);
  if (Client* client = client_of(stream.client))
    client->peer.send(Peer::Lane::kData, stream.client_stream, FrameType::kClose, 0, payload);
  if (stream.main) {
    for (const Follower& follower : followers_) {
      if (Client* client = client_of(follower.client))
        client->peer.send(Peer::Lane::kData, follower.stream, FrameType::kClose, 0, payload);
    }
    followers_.clear();
    main_outcome_ = std::move(outcome);
  }
}

// --- from clients

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

Status Supervisor::take_from_client(std::uint64_t id, const proto::Frame& frame) {
  Client& client = clients_.at(id);
  if (!client.greeted) {
    TRY(check_hello(frame));
    client.greeted = true;
    client.peer.send(Peer::Lane::kUrgent, 0, FrameType::kHello, 0, hello());
    return {};
  }
  if (frame.header.stream == 0) {
    if (frame.header.type != FrameType::kControl)
      return fail(Error::invalid("stream 0 takes CONTROL alone"));
    TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
    TRY_ASSIGN(const std::uint64_t operation, fields.number(Tag::kControlOperation));
    if (operation == static_cast<std::uint64_t>(proto::ControlOperation::kShutdown)) {
      for (auto& [number, stream] : streams_) {
        if (stream.command != nullptr)
          stream.command->end_for(Verdict::kCancelled, "", "the sandbox was ended by its owner");
      }
      end("the sandbox was ended by its owner");
    }
    return {};
  }
  if (frame.header.type == FrameType::kOpen) return open_stream(id, frame);
  const auto found = find(id, frame.header.stream);
  if (found == streams_.end()) return {};  // ended a moment ago
  const std::uint32_t guest_stream = found->first;
  Stream& stream = found->second;
  switch (frame.header.type) {
    case FrameType::kData: {
      if (frame.header.detail >= kChannels) return fail(Error::invalid("an unknown channel"));
      auto& credit = stream.to_guest[frame.header.detail];
      credit -= static_cast<std::int64_t>(frame.payload.size());
      if (credit < 0) return fail(Error::invalid("more bytes than were granted"));
      guest_.send(Peer::Lane::kData, guest_stream, frame.header.type, frame.header.detail,
                  frame.payload);
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
      guest_.send(Peer::Lane::kUrgent, guest_stream, frame.header.type, frame.header.detail,
                  frame.payload);
      return {};
    }
    case FrameType::kControl: {
      if (stream.command != nullptr) {
        TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
        if (fields.number_or_none(Tag::kControlOperation) ==
            static_cast<std::uint64_t>(proto::ControlOperation::kShutdown)) {
          stream.command->end_for(Verdict::kCancelled, "", "cancelled");
          kill_command(stream);
          return {};
        }
      }
      guest_.send(Peer::Lane::kUrgent, guest_stream, frame.header.type, 0, frame.payload);
      return {};
    }
    case FrameType::kFinish:
    case FrameType::kClose:
      guest_.send(Peer::Lane::kData, guest_stream, frame.header.type, frame.header.detail,
                  frame.payload);
      return {};
    default:
      return fail(Error::invalid("a frame that a client does not send"));
  }
}

Status Supervisor::open_stream(std::uint64_t id, const proto::Frame& frame) {
  const std::uint32_t stream = frame.header.stream;
  if (find(id, stream) != streams_.end()) return fail(Error::invalid("the stream is open already"));
  if (streams_.size() >= proto::kMaxStreams) {
    refuse(id, stream, Error::exhausted("too many streams are open in this sandbox"));
    return {};
  }
  TRY_ASSIGN(const auto fields, proto::FieldReader::parse(frame.payload));
  const auto kind = static_cast<Kind>(frame.header.detail);
  if (kind == Kind::kExec) {
    const auto join = fields.number_or_none(Tag::kAttach);
    if (join) return attach(id, stream, *join != 0);
    if (auto opened = open_command(id, frame, fields); !opened) refuse(id, stream, opened.error());
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
  last_stream_ += 2;
  Stream entry;
  entry.client = id;
  entry.client_stream = stream;
  entry.kind = kind;
  for (std::size_t i = 0; i < kChannels; ++i)
    entry.from_guest[i] = entry.to_guest[i] = proto::kInitialCredit;
  streams_.emplace(last_stream_, std::move(entry));
  guest_.send(Peer::Lane::kUrgent, last_stream_, FrameType::kOpen, frame.header.detail,
              frame.payload);
  return {};
}

Status Supervisor::attach(std::uint64_t id, std::uint32_t stream, bool follow) {
  Client& client = clients_.at(id);
  for (const OutputTail::Piece& piece : tail_.pieces()) {
    for (std::size_t at = 0; at < piece.bytes.size(); at += proto::kMaxPayload)
      client.peer.send(Peer::Lane::kData, stream, FrameType::kData,
                       static_cast<std::uint8_t>(piece.channel),
                       std::string_view(piece.bytes).substr(at, proto::kMaxPayload));
  }
  if (follow && !main_outcome_) {
    followers_.push_back({id, stream});
    return {};
  }
  const std::string payload = main_outcome_ ? encode_outcome(*main_outcome_) : std::string();
  client.peer.send(Peer::Lane::kData, stream, FrameType::kClose, 0, payload);
  return {};
}

Status Supervisor::open_command(std::uint64_t id, const proto::Frame& frame,
                                const proto::FieldReader& fields) {
  // What only we may say does not come from a client.
  for (const Tag tag : {Tag::kCgroup, Tag::kBirthCgroup, Tag::kRlimit, Tag::kSyscallProfile,
                        Tag::kWantListener, Tag::kPrivileges, Tag::kNoSetid}) {
    if (fields.has(tag)) return fail(Error::invalid("a field that a client does not send"));
  }
  TRY_ASSIGN(auto slot, box_->make_slot());
  std::vector<Fd> descriptors;
  for (const int fd : slot->descriptors()) {
    descriptors.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!descriptors.back().valid()) return fail_errno("fcntl");
  }
  proto::Fields ours = command_limits_;
  const bool listener = box_->channel_passes_descriptors();
  bool writable = false;
  for (const wall::PlanGrant& grant : plan_.grants) writable = writable || grant.writable;
  ours.put_u8(Tag::kSyscallProfile, plan_.syscall_profile)
      .put_u8(Tag::kWantListener, listener ? 1 : 0)
      .put_u8(Tag::kPrivileges, plan_.privileges);
  if (writable) ours.put_u8(Tag::kNoSetid, 1);
  const std::size_t births = slot->born_in_last() ? 1 : 0;
  if (births != 0) ours.put_u8(Tag::kBirthCgroup, 1);
  if (descriptors.size() > births)
    ours.put_u8(Tag::kCgroup, static_cast<std::uint8_t>(descriptors.size() - births));
  const std::string payload = frame.payload + ours.bytes();
  if (payload.size() > proto::kMaxPayload)
    return fail(Error::invalid("arguments and environment are longer than 64 KiB together"));

  last_stream_ += 2;
  Stream entry;
  entry.client = id;
  entry.client_stream = frame.header.stream;
  entry.kind = Kind::kExec;
  entry.command = std::make_unique<Command>(plan_, std::move(slot));
  if (plan_.detached != 0 && !main_opened_) {
    entry.main = true;
    main_opened_ = true;
  }
  for (std::size_t i = 0; i < kChannels; ++i)
    entry.from_guest[i] = entry.to_guest[i] = proto::kInitialCredit;
  streams_.emplace(last_stream_, std::move(entry));
  guest_.send_with(last_stream_, frame.header.detail, payload, std::move(descriptors));
  return {};
}

void Supervisor::drop_client(std::uint64_t id) {
  const bool first = clients_.at(id).first;
  clients_.erase(id);
  std::erase_if(followers_, [&](const Follower& follower) { return follower.client == id; });
  // A detached sandbox lives for its main command; whoever died before giving it one gives none.
  if (first && (plan_.detached == 0 || !main_opened_)) return end("its owner is gone");
  for (auto& [number, stream] : streams_) {
    if (stream.client != id) continue;
    stream.client = 0;
    if (stream.command == nullptr) {
      guest_.send(Peer::Lane::kUrgent, number, FrameType::kClose, 0, "");
      continue;
    }
    if (!stream.main) {
      stream.command->end_for(Verdict::kCancelled, "", "its client is gone");
      kill_command(stream);
      cut_command(number, stream);
      continue;
    }
    // The main command goes on without anybody; what its client had not acknowledged is granted.
    for (std::uint8_t channel = 0; channel < kChannels; ++channel) {
      const std::int64_t missing = proto::kInitialCredit - stream.from_guest[channel];
      if (missing <= 0) continue;
      stream.from_guest[channel] += missing;
      const std::string credit = proto::encode_credit(number, static_cast<Channel>(channel),
                                                      static_cast<std::uint32_t>(missing));
      guest_.send(Peer::Lane::kUrgent, number, FrameType::kCredit, channel,
                  std::string_view(credit).substr(proto::kHeaderSize));
    }
    guest_.send(Peer::Lane::kData, number, FrameType::kFinish,
                static_cast<std::uint8_t>(Channel::kIn), "");
  }
}

void Supervisor::accept_client() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    // No descriptor is free: look again in a moment instead of at once.
    if (errno == EMFILE || errno == ENFILE) accept_again_us_ = sys::monotonic_us() + kAcceptPauseUs;
    return;
  }
  clients_.try_emplace(++last_client_, std::move(socket));
}

// --- time

void Supervisor::kill_command(Stream& stream) {
  if (stream.command->slot().kill()) return;
  // No group of its own: the guest ends it, and if it does not, the box goes.
  for (auto& [number, entry] : streams_) {
    if (&entry != &stream) continue;
    proto::Fields fields;
    fields.put_u32(Tag::kSignal, SIGKILL);
    guest_.send(Peer::Lane::kUrgent, number, FrameType::kControl, 0, fields.bytes());
  }
}

// Output that a client has no credit for would keep a command that was killed open for ever.
void Supervisor::cut_command(std::uint32_t id, Stream& stream) {
  stream.cut = true;
  guest_.send(Peer::Lane::kUrgent, id, FrameType::kClose, 0, "");
}

void Supervisor::check_commands() {
  const std::uint64_t now = sys::monotonic_us();
  if (!greeted_ && now >= greet_by_us_) return end("the guest did not start");
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    if (stream.command->ending()) {
      const std::uint64_t since = stream.command->ending_since_us();
      if (now >= since + 2 * kEndPatienceUs)
        return end("the guest did not end a command that was killed");
      if (now >= since + kEndPatienceUs && !stream.cut) cut_command(number, stream);
      continue;
    }
    if (now < stream.command->next_check_us()) continue;
    if (stream.command->check(now)) kill_command(stream);
  }
}

std::uint64_t Supervisor::next_deadline() const {
  std::uint64_t next = greeted_ ? kNever : greet_by_us_;
  if (accept_again_us_ > sys::monotonic_us()) next = std::min(next, accept_again_us_);
  for (const auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    const std::uint64_t patience = stream.cut ? 2 * kEndPatienceUs : kEndPatienceUs;
    next = std::min(next, stream.command->ending() ? stream.command->ending_since_us() + patience
                                                   : stream.command->next_check_us());
  }
  return next;
}

void Supervisor::turn() {
  std::vector<pollfd> entries;
  const auto add = [&](int fd, short events) { entries.push_back({fd, events, 0}); };
  add(box_->end_fd(), POLLIN);
  add(broker_.get(), POLLIN);
  add(guest_.fd(), guest_.events());
  // Nobody is let in while there is no room; they wait in the socket's queue.
  add(clients_.size() < kMaxClients && sys::monotonic_us() >= accept_again_us_ ? listener_.get()
                                                                               : -1,
      POLLIN);
  std::vector<std::uint64_t> client_ids;
  for (auto& [id, client] : clients_) {
    client_ids.push_back(id);
    add(client.peer.fd(), client.peer.events());
  }
  std::vector<std::uint32_t> listening;
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr || stream.command->refusals().fd() < 0) continue;
    listening.push_back(number);
    add(stream.command->refusals().fd(), POLLIN);
  }
  const std::uint64_t deadline = next_deadline(), now = sys::monotonic_us();
  int timeout_ms = -1;
  if (deadline != kNever)
    timeout_ms =
        deadline <= now
            ? 0
            : static_cast<int>(std::min<std::uint64_t>((deadline - now + 999) / 1000, 60'000));
  if (::poll(entries.data(), entries.size(), timeout_ms) < 0 && errno != EINTR)
    return end("poll failed");

  if (entries[1].revents != 0) return end("the launcher is gone");
  if ((entries[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_guest();
  if (ended_) return;
  // The guest's last frames were read above; now it is really over.
  if (entries[0].revents != 0) return end("the guest ended");
  std::size_t at = 4;
  for (const std::uint64_t id : client_ids) {
    if ((entries[at++].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && client_of(id) != nullptr)
      read_client(id);
    if (ended_) return;
  }
  for (const std::uint32_t number : listening) {
    const short ready = entries[at++].revents;
    const auto found = streams_.find(number);
    if (ready != 0 && found != streams_.end()) found->second.command->refusals().serve(ready);
  }
  if ((entries[3].revents & POLLIN) != 0) accept_client();
  check_commands();
}

Status Supervisor::run() {
  greet();
  while (!ended_) {
    guest_.flush();
    std::vector<std::uint64_t> lost;
    for (auto& [id, client] : clients_) {
      client.peer.flush();
      if (client.peer.broken()) lost.push_back(id);
    }
    for (const std::uint64_t id : lost) drop_client(id);
    if (guest_.broken()) end("the guest closed its channel");
    if (!ended_) turn();
  }
  (void)box_->kill();
  pollfd entry{box_->end_fd(), POLLIN, 0};
  // Nothing inside can outlive PID 1; what takes long is the kernel tearing memory down.
  (void)::poll(&entry, 1, 10'000);
  for (auto& [number, stream] : streams_) {
    if (stream.command != nullptr) {
      finish_command(stream, std::nullopt);
    } else {
      refuse(stream.client, stream.client_stream, Error::unavailable("the sandbox has ended"));
    }
  }
  streams_.clear();
  // Verdicts reach who still reads.
  const std::uint64_t until = sys::monotonic_us() + 1'000'000;
  for (auto& [id, client] : clients_) {
    for (;;) {
      client.peer.flush();
      if (client.peer.broken() || (client.peer.events() & POLLOUT) == 0) break;
      if (sys::monotonic_us() > until) break;
      pollfd waiting{client.peer.fd(), POLLOUT, 0};
      (void)::poll(&waiting, 1, 100);
    }
  }
  return {};
}

}  // namespace

proto::Fields command_limits(const wall::Plan& plan, const wall::HeldLimits& held) {
  proto::Fields fields;
  const auto add = [&](auto resource, std::uint64_t value) {
    // Nobody can raise what was inherited; a lower limit is as hard.
    rlimit inherited{};
    if (::getrlimit(resource, &inherited) == 0 && inherited.rlim_max != RLIM_INFINITY)
      value = std::min<std::uint64_t>(value, inherited.rlim_max);
    std::string bytes;
    const auto put = [&](std::uint64_t number, int size) {
      for (int i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i));
    };
    put(static_cast<std::uint64_t>(resource), 4);
    put(value, 8);
    put(value, 8);
    fields.put(Tag::kRlimit, bytes);
  };
  if (is_off(plan.switches, Mechanism::kRlimits)) return fields;
  add(RLIMIT_CORE, 0);
  add(RLIMIT_MEMLOCK, 8u << 20);
  add(RLIMIT_MSGQUEUE, 819200);
  add(RLIMIT_SIGPENDING, 8192);
  add(RLIMIT_RTPRIO, 0);
  add(RLIMIT_NICE, 0);
  if (plan.open_files != 0) add(RLIMIT_NOFILE, plan.open_files);
  if (plan.pids != 0 && held[static_cast<std::size_t>(Limit::kPids)] != HeldBy::kCgroup)
    add(RLIMIT_NPROC, plan.pids);
  return fields;
}

Status supervise(SupervisorInput input) {
  return Supervisor(std::move(input)).run();
}

}  // namespace caisson::launcher
