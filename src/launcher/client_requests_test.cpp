#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "launcher/supervisor_scene.h"

namespace caisson::launcher {
namespace {

using proto::ControlOperation;

proto::Fields request(ControlOperation operation) {
  proto::Fields fields;
  fields.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation))
      .put_u32(Tag::kRequest, 77);
  return fields;
}

// The answer of the supervisor; it is to that request.
std::string answer(Line& client, const proto::Fields& asked) {
  client.send(0, FrameType::kControl, 0, asked.bytes());
  const auto event = client.next(FrameType::kEvent);
  EXPECT_TRUE(event.has_value());
  if (!event) return "";
  EXPECT_EQ(event->header.stream, 0u);
  const auto fields = proto::FieldReader::parse(event->payload);
  const auto sent = proto::FieldReader::parse(asked.bytes());
  EXPECT_EQ(fields->number_or_none(Tag::kRequest), 77u);
  EXPECT_EQ(*fields->number(Tag::kControlOperation), *sent->number(Tag::kControlOperation));
  return event->payload;
}

std::uint64_t field(const std::string& payload, Tag tag) {
  return proto::FieldReader::parse(payload)->number_or_none(tag).value_or(~0ull);
}

Code error_of(const std::string& payload) {
  return static_cast<Code>(field(payload, Tag::kErrorCode));
}

// A command of the first client that has started.
std::uint32_t run(Scene& scene, std::uint32_t stream, const proto::Fields& more = {}) {
  const std::uint32_t number = scene.open(*scene.first, stream, more);
  scene.started(number);
  EXPECT_TRUE(scene.first->next(FrameType::kEvent).has_value());
  return number;
}

std::uint64_t unix_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

TEST(ClientRequests, TheDeadlineIsMovedBothWays) {
  BoxState state;
  {
    Scene scene(kept_plan(), state);
    for (const std::uint64_t from_now : {3'600'000ull, 600'000ull}) {
      const std::uint64_t before = unix_ms();
      const std::string told =
          answer(*scene.first,
                 request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, from_now));
      EXPECT_GE(field(told, Tag::kDeadlineMs) + 2, before + from_now);
      EXPECT_LE(field(told, Tag::kDeadlineMs), unix_ms() + from_now);
    }
    EXPECT_FALSE(state.killed);
  }
  ASSERT_EQ(state.told.size(), 2u);
  EXPECT_GT(state.told[0].deadline_ms, state.told[1].deadline_ms);
}

TEST(ClientRequests, WhoSpeaksAnotherVersionIsToldOursAndDropped) {
  BoxState state;
  Scene scene(kept_plan(), state);
  Line stranger = scene.connect(hello_frame(proto::kVersion + 2, proto::kVersion + 1));
  EXPECT_FALSE(stranger.next().has_value());
  EXPECT_TRUE(stranger.greeted);
  // One version on is no stranger.
  Line next = scene.connect(hello_frame(proto::kVersion + 1, proto::kVersion));
  static_cast<void>(answer(next, request(ControlOperation::kUsage)));
  EXPECT_TRUE(next.greeted);
  EXPECT_FALSE(state.killed);
}

TEST(ClientRequests, ADeadlineOfZeroEndsItAtOnceWithAnAnswer) {
  BoxState state;
  Scene scene(kept_plan(), state);
  scene.open(*scene.first, 1);
  const std::string told =
      answer(*scene.first, request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, 0));
  EXPECT_LE(field(told, Tag::kDeadlineMs), unix_ms());
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kTimeLimit);
  EXPECT_FALSE(scene.first->next().has_value());
  EXPECT_TRUE(state.killed);
}

TEST(ClientRequests, TheSandboxEndsAtItsDeadlineAlsoWhenItIsFrozen) {
  for (const bool frozen : {false, true}) {
    BoxState state;
    wall::Plan plan = kept_plan();
    plan.timeout_ms = 200;
    Scene scene(plan, state);
    if (frozen) answer(*scene.first, request(ControlOperation::kFreeze));
    EXPECT_FALSE(scene.first->next().has_value());
    EXPECT_TRUE(state.killed);
  }
}

TEST(ClientRequests, ItsTimeoutIsNotItsCommands) {
  BoxState state;
  wall::Plan plan = kept_plan();
  plan.timeout_ms = 100;
  Scene scene(plan, state);
  answer(*scene.first, request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, 60'000));
  const std::uint32_t number = scene.open(*scene.first, 1);
  // Nothing comes for it.
  EXPECT_FALSE(scene.guest->next(300).has_value());
  EXPECT_EQ(state.slot_kills, 0);
  scene.exited(number, 0);
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kExited);
}

TEST(ClientRequests, BadDeadlinesAreRefused) {
  BoxState state;
  Scene kept(kept_plan(), state);
  EXPECT_EQ(error_of(answer(*kept.first, request(ControlOperation::kSetDeadline))),
            Code::kInvalidArgument);
  EXPECT_EQ(
      error_of(answer(*kept.first,
                      request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, ~0ull))),
      Code::kInvalidArgument);
  BoxState other;
  Scene owned({}, other);
  EXPECT_EQ(error_of(answer(*owned.first,
                            request(ControlOperation::kSetDeadline).put_u64(Tag::kTimeLimitMs, 1))),
            Code::kFailedPrecondition);
}

