#include "launcher/supervisor_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <limits>

#include "base/sys.h"

namespace caisson::launcher {

using proto::FrameType;
using proto::Tag;

namespace {

constexpr std::size_t kMaxClients = 512;
// A command that is to end and whose guest does not say so within this long loses its output that
// nobody has taken; after twice as long it ends with the box.
constexpr std::uint64_t kEndPatienceUs = 500'000;
// The guest must greet within this long after its birth, and be born within this long.
constexpr std::uint64_t kGreetingUs = 10'000'000;
constexpr std::uint64_t kBirthUs = 60'000'000;
// After the sandbox's end clients are waited for: so long where none reads, and so long in all.
constexpr std::uint64_t kSilenceUs = 1'000'000;
constexpr std::uint64_t kFarewellUs = 5'000'000;
constexpr std::size_t kMostOrder = 4096;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::string hello() {
  return proto::hello_payload();
}

Status check_hello(const proto::Frame& frame) {
  if (frame.header.type != FrameType::kHello || frame.header.stream != 0)
    return fail(Error::invalid("the first frame must be HELLO"));
  TRY(proto::check_hello(frame.payload));
  return {};
}

Supervisor::Supervisor(SupervisorInput input)
    : plan_(input.plan),
      box_(std::move(input.box)),
      listener_(std::move(input.listener)),
      broker_(std::move(input.broker)),
      orders_(std::move(input.orders)),
      command_limits_(std::move(input.command_limits)),
      on_birth_(std::move(input.on_birth)),
      on_stillbirth_(std::move(input.on_stillbirth)),
      on_state_(std::move(input.on_state)),
      on_network_(std::move(input.on_network)),
      guest_(Fd(::fcntl(box_->channel_fd(), F_DUPFD_CLOEXEC, 3))),
      reboot_us_(input.reboot_us) {
  clients_.try_emplace(++last_client_, std::move(input.first_client));
  clients_.at(last_client_).first = true;
  if (plan_.life == Life::kMainCommand) kept_.add_main();
  if (plan_.life == Life::kKept && plan_.timeout_ms != 0)
    deadline_us_ = sys::monotonic_us() + plan_.timeout_ms * 1000;
  if (!unborn()) take_layer();
}

void Supervisor::greet() {
  guest_.send(Peer::Lane::kUrgent, 0, FrameType::kHello, 0, hello());
  greet_by_us_ = sys::monotonic_us() + kBirthUs;
}

void Supervisor::end(std::string why) {
  if (ended_) return;
  ended_ = true;
  end_reason_ = std::move(why);
  (void)box_->kill();
}

void Supervisor::obey() {
  const auto said = sys::recv_message(orders_.get(), kMostOrder);
  orders_.reset();
  // The launcher's end is told by the broker.
  if (!said.has_value() || said->bytes.empty()) return;
  end_commands_for(Verdict::kPolicyViolation, "secret", said->bytes);
  end(said->bytes);
}

bool Supervisor::take_birth() {
  if (auto born = on_birth_(*box_); !born) {
    end(born.error().message());
    return false;
  }
  greet_by_us_ = sys::monotonic_us() + kGreetingUs;
  take_layer();
  // What was asked for before begins now. The guest is asked already for what is not wanted any
  // more.
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    if (stream.command->ending())
      cut_command(number, stream);
    else
      stream.command->begin();
  }
  return true;
}

void Supervisor::guest_gone(std::string why) {
  if (!ended_ && unborn() && !take_birth()) return;
  end(std::move(why));
}

Stream& Supervisor::add_stream(std::uint64_t client, std::uint32_t client_stream,
                               proto::Kind kind) {
  last_stream_ += 2;
  Stream& stream = streams_[last_stream_];
  stream.client = client;
  stream.client_stream = client_stream;
  stream.kind = kind;
  for (std::size_t i = 0; i < kChannels; ++i)
    stream.from_guest[i] = stream.to_guest[i] = proto::kInitialCredit;
  return stream;
}

void Supervisor::grant(std::uint32_t id, Stream& stream, std::uint8_t channel, std::size_t bytes) {
  stream.from_guest[channel] += static_cast<std::int64_t>(bytes);
  const std::string credit = proto::encode_credit(id, static_cast<proto::Channel>(channel),
                                                  static_cast<std::uint32_t>(bytes));
  guest_.send(Peer::Lane::kUrgent, id, FrameType::kCredit, channel,
              std::string_view(credit).substr(proto::kHeaderSize));
}

void Supervisor::check_commands() {
  const std::uint64_t now = sys::monotonic_us();
  if (!greeted_ && now >= greet_by_us_)
    return end(unborn() ? "the sandbox was not built within a minute" : "the guest did not start");
  if (deadline_us_ != 0 && now >= deadline_us_) {
    end_commands_for(Verdict::kTimeLimit, "elapsed", "the sandbox's time is over");
    return end("the sandbox's time is over");
  }
  if (reboot_ && now >= reboot_->by_us) return give_reboot_up();
  kept_.forget_old(now);
  kept_.watch_lag(now);
  if (unborn()) return;
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    if (stream.command->ending()) {
      // What is frozen may not be able to end yet (cgroup v1).
      if (stands_still()) continue;
      const std::uint64_t since = stream.command->ending_since_us();
      if (now >= since + 2 * kEndPatienceUs)
        return end("the guest did not end a command that was killed");
      if (now >= since + kEndPatienceUs && !stream.cut) cut_command(number, stream);
      continue;
    }
    if (now < stream.command->next_check_us()) continue;
    if (!stream.command->check(now)) continue;
    // The sandbox would end with it.
    if (stands_still() && lives_for(stream)) return end("its command's time is over");
    kill_command(number, stream);
  }
}

