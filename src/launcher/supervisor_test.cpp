#include "launcher/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <string>
#include <thread>

#include "base/sys.h"
#include "base/verdict.h"
#include "launcher/main_output.h"

namespace caisson::launcher {
namespace {

using proto::Channel;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

constexpr int kPatienceMs = 10'000;

// What the test sees of a FakeBox.
struct BoxState {
  bool has_groups = true;
  bool passes_descriptors = true;
  std::atomic<int> slot_kills = 0;
  std::atomic<bool> killed = false;
  // Readable once the guest is born; -1: it has been. One byte of anything but 'b' is a failure.
  std::atomic<int> birth_fd = -1;
  // What the supervisor said of it, to be read when it has ended.
  std::string stillbirth;
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
  Result<wall::Usage> usage() override { return wall::Usage(); }
  Status freeze() override { return {}; }
  Status thaw() override { return {}; }
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
  wall::Handouts take_handouts() override { return {}; }

 private:
  BoxState& state_;
  Fd channel_, end_;
};

std::string hello_frame() {
  return proto::encode_frame(0, FrameType::kHello, 0,
                             proto::Fields()
                                 .put_u32(Tag::kVersion, proto::kVersion)
                                 .put_u32(Tag::kMinVersion, proto::kMinVersion)
                                 .bytes());
}

// One end of a framed connection: blocking, with a deadline.
class Line {
 public:
  explicit Line(Fd socket) : socket_(std::move(socket)) { raw(hello_frame()); }

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
        if ((*frame)->header.type == FrameType::kHello) continue;
        return std::move(**frame);
      }
      pollfd entry{socket_.get(), POLLIN, 0};
      if (::poll(&entry, 1, patience_ms) <= 0) return std::nullopt;
      char room[65536];
      const sys::ReceivedPart part = sys::receive_part(socket_.get(), room);
      if (part.count <= 0) return std::nullopt;
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

 private:
  Fd socket_;
  proto::Decoder decoder_;
};

std::pair<Fd, Fd> sockets() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// A supervisor on a thread of its own, between a guest and clients that the test plays.
class Scene {
 public:
  explicit Scene(wall::Plan plan, BoxState& state) : plan_(std::move(plan)) {
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
        .on_stillbirth = [&state](const Error& why) { state.stillbirth = why.message(); }};
    thread_ = std::thread([moved = std::make_shared<SupervisorInput>(std::move(input))] {
      EXPECT_TRUE(supervise(std::move(*moved)).has_value());
    });
  }
  ~Scene() {
    broker_.reset();  // the end of the launcher ends it
    thread_.join();
  }

  Line connect() {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), address_size_),
              0);
    return Line(std::move(socket));
  }
  // Opens an exec and returns the guest's number for it.
  std::uint32_t open(Line& client, std::uint32_t stream) {
    client.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put(Tag::kArg, "program").bytes());
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

std::uint8_t number_of(Channel channel) {
  return static_cast<std::uint8_t>(channel);
}

Outcome outcome_of(const std::optional<proto::Frame>& close) {
  EXPECT_TRUE(close.has_value());
  if (!close) return {};
  auto outcome = decode_outcome(close->payload);
  EXPECT_TRUE(outcome.has_value());
  return outcome ? *outcome : Outcome();
}

std::string shutdown_fields() {
  return proto::Fields()
      .put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(proto::ControlOperation::kShutdown))
      .bytes();
}

TEST(Supervisor, ACommandGoesFromOpenToVerdict) {
  BoxState state;
  Scene scene({}, state);
  const std::uint32_t number = scene.open(*scene.first, 1);
  scene.started(number);
  scene.guest->send(number, FrameType::kData, number_of(Channel::kOut), "hello");
  scene.exited(number, 3);
  EXPECT_EQ(scene.first->next()->header.type, FrameType::kEvent);
  EXPECT_EQ(scene.first->next()->payload, "hello");
  const Outcome outcome = outcome_of(scene.first->next());
  EXPECT_EQ(outcome.verdict, Verdict::kExited);
  EXPECT_EQ(outcome.exit_code, 3u);
  EXPECT_EQ(outcome.usage.bytes_out, 5u);
}