TEST(ClientRequests, AFrozenSandboxRunsNoNewCommandsAndIsThawed) {
  BoxState state;
  {
    Scene scene(kept_plan(), state);
    EXPECT_EQ(field(answer(*scene.first, request(ControlOperation::kFreeze)), Tag::kFrozen), 1u);
    EXPECT_TRUE(state.frozen);
    EXPECT_EQ(field(answer(*scene.first, request(ControlOperation::kUsage)), Tag::kFrozen), 1u);
    scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                      proto::Fields().put(Tag::kArg, "program").bytes());
    EXPECT_EQ(error_of(scene.first->next(FrameType::kClose)->payload), Code::kFailedPrecondition);
    EXPECT_EQ(field(answer(*scene.first, request(ControlOperation::kThaw)), Tag::kFrozen), 0u);
    EXPECT_FALSE(state.frozen);
    EXPECT_NE(scene.open(*scene.first, 3), 0u);
  }
  ASSERT_EQ(state.told.size(), 2u);
  EXPECT_EQ(state.told[0].frozen, Frozen::kYes);
  EXPECT_EQ(state.told[1].frozen, Frozen::kNo);
}

TEST(ClientRequests, WhatCannotBeFrozenIsRefused) {
  BoxState state;
  state.freezes = false;
  Scene scene(kept_plan(), state);
  EXPECT_EQ(error_of(answer(*scene.first, request(ControlOperation::kFreeze))),
            Code::kFailedPrecondition);
  EXPECT_NE(scene.open(*scene.first, 1), 0u);
}

TEST(ClientRequests, WhatIsToEndWhileFrozenHasItsTimeAfterThat) {
  BoxState state;
  Scene scene(kept_plan(), state);
  const std::uint32_t number = run(scene, 1);
  answer(*scene.first, request(ControlOperation::kFreeze));
  scene.first->send(1, FrameType::kControl, 0, shutdown_fields());
  // Far more than a command has to end otherwise.
  EXPECT_FALSE(scene.guest->next(1500).has_value());
  EXPECT_FALSE(state.killed);
  answer(*scene.first, request(ControlOperation::kThaw));
  scene.exited(number, 0);
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kCancelled);
}

TEST(ClientRequests, ACommandsOwnTimeGoesOnWhileItIsFrozen) {
  BoxState state;
  Scene scene(kept_plan(), state);
  const std::uint32_t number = run(scene, 1, proto::Fields().put_u64(Tag::kTimeLimitMs, 200));
  answer(*scene.first, request(ControlOperation::kFreeze));
  EXPECT_FALSE(scene.guest->next(1500).has_value());
  EXPECT_EQ(state.slot_kills, 1);
  EXPECT_FALSE(state.killed);
  scene.exited(number, 0);
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kTimeLimit);
}

TEST(ClientRequests, AFrozenSandboxEndsWithTheTimeOfItsMainCommand) {
  BoxState state;
  wall::Plan plan;
  plan.life = Life::kMainCommand;
  plan.timeout_ms = 200;
  Scene scene(plan, state);
  run(scene, 1);
  answer(*scene.first, request(ControlOperation::kFreeze));
  EXPECT_EQ(outcome_of(scene.first->next(FrameType::kClose)).verdict, Verdict::kTimeLimit);
  EXPECT_FALSE(scene.first->next().has_value());
  EXPECT_TRUE(state.killed);
}

TEST(ClientRequests, AFreezeWaitsForStartsThatAreUnderWay) {
  BoxState state;
  Scene scene(kept_plan(), state);
  Line other = scene.connect();
  const std::uint32_t one = scene.open(*scene.first, 1), two = scene.open(*scene.first, 3);
  scene.first->send(0, FrameType::kControl, 0, request(ControlOperation::kFreeze).bytes());
  other.send(0, FrameType::kControl, 0, request(ControlOperation::kFreeze).bytes());
  // Nothing else begins meanwhile.
  scene.first->send(5, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                    proto::Fields().put(Tag::kArg, "program").bytes());
  EXPECT_EQ(error_of(scene.first->next(FrameType::kClose)->payload), Code::kFailedPrecondition);
  scene.started(one);
  EXPECT_EQ(scene.first->next(FrameType::kEvent)->header.stream, 1u);
  EXPECT_FALSE(state.frozen);
  scene.exited(two, 127);  // it never started
  EXPECT_EQ(field(scene.first->next(FrameType::kEvent)->payload, Tag::kFrozen), 1u);
  EXPECT_EQ(field(other.next(FrameType::kEvent)->payload, Tag::kFrozen), 1u);
  EXPECT_TRUE(state.frozen);
}

TEST(ClientRequests, AStartThatDoesNotEndKeepsTheSandboxFromBeingFrozen) {
  BoxState state;
  Scene scene(kept_plan(), state);
  scene.open(*scene.first, 1);
  EXPECT_EQ(error_of(answer(*scene.first, request(ControlOperation::kFreeze))),
            Code::kDeadlineExceeded);
  EXPECT_FALSE(state.frozen);
  EXPECT_NE(scene.open(*scene.first, 3), 0u);
}

