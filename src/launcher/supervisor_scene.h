// For tests: a supervisor on a thread of its own, between a box whose guest the test plays and
// clients that the test plays too. One test thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "base/verdict.h"
#include "launcher/supervisor.h"

namespace caisson::launcher {

using proto::Channel;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

inline constexpr int kPatienceMs = 10'000;

// What the test sees of a FakeBox.
struct BoxState {
  bool has_groups = true;
  bool passes_descriptors = true;
  std::atomic<int> slot_kills = 0;
  std::atomic<bool> killed = false;
  std::atomic<bool> frozen = false;
  bool freezes = true;
  std::atomic<int> boots = 0;
  // What the box hands out; a directory as the layer.
  bool hands_out = false;
  wall::Usage usage;
  // Readable once the guest is born; -1: it has been. One byte of anything but 'b' is a failure.
  std::atomic<int> birth_fd = -1;
  // What the supervisor said of it, to be read when it has ended.
  std::string stillbirth;
  // The changes that it told, to be read when it has ended.
  std::vector<SandboxState> told;
};

class FakeSlot final : public wall::ExecSlot {
 public:
  explicit FakeSlot(BoxState& state) : state_(state) {}
  std::span<const int> descriptors() const override { return {}; }
  bool born_in_last() const override { return false; }
  Result<wall::Usage> sample() override { return wall::Usage(); }
  Status kill() override {
    if (!state_.has_groups) return fail(Error{Code::kUnimplemented, "no group"});
    ++state_.slot_kills;
    return {};
  }

 private:
  BoxState& state_;
};

// A box whose guest is the test.
class FakeBox final : public wall::Box {
 public:
  FakeBox(BoxState& state, Fd channel)
      : state_(state), channel_(std::move(channel)), end_(::eventfd(0, EFD_CLOEXEC)) {}
  int channel_fd() const override { return channel_.get(); }
  bool channel_passes_descriptors() const override { return state_.passes_descriptors; }
  int end_fd() const override { return end_.get(); }
  wall::HeldLimits held() const override { return {}; }
  Result<std::unique_ptr<wall::ExecSlot>> make_slot() override {
    return std::make_unique<FakeSlot>(state_);
  }
  Result<wall::Usage> usage() override { return state_.usage; }
  Status freeze() override {
    if (!state_.freezes) return fail(Error::precondition("no freezer"));
    state_.frozen = true;
    return {};
  }
  Status thaw() override {
    state_.frozen = false;
    return {};
  }
  Status renew_boot_id() override {
    ++state_.boots;
    return {};
  }
  Status kill() override {
    state_.killed = true;
    const std::uint64_t one = 1;
    if (::write(end_.get(), &one, sizeof one) != sizeof one) return fail_errno("eventfd");
    return {};
  }
  Result<Fd> attach_network(std::string_view) override { return Fd(); }
  void let_go() override {}
  Status checkpoint(int) override { return {}; }
  Status confine() override { return {}; }
  int birth_fd() const override { return state_.birth_fd; }
  Status await_birth() override {
    char word = 0;
    const bool born = ::read(state_.birth_fd, &word, 1) == 1 && word == 'b';
    state_.birth_fd = -1;
    if (!born) return fail(Error::internal("not born"));
    return {};
  }
  wall::Gateway take_gateway() override { return {}; }
  wall::Handouts take_handouts() override {
    wall::Handouts handouts;
    if (!state_.hands_out) return handouts;
    handouts.layer = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    handouts.record = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    handouts.uid_lines = "0 100000 65536\n";
    handouts.gid_lines = "0 200000 65536\n";
    return handouts;
  }

 private:
  BoxState& state_;
  Fd channel_, end_;
};

inline std::string hello_frame(std::uint16_t version = proto::kVersion,
                               std::uint16_t least = proto::kMinVersion) {
  return proto::encode_frame(
      0, FrameType::kHello, 0,
      proto::Fields().put_u32(Tag::kVersion, version).put_u32(Tag::kMinVersion, least).bytes());
}

// One end of a framed connection: blocking, with a deadline.
class Line {
 public:
  explicit Line(Fd socket, std::string_view hello = hello_frame()) : socket_(std::move(socket)) {
    raw(hello);
  }