TEST(Supervisor, EveryCommandHasThePlansVariablesAndDirectoryUnlessItSaysOtherwise) {
  BoxState state;
  wall::Plan plan;
  plan.environment = {"A=1", "B="};
  plan.workdir = "/srv";
  Scene scene(plan, state);
  const auto opened = [&](std::uint32_t stream, const proto::Fields& fields) {
    scene.first->send(stream, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                      fields.bytes());
    return scene.guest->next(FrameType::kOpen)->payload;
  };
  const std::string bare = opened(1, proto::Fields().put(Tag::kArg, "program"));
  const auto fields = proto::FieldReader::parse(bare);
  EXPECT_EQ(fields->all(Tag::kDefaultEnv), (std::vector<std::string_view>{"A=1", "B="}));
  EXPECT_EQ(*fields->text(Tag::kCwd), "/srv");
  const std::string own =
      opened(3, proto::Fields().put(Tag::kArg, "program").put(Tag::kCwd, "/app"));
  EXPECT_EQ(proto::FieldReader::parse(own)->all(Tag::kCwd),
            (std::vector<std::string_view>{"/app"}));
  scene.first->send(5, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                    proto::Fields().put(Tag::kArg, "x").put(Tag::kDefaultEnv, "A=2").bytes());
  EXPECT_TRUE(proto::FieldReader::parse(scene.first->next(FrameType::kClose)->payload)
                  ->has(Tag::kErrorCode));
}

struct Birth {
  Birth(BoxState& state) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
    state.birth_fd = read.get();
  }
  void tell(char word) { EXPECT_EQ(::write(write.get(), &word, 1), 1); }
  Fd read, write;
};

TEST(Supervisor, WhatIsAskedForBeforeTheBirthHasItsTimeFromThere) {
  BoxState state;
  Birth birth(state);
  wall::Plan plan;
  plan.timeout_ms = 50;
  Scene scene(plan, state);
  const std::uint32_t number = scene.open(*scene.first, 1);
  ::poll(nullptr, 0, 150);  // thrice its time
  EXPECT_EQ(state.slot_kills, 0);
  birth.tell('b');
  // No guest says anything: now the time is over, and it is ended for it.
  const auto close = scene.guest->next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(close->header.stream, number);
  EXPECT_GE(state.slot_kills, 1);
  scene.guest->send(number, FrameType::kClose, 0,
                    proto::Fields().put_u32(Tag::kExitSignal, SIGKILL).bytes());
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kTimeLimit);
}

TEST(Supervisor, WhatIsCancelledBeforeTheBirthDoesNotStayAfterIt) {
  BoxState state;
  Birth birth(state);
  Scene scene({}, state);
  const std::uint32_t number = scene.open(*scene.first, 1);
  scene.first->send(1, FrameType::kControl, 0, shutdown_fields());
  // Whatever the supervisor answers next, it has taken that.
  Line other = scene.connect();
  ASSERT_NE(scene.open(other, 1), number);
  birth.tell('b');
  const auto close = scene.guest->next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(close->header.stream, number);
}

TEST(Supervisor, AnEndBeforeTheBirthIsTold) {
  BoxState state;
  Birth birth(state);
  {
    const Scene scene({}, state);
  }  // the launcher goes
  EXPECT_EQ(state.stillbirth, "the launcher is gone");
}

TEST(Supervisor, AFailedBirthEndsItWithoutASecondWord) {
  BoxState state;
  Birth birth(state);
  {
    Scene scene({}, state);
    birth.tell('x');
    EXPECT_FALSE(scene.guest->next(FrameType::kOpen).has_value());  // its connection ends
  }
  EXPECT_TRUE(state.killed);
  EXPECT_EQ(state.stillbirth, "");
}

TEST(Supervisor, ASingleSandboxEndsWithItsOwnersCommandAlone) {
  BoxState state;
  wall::Plan plan;
  plan.single = 1;
  Scene scene(plan, state);
  Line other = scene.connect();
  const std::uint32_t theirs = scene.open(other, 1);
  scene.exited(theirs, 0);
  EXPECT_EQ(outcome_of(other.next(FrameType::kClose)).verdict, Verdict::kExited);
  EXPECT_FALSE(state.killed);
  const std::uint32_t ours = scene.open(*scene.first, 1);
  scene.exited(ours, 5);
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).exit_code, 5u);
  EXPECT_FALSE(scene.first->next(FrameType::kClose).has_value());  // the connection's end
  EXPECT_TRUE(state.killed);
}