TEST(ClientRequests, AThawEndsAFreezeThatHasNotBegun) {
  BoxState state;
  Scene scene(kept_plan(), state);
  const std::uint32_t number = scene.open(*scene.first, 1);
  scene.first->send(0, FrameType::kControl, 0, request(ControlOperation::kFreeze).bytes());
  scene.first->send(0, FrameType::kControl, 0, request(ControlOperation::kThaw).bytes());
  EXPECT_EQ(error_of(scene.first->next(FrameType::kEvent)->payload), Code::kAborted);
  EXPECT_EQ(field(scene.first->next(FrameType::kEvent)->payload, Tag::kFrozen), 0u);
  scene.started(number);
  EXPECT_EQ(scene.first->next(FrameType::kEvent)->header.stream, 1u);
  EXPECT_FALSE(state.frozen);
}

TEST(ClientRequests, WhoWaitsForAFreezeIsBounded) {
  BoxState state;
  Scene scene(kept_plan(), state);
  scene.open(*scene.first, 1);
  for (int i = 0; i < 65; ++i)
    scene.first->send(0, FrameType::kControl, 0, request(ControlOperation::kFreeze).bytes());
  EXPECT_EQ(error_of(scene.first->next(FrameType::kEvent)->payload), Code::kResourceExhausted);
}

TEST(ClientRequests, UsageIsTheWholeBoxs) {
  BoxState state;
  state.usage = {.user_us = 1,
                 .system_us = 2,
                 .memory_peak = 3,
                 .memory_now = 4,
                 .pids_peak = 5,
                 .pids_now = 6,
                 .disk_bytes = 7,
                 .disk_inodes = 8};
  Scene scene({}, state);
  const std::string told = answer(*scene.first, request(ControlOperation::kUsage));
  EXPECT_EQ(field(told, Tag::kUserMicros), 1u);
  EXPECT_EQ(field(told, Tag::kSystemMicros), 2u);
  EXPECT_EQ(field(told, Tag::kMemoryPeak), 3u);
  EXPECT_EQ(field(told, Tag::kMemoryNow), 4u);
  EXPECT_EQ(field(told, Tag::kPidsPeak), 5u);
  EXPECT_EQ(field(told, Tag::kPidsNow), 6u);
  EXPECT_EQ(field(told, Tag::kDiskBytes), 7u);
  EXPECT_EQ(field(told, Tag::kDiskInodes), 8u);
  EXPECT_EQ(field(told, Tag::kDeadlineMs), 0u);
  EXPECT_EQ(field(told, Tag::kFrozen), 0u);
}

TEST(ClientRequests, LimitsAreThePlansAndHowTheyAreHeld) {
  wall::Plan plan = kept_plan();
  plan.cpu_milli = 1500;
  plan.memory = 1ull << 40;
  BoxState state;
  Scene scene(plan, state);
  const std::string told = answer(*scene.first, request(ControlOperation::kLimits));
  const auto fields = proto::FieldReader::parse(told);
  const std::string_view values = *fields->text(Tag::kLimitValues);
  ASSERT_EQ(values.size(), kLimits * 8);
  EXPECT_EQ(values.substr(0, 8), std::string_view("\xdc\x05\0\0\0\0\0\0", 8));
  EXPECT_EQ(values.substr(8, 8), std::string_view("\0\0\0\0\0\1\0\0", 8));
  EXPECT_EQ(decode_held(*fields)->at(0), HeldBy::kNone);
}

TEST(ClientRequests, VerdictsOfCommandsThatEndedAreListed) {
  BoxState state;
  Scene scene(kept_plan(), state);
  const std::uint64_t before = unix_ms();
  const std::uint32_t number = scene.open(*scene.first, 1);
  scene.exited(number, 3);
  ASSERT_TRUE(scene.first->next(FrameType::kClose).has_value());
  const std::string told = answer(*scene.first, request(ControlOperation::kListVerdicts));
  EXPECT_EQ(*proto::FieldReader::parse(told)->text(Tag::kProgram), "program");
  EXPECT_EQ(field(told, Tag::kCommand), 0u);
  EXPECT_GE(field(told, Tag::kStartedMs), before);
  EXPECT_GE(field(told, Tag::kEndedMs), field(told, Tag::kStartedMs));
  EXPECT_EQ(decode_outcome(told)->exit_code, 3u);
  const auto last = scene.first->next(FrameType::kEvent);
  ASSERT_TRUE(last.has_value());
  EXPECT_FALSE(proto::FieldReader::parse(last->payload)->has(Tag::kCommand));
  const std::string usage = answer(*scene.first, request(ControlOperation::kUsage));
  EXPECT_EQ(field(usage, Tag::kCommandsEnded), 1u);
}

TEST(ClientRequests, AnUnknownOneIsAnswered) {
  BoxState state;
  Scene scene({}, state);
  EXPECT_EQ(error_of(answer(*scene.first, request(static_cast<ControlOperation>(99)))),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace caisson::launcher
