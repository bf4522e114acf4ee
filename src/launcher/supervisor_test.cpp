#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "launcher/supervisor_scene.h"

namespace caisson::launcher {
namespace {

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