std::uint64_t Supervisor::next_deadline() const {
  std::uint64_t next = greeted_ ? kNever : greet_by_us_;
  if (accept_again_us_ > sys::monotonic_us()) next = std::min(next, accept_again_us_);
  if (deadline_us_ != 0) next = std::min(next, deadline_us_);
  if (!freezing_.empty()) next = std::min(next, freeze_by_us_);
  if (hold_asked_) next = std::min(next, hold_by_us_);
  if (reboot_) next = std::min(next, reboot_->by_us);
  next = std::min(next, kept_.next_forget_us());
  if (unborn()) return next;
  for (const auto& [number, stream] : streams_) {
    if (stream.command == nullptr) continue;
    if (stands_still() && stream.command->ending()) continue;
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
  add(box_->birth_fd(), POLLIN);
  // Nobody is let in while there is no room; they wait in the socket's queue.
  add(clients_.size() < kMaxClients && sys::monotonic_us() >= accept_again_us_ ? listener_.get()
                                                                               : -1,
      POLLIN);
  add(orders_.get(), POLLIN);
  std::vector<std::uint64_t> client_ids;
  for (auto& [id, client] : clients_) {
    client_ids.push_back(id);
    add(client.peer.fd(), client.peer.events());
  }
  std::vector<std::uint32_t> listening;
  for (auto& [number, stream] : streams_) {
    if (stream.command == nullptr || stream.command->refusals_fd() < 0) continue;
    listening.push_back(number);
    add(stream.command->refusals_fd(), POLLIN);
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

  if (entries[5].revents != 0) obey();
  if (entries[1].revents != 0) return end("the launcher is gone");
  if (ended_ || (entries[3].revents != 0 && !take_birth())) return;
  if ((entries[2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_guest();
  if (ended_) return;
  // The guest's last frames were read above; now it is really over.
  if (entries[0].revents != 0) return guest_gone("the guest ended");
  std::size_t at = 6;
  for (const std::uint64_t id : client_ids) {
    if ((entries[at++].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && client_of(id) != nullptr)
      read_client(id);
    if (ended_) return;
  }
  for (const std::uint32_t number : listening) {
    const short ready = entries[at++].revents;
    const auto found = streams_.find(number);
    if (ready == 0 || found == streams_.end()) continue;
    if (found->second.command->take_refusal(ready)) kill_command(number, found->second);
  }
  if ((entries[4].revents & POLLIN) != 0) accept_client();
  freeze_when_started();
  hold_when_started();
  check_commands();
}

void Supervisor::send_kept_output() {
  kept_.send([&](std::uint64_t client) -> Peer& { return clients_.at(client).peer; });
  for (auto& [number, stream] : streams_) {
    if (stream.kept == nullptr || kept_.must_wait(*stream.kept)) continue;
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      const std::size_t held = std::exchange(stream.held_back[channel], 0);
      if (held > 0) grant(number, stream, static_cast<std::uint8_t>(channel), held);
    }
  }
}

void Supervisor::say_farewell() {
  const std::uint64_t last_us = sys::monotonic_us() + kFarewellUs;
  std::uint64_t until_us = sys::monotonic_us() + kSilenceUs;
  for (;;) {
    send_kept_output();
    std::vector<pollfd> entries;
    std::vector<std::uint64_t> ids;
    for (auto& [id, client] : clients_) {
      client.peer.flush();
      if (client.peer.broken()) continue;
      if ((client.peer.events() & POLLOUT) == 0 && !kept_.has_client(id)) continue;
      ids.push_back(id);
      entries.push_back({client.peer.fd(), client.peer.events(), 0});
    }
    const std::uint64_t now = sys::monotonic_us();
    if (entries.empty() || now >= until_us || now >= last_us) return;
    if (::poll(entries.data(), entries.size(), 100) <= 0) continue;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if ((entries[i].revents & POLLOUT) != 0) until_us = now + kSilenceUs;
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      until_us = now + kSilenceUs;
      read_credit(ids[i]);
    }
  }
}

Status Supervisor::run() {
  greet();
  while (!ended_) {
    guest_.flush();
    send_kept_output();
    std::vector<std::uint64_t> lost;
    for (auto& [id, client] : clients_) {
      client.peer.flush();
      if (client.peer.broken()) lost.push_back(id);
    }
    for (const std::uint64_t id : lost) {
      if (client_of(id) != nullptr) drop_client(id);
    }
    over_.clear();
    take_waiting();
    if (guest_.broken()) guest_gone("the guest closed its channel");
    if (!ended_) turn();
  }
  // Whoever waits for the birth hears why there is none; take_birth() has told its own failure.
  if (unborn()) on_stillbirth_(Error::unavailable(end_reason_));
  (void)box_->kill();
  if (!streams_.empty()) {
    // What they used is whole when all is over. Nothing inside can outlive PID 1; what takes long
    // is the kernel tearing memory down.
    pollfd entry{box_->end_fd(), POLLIN, 0};
    (void)::poll(&entry, 1, 10'000);
  }
  for (auto& [number, stream] : streams_) {
    if (stream.command != nullptr) {
      finish_command(stream, std::nullopt);
    } else {
      refuse(stream.client, stream.client_stream, Error::unavailable("the sandbox has ended"));
    }
  }
  streams_.clear();
  over_.clear();
  box_->let_go();
  proto::Fields ended;
  ended.put_error(Error::unavailable("the sandbox has ended"));
  kept_.end_all(ended.bytes(), sys::monotonic_us());
  say_farewell();
  return {};
}

Status supervise(SupervisorInput input) {
  return Supervisor(std::move(input)).run();
}

}  // namespace caisson::launcher