TEST(Supervisor, AClientThatDiesWithUnreadOutputEndsItsCommandAlone) {
  for (const bool has_groups : {true, false}) {
    BoxState state;
    state.has_groups = has_groups;
    Scene scene({}, state);
    Line other = scene.connect();
    const std::uint32_t number = scene.open(other, 1);
    scene.started(number);
    // All that was granted, and more than the client's socket takes, lies with the supervisor.
    const std::string bytes(32 * 1024, 'x');
    for (const Channel channel : {Channel::kOut, Channel::kErr})
      for (std::size_t sent = 0; sent < proto::kInitialCredit; sent += bytes.size())
        scene.guest->send(number, FrameType::kData, number_of(channel), bytes);
    ASSERT_TRUE(other.next(FrameType::kData).has_value());
    other.hang_up();
    if (!has_groups) {
      const auto signal = scene.guest->next(FrameType::kControl);
      ASSERT_TRUE(signal.has_value());
      const auto fields = proto::FieldReader::parse(signal->payload);
      EXPECT_EQ(fields->number_or_none(Tag::kSignal), static_cast<std::uint64_t>(SIGKILL));
    }
    const auto close = scene.guest->next(FrameType::kClose);
    ASSERT_TRUE(close.has_value());
    EXPECT_EQ(close->header.stream, number);
    EXPECT_EQ(state.slot_kills, has_groups ? 1 : 0);
    scene.guest->send(number, FrameType::kClose, 0,
                      proto::Fields().put_u32(Tag::kExitSignal, SIGKILL).bytes());
    // The owner and its commands go on.
    const std::uint32_t next = scene.open(*scene.first, 1);
    EXPECT_NE(next, number);
    scene.exited(next, 0);
    EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kExited);
    EXPECT_FALSE(state.killed);
  }
}

TEST(Supervisor, TheOwnersDeathEndsTheSandbox) {
  BoxState state;
  Scene scene({}, state);
  scene.started(scene.open(*scene.first, 1));
  ASSERT_TRUE(scene.first->next(FrameType::kEvent).has_value());
  scene.first->hang_up();
  EXPECT_FALSE(scene.guest->next(FrameType::kClose).has_value());
  EXPECT_TRUE(state.killed);
}

wall::Plan detached_plan() {
  wall::Plan plan;
  plan.life = Life::kMainCommand;
  return plan;
}

TEST(Supervisor, TheMainCommandGoesOnWhenItsClientDiesWithUnreadOutput) {
  BoxState state;
  Scene scene(detached_plan(), state);
  const std::uint32_t number = scene.open(*scene.first, 1);
  scene.started(number);
  const std::string bytes(32 * 1024, 'x');
  for (std::size_t sent = 0; sent < proto::kInitialCredit; sent += bytes.size())
    scene.guest->send(number, FrameType::kData, number_of(Channel::kOut), bytes);
  ASSERT_TRUE(scene.first->next(FrameType::kData).has_value());
  scene.first->hang_up();
  // What nobody will acknowledge any more is granted, so that the command can write on.
  std::uint32_t granted = 0;
  while (granted < proto::kInitialCredit) {
    const auto credit = scene.guest->next(FrameType::kCredit);
    ASSERT_TRUE(credit.has_value()) << granted;
    granted += *proto::parse_credit(credit->payload);
  }
  EXPECT_EQ(granted, proto::kInitialCredit);
  EXPECT_EQ(state.slot_kills, 0);
  EXPECT_FALSE(state.killed);
}

// A detached sandbox whose main command writes as much as the test wants, and its readers.
class Readers : public ::testing::Test {
 protected:
  Readers() : scene_(detached_plan(), state_) {
    number_ = scene_.open(*scene_.first, 1);
    scene_.started(number_);
    EXPECT_TRUE(scene_.first->next(FrameType::kEvent).has_value());
    scene_.first->hang_up();
    EXPECT_TRUE(scene_.guest->next(FrameType::kFinish).has_value());
  }
  Line attach(bool follow) {
    Line reader = scene_.connect();
    reader.send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put_u8(Tag::kAttach, follow ? 1 : 0).bytes());
    // Answered in order: when the ping has come back, the stream is open.
    reader.send(3, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kControl),
                proto::Fields()
                    .put_u8(Tag::kControlOperation,
                            static_cast<std::uint8_t>(proto::ControlOperation::kPing))
                    .bytes());
    EXPECT_TRUE(scene_.guest->next(FrameType::kOpen).has_value());
    return reader;
  }
  // The main command writes; the supervisor has taken it all when this returns.
  void write(std::size_t bytes) {
    const std::string block(32 * 1024, 'x');
    std::size_t granted = 0;
    for (std::size_t sent = 0; sent < bytes; sent += block.size()) {
      scene_.guest->send(number_, FrameType::kData, number_of(Channel::kOut), block);
      while (granted <= sent) {
        const auto credit = scene_.guest->next(FrameType::kCredit);
        ASSERT_TRUE(credit.has_value());
        granted += *proto::parse_credit(credit->payload);
      }
    }
  }

  BoxState state_;
  Scene scene_;
  std::uint32_t number_ = 0;
};