  void raw(std::string_view bytes, std::span<const int> descriptors = {}) {
    while (!bytes.empty()) {
      const ssize_t count = sys::send_part(socket_.get(), bytes, descriptors);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
      descriptors = {};
    }
  }
  void send(std::uint32_t stream, FrameType type, std::uint8_t detail, std::string_view payload,
            std::span<const int> descriptors = {}) {
    raw(proto::encode_frame(stream, type, detail, payload), descriptors);
  }
  void grant(std::uint32_t stream, Channel channel, std::uint32_t bytes) {
    raw(proto::encode_credit(stream, channel, bytes));
  }
  // The next frame but HELLO; nullopt at the end of the connection, or when nothing has come for
  // `patience_ms`.
  std::optional<proto::Frame> next(int patience_ms = kPatienceMs) {
    for (;;) {
      auto frame = decoder_.next();
      EXPECT_TRUE(frame.has_value());
      if (!frame) return std::nullopt;
      if (frame->has_value()) {
        if ((*frame)->header.type == FrameType::kHello) {
          greeted = true;
          continue;
        }
        return std::move(**frame);
      }
      pollfd entry{socket_.get(), POLLIN, 0};
      if (::poll(&entry, 1, patience_ms) <= 0) return std::nullopt;
      char room[65536];
      const sys::ReceivedPart part = sys::receive_part(socket_.get(), room);
      if (part.count <= 0) return std::nullopt;
      descriptors_seen += part.descriptors.size();
      decoder_.feed({room, static_cast<std::size_t>(part.count)});
    }
  }
  // The next frame of a type; others are passed over.
  std::optional<proto::Frame> next(FrameType type) {
    for (;;) {
      auto frame = next();
      if (!frame || frame->header.type == type) return frame;
    }
  }
  void hang_up() { socket_.reset(); }
  std::size_t descriptors_seen = 0;  // that have come so far
  bool greeted = false;              // by the peer's HELLO

 private:
  Fd socket_;
  proto::Decoder decoder_;
};

inline std::pair<Fd, Fd> sockets() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A supervisor on a thread of its own, between a guest and clients that the test plays.
class Scene {
 public:
  explicit Scene(wall::Plan plan, BoxState& state, std::optional<std::uint64_t> reboot_us = {})
      : plan_(std::move(plan)) {
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;  // bound without a name: an abstract one is chosen
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)),
              0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    address_size_ = sizeof address_;
    EXPECT_EQ(
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &address_size_), 0);
    auto [guest_here, guest_there] = sockets();
    auto [client_here, client_there] = sockets();
    auto [broker_here, broker_there] = sockets();
    broker_ = std::move(broker_here);
    guest.emplace(std::move(guest_here));
    first.emplace(std::move(client_here));
    SupervisorInput input{
        .plan = plan_,
        .box = std::make_unique<FakeBox>(state, std::move(guest_there)),
        .first_client = std::move(client_there),
        .listener = std::move(listener_),
        .broker = std::move(broker_there),
        .command_limits = {},
        .on_birth = [](wall::Box& box) { return box.await_birth(); },
        .on_stillbirth = [&state](const Error& why) { state.stillbirth = why.message(); },
        .on_state = [&state](const SandboxState& changed) { state.told.push_back(changed); }};
    if (reboot_us) input.reboot_us = *reboot_us;
    thread_ = std::thread([moved = std::make_shared<SupervisorInput>(std::move(input))] {
      EXPECT_TRUE(supervise(std::move(*moved)).has_value());
    });
  }
  ~Scene() {
    broker_.reset();  // the end of the launcher ends it
    thread_.join();
  }

  Line connect(std::string_view hello = hello_frame()) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), address_size_),
              0);
    return Line(std::move(socket), hello);
  }
  // Opens an exec and returns the guest's number for it.
  std::uint32_t open(Line& client, std::uint32_t stream, const proto::Fields& more = {}) {
    client.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put(Tag::kArg, "program").bytes() + more.bytes());
    const auto frame = guest->next(FrameType::kOpen);
    EXPECT_TRUE(frame.has_value());
    return frame ? frame->header.stream : 0;
  }
  void started(std::uint32_t number) {
    guest->send(number, FrameType::kEvent, 0, proto::Fields().put_u32(Tag::kStarted, 7).bytes());
  }
  void exited(std::uint32_t number, std::uint32_t code) {
    guest->send(number, FrameType::kClose, 0,
                proto::Fields().put_u32(Tag::kExitCode, code).bytes());
  }

  std::optional<Line> guest, first;

 private:
  wall::Plan plan_;
  Fd listener_, broker_;
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::thread thread_;
};

inline std::uint8_t number_of(Channel channel) {
  return static_cast<std::uint8_t>(channel);
}

inline Outcome outcome_of(const std::optional<proto::Frame>& close) {
  EXPECT_TRUE(close.has_value());
  if (!close) return {};
  auto outcome = decode_outcome(close->payload);
  EXPECT_TRUE(outcome.has_value());
  return outcome ? *outcome : Outcome();
}

// Of a sandbox that outlives its clients.
inline wall::Plan kept_plan() {
  wall::Plan plan;
  plan.life = Life::kKept;
  plan.timeout_ms = 60'000;
  return plan;
}

inline std::string shutdown_fields() {
  return proto::Fields()
      .put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(proto::ControlOperation::kShutdown))
      .bytes();
}

}  // namespace caisson::launcher