// What a reader gets until its stream is closed, or nothing comes any more.
struct Got {
  std::size_t bytes = 0;
  std::uint64_t missed = 0;
  int gaps = 0;
  std::optional<std::string> close;
};

Got read_on(Line& reader, bool grants, int silence_ms) {
  Got got;
  while (auto frame = reader.next(silence_ms)) {
    if (frame->header.stream != 1) continue;
    if (frame->header.type == FrameType::kData) {
      got.bytes += frame->payload.size();
      if (grants)
        reader.grant(1, static_cast<Channel>(frame->header.detail),
                     static_cast<std::uint32_t>(frame->payload.size()));
    } else if (frame->header.type == FrameType::kEvent) {
      ++got.gaps;
      got.missed += proto::FieldReader::parse(frame->payload)->number_or_none(Tag::kMissed).value();
    } else if (frame->header.type == FrameType::kClose) {
      got.close = frame->payload;
      break;
    }
  }
  return got;
}

TEST_F(Readers, OneThatDoesNotReadCostsItsCreditAndIsToldWhatItMissed) {
  constexpr std::size_t kTotal = 8u << 20;
  Line reader = attach(true);
  Line quick = attach(true);
  std::thread reading([&] {
    const Got all = read_on(quick, true, kPatienceMs);
    EXPECT_EQ(all.bytes + all.missed, kTotal);
    EXPECT_TRUE(all.close.has_value());
  });
  write(kTotal);
  // Nothing was granted: no more than the first credit came.
  const Got before = read_on(reader, false, 300);
  EXPECT_EQ(before.bytes, proto::kInitialCredit);
  EXPECT_EQ(before.gaps, 0);
  EXPECT_FALSE(before.close.has_value());
  scene_.exited(number_, 6);
  reader.grant(1, Channel::kOut, proto::kInitialCredit);
  const Got rest = read_on(reader, true, kPatienceMs);
  EXPECT_EQ(rest.gaps, 1);
  EXPECT_EQ(rest.bytes, OutputTail::kMaxBytes);
  EXPECT_EQ(before.bytes + rest.missed + rest.bytes, kTotal);
  ASSERT_TRUE(rest.close.has_value());
  EXPECT_EQ(decode_outcome(*rest.close)->exit_code, 6u);
  reading.join();
}

TEST_F(Readers, OneThatOnlyLooksGetsWhatIsKeptAndNoVerdict) {
  write(128 * 1024);
  Line reader = attach(false);
  const Got got = read_on(reader, true, kPatienceMs);
  EXPECT_EQ(got.bytes, 128u * 1024);
  EXPECT_EQ(got.missed, 0u);
  EXPECT_EQ(got.close, "");
}

TEST_F(Readers, OneThatLeavesIsLetGoAndTheCommandGoesOn) {
  Line reader = attach(true);
  write(32 * 1024);
  reader.send(1, FrameType::kControl, 0, shutdown_fields());
  EXPECT_EQ(read_on(reader, false, kPatienceMs).close, "");
  Line second = attach(true);
  second.send(1, FrameType::kClose, 0, "");
  EXPECT_EQ(read_on(second, false, kPatienceMs).close, "");
  EXPECT_EQ(state_.slot_kills, 0);
  EXPECT_FALSE(state_.killed);
}

TEST_F(Readers, OneThatBreaksTheProtocolIsDropped) {
  for (const auto& frame :
       {proto::encode_credit(1, Channel::kOut, 8 * proto::kInitialCredit),
        proto::encode_frame(1, FrameType::kData, 0, "x"),
        proto::encode_frame(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                            proto::Fields().put_u8(Tag::kAttach, 1).bytes())}) {
    Line reader = attach(true);
    reader.raw(frame);
    EXPECT_FALSE(reader.next(FrameType::kClose).has_value());
  }
  write(32 * 1024);
  EXPECT_FALSE(state_.killed);
}

TEST_F(Readers, AreBounded) {
  Line reader = scene_.connect();
  // One place is the main command's.
  for (std::uint32_t i = 0; i < proto::kMaxStreams; ++i)
    reader.send(2 * i + 1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put_u8(Tag::kAttach, 1).bytes());
  const auto refused = reader.next(FrameType::kClose);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->header.stream, 2 * proto::kMaxStreams - 1);
  const auto fields = proto::FieldReader::parse(refused->payload);
  EXPECT_EQ(fields->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kResourceExhausted));
}

TEST(Supervisor, AReaderOfASandboxThatHasNoMainCommandIsToldOfItsEnd) {
  BoxState state;
  Scene scene({}, state);
  Line reader = scene.connect();
  reader.send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
              proto::Fields().put_u8(Tag::kAttach, 1).bytes());
  const std::uint32_t number = scene.open(reader, 3);  // so that the first has been taken
  scene.exited(number, 0);
  scene.first->send(0, FrameType::kControl, 0, shutdown_fields());
  std::optional<proto::Frame> close;
  do close = reader.next(FrameType::kClose);
  while (close && close->header.stream != 1);
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(proto::FieldReader::parse(close->payload)->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kUnavailable));
}

TEST(Supervisor, EndingForARefusedCallNeedsDescriptorsOverTheChannel) {
  BoxState state;
  state.passes_descriptors = false;
  wall::Plan plan;
  plan.on_refusal = 1;
  Scene scene(plan, state);
  scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                    proto::Fields().put(Tag::kArg, "program").bytes());
  const auto close = scene.first->next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  const auto fields = proto::FieldReader::parse(close->payload);
  EXPECT_EQ(fields->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kFailedPrecondition));
  EXPECT_NE(fields->text(Tag::kErrorMessage)->find("on_refusal: kill"), std::string::npos);
}

TEST(Supervisor, SudosRightsOverFilesAreForSandboxesThatHaveSudo) {
  const auto ask = [](std::uint8_t privileges) {
    BoxState state;
    wall::Plan plan;
    plan.privileges = privileges;
    Scene scene(plan, state);
    scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kFile),
                      proto::Fields().put_u8(Tag::kPrivileges, 1).bytes());
    if (privileges != 0) return scene.guest->next(FrameType::kOpen).has_value();
    const auto close = scene.first->next(FrameType::kClose);
    if (!close.has_value()) return false;
    const auto fields = proto::FieldReader::parse(close->payload);
    return fields.has_value() && fields->number_or_none(Tag::kErrorCode) ==
                                     static_cast<std::uint64_t>(Code::kPermissionDenied);
  };
  EXPECT_TRUE(ask(0));
  EXPECT_TRUE(ask(1));
}

// What the guest is told of a file operation.
std::optional<proto::Frame> opened_file(bool writable) {
  BoxState state;
  wall::Plan plan;
  plan.privileges = 1;
  wall::PlanGrant grant;
  grant.writable = writable;
  plan.grants.push_back(grant);
  Scene scene(plan, state);
  scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kFile),
                    proto::Fields().put_u8(Tag::kPrivileges, 1).bytes());
  return scene.guest->next(FrameType::kOpen);
}

TEST(Supervisor, FileOperationsMakeNoSetIdFilesWhereAGrantIsWritable) {
  for (const bool writable : {false, true}) {
    const auto open = opened_file(writable);
    ASSERT_TRUE(open.has_value());
    const auto fields = proto::FieldReader::parse(open->payload);
    ASSERT_TRUE(fields.has_value());
    EXPECT_EQ(fields->has(Tag::kNoSetid), writable);
    EXPECT_EQ(fields->number_or_none(Tag::kPrivileges), 1u);
  }
}

TEST(Supervisor, AClientDoesNotSayWhichSetIdModesItsFilesMayHave) {
  BoxState state;
  Scene scene({}, state);
  scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kFile),
                    proto::Fields().put_u8(Tag::kNoSetid, 0).bytes());
  const auto close = scene.first->next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  const auto fields = proto::FieldReader::parse(close->payload);
  EXPECT_EQ(fields->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kInvalidArgument));
}

}  // namespace
}  // namespace caisson::launcher
