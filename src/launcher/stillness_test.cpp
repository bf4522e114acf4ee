#include <gtest/gtest.h>

#include <string>

#include "launcher/supervisor_scene.h"

namespace caisson::launcher {
namespace {

using proto::ControlOperation;

void ask(Line& client, ControlOperation operation, proto::Fields more = {}) {
  client.send(0, FrameType::kControl, 0,
              more.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation))
                  .put_u32(Tag::kRequest, 77)
                  .bytes());
}

// The next answer; not_found stands for none.
std::string answer(Line& client) {
  const auto event = client.next(FrameType::kEvent);
  EXPECT_TRUE(event.has_value());
  return event ? event->payload : proto::Fields().put_error(Error::not_found("none")).bytes();
}

// nullopt: it tells of none.
std::optional<Code> error_in(const std::string& payload) {
  const auto fields = proto::FieldReader::parse(payload);
  EXPECT_TRUE(fields.has_value());
  const auto error = fields->error();
  return error ? std::optional(error->code()) : std::nullopt;
}

void open_file(Line& client, std::uint32_t stream) {
  client.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kFile),
              proto::Fields().put(Tag::kPath, "/x").bytes());
}

TEST(Stillness, AHolderGetsTheLayerAndEverythingStandsStill) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  const std::string told = answer(holder);
  EXPECT_EQ(holder.descriptors_seen, 2u);
  EXPECT_TRUE(state.frozen);
  EXPECT_EQ(*proto::FieldReader::parse(told)->text(Tag::kHandouts),
            std::string_view("1100"
                             "0 100000 65536\n\0"
                             "0 200000 65536\n",
                             4 + 15 + 1 + 15));
  ask(holder, ControlOperation::kRelease);
  EXPECT_EQ(error_in(answer(holder)), std::nullopt);
  EXPECT_FALSE(state.frozen);
  EXPECT_TRUE(state.told.empty());  // it was never paused
}

TEST(Stillness, WhatIsOpenedMeanwhileWaitsWithWhatFollows) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  answer(holder);
  open_file(*scene.first, 1);
  scene.first->send(1, FrameType::kData, number_of(Channel::kIn), "abc");
  // The next answer shows that what came before was looked at.
  ask(*scene.first, ControlOperation::kUsage);
  answer(*scene.first);
  ask(holder, ControlOperation::kRelease);
  const auto opened = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(opened.has_value());
  const auto data = scene.guest->next(FrameType::kData);
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->payload, "abc");
}

TEST(Stillness, AHoldWaitsForFilesOnTheirWay) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  open_file(*scene.first, 1);
  const auto file = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(file.has_value());
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  EXPECT_FALSE(holder.next(200).has_value());
  EXPECT_FALSE(state.frozen);
  // What is opened now waits, and does not hold it up any longer.
  open_file(*scene.first, 2);
  scene.guest->send(file->header.stream, FrameType::kClose, 0, "");
  EXPECT_EQ(error_in(answer(holder)), std::nullopt);
  EXPECT_TRUE(state.frozen);
  EXPECT_EQ(holder.descriptors_seen, 2u);
}

TEST(Stillness, AHolderThatLeavesLetsGo) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  answer(holder);
  open_file(*scene.first, 1);
  holder.hang_up();
  EXPECT_TRUE(scene.guest->next(FrameType::kOpen).has_value());
  EXPECT_FALSE(state.frozen);
}

TEST(Stillness, WhoWaitsAndLeavesIsForgotten) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  ask(*scene.first, ControlOperation::kSettle);
  Line holder = scene.connect(), other = scene.connect();
  ask(holder, ControlOperation::kHold);
  answer(holder);
  open_file(other, 1);
  ask(other, ControlOperation::kUsage);
  answer(other);
  other.hang_up();
  open_file(*scene.first, 1);
  ask(holder, ControlOperation::kRelease);
  ASSERT_TRUE(scene.guest->next(FrameType::kOpen).has_value());
  ask(holder, ControlOperation::kUsage);
  answer(holder);
  answer(holder);
  EXPECT_FALSE(scene.guest->next(200).has_value());
}

TEST(Stillness, TooMuchThatWaitsIsRefused) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  answer(holder);
  open_file(*scene.first, 1);
  const std::string piece(proto::kMaxPayload, 'x');
  for (int i = 0; i < 200; ++i)
    scene.first->send(1, FrameType::kData, number_of(Channel::kIn), piece);
  const auto close = scene.first->next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(close->header.stream, 1u);
  EXPECT_EQ(error_in(close->payload), Code::kUnavailable);
}

TEST(Stillness, OneHolderAtATimeAndNoPauseBesideIt) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  EXPECT_EQ(error_in(answer(holder)), std::nullopt);
  for (const ControlOperation operation :
       {ControlOperation::kHold, ControlOperation::kThaw, ControlOperation::kReboot}) {
    ask(*scene.first, operation);
    // What is thawed already is no error.
    EXPECT_EQ(error_in(answer(*scene.first)), operation == ControlOperation::kThaw
                                                  ? std::nullopt
                                                  : std::optional(Code::kUnavailable));
  }
  ask(*scene.first, ControlOperation::kFreeze);
  EXPECT_EQ(error_in(answer(*scene.first)), Code::kUnavailable);
}

TEST(Stillness, APausedSandboxStaysSo) {
  BoxState state;
  state.hands_out = true;
  Scene scene(kept_plan(), state);
  ask(*scene.first, ControlOperation::kFreeze);
  answer(*scene.first);
  Line holder = scene.connect();
  ask(holder, ControlOperation::kHold);
  EXPECT_EQ(error_in(answer(holder)), std::nullopt);
  ask(holder, ControlOperation::kRelease);
  answer(holder);
  EXPECT_TRUE(state.frozen);
}

TEST(Stillness, WhatCannotBeHeldIsSaid) {
  BoxState state;
  {
    Scene scene(kept_plan(), state);
    ask(*scene.first, ControlOperation::kHold);
    EXPECT_EQ(error_in(answer(*scene.first)), Code::kFailedPrecondition);
  }
  state.hands_out = true;
  state.freezes = false;
  Scene scene(kept_plan(), state);
  ask(*scene.first, ControlOperation::kHold);
  EXPECT_EQ(error_in(answer(*scene.first)), Code::kFailedPrecondition);
  EXPECT_EQ(scene.first->descriptors_seen, 0u);
  // Nobody holds it by that.
  open_file(*scene.first, 1);
  EXPECT_TRUE(scene.guest->next(FrameType::kOpen).has_value());
}

TEST(Stillness, ARebootEndsEverythingAndGivesAnotherBootId) {
  for (const bool freezes : {false, true}) {
    BoxState state;
    Scene scene(kept_plan(), state);
    const std::uint32_t command = scene.open(*scene.first, 1);
    scene.started(command);
    Line other = scene.connect();
    ask(other, ControlOperation::kReboot, proto::Fields().put_u8(Tag::kFrozen, freezes ? 1 : 0));
    const auto asked = scene.guest->next(FrameType::kOpen);
    ASSERT_TRUE(asked.has_value());
    EXPECT_EQ(asked->header.detail, static_cast<std::uint8_t>(Kind::kControl));
    EXPECT_EQ(*proto::FieldReader::parse(asked->payload)->number(Tag::kControlOperation),
              static_cast<std::uint64_t>(ControlOperation::kEndProcesses));
    EXPECT_EQ(state.slot_kills, 1);
    EXPECT_EQ(state.boots, 0);
    scene.guest->send(command, FrameType::kClose, 0,
                      proto::Fields().put_u32(Tag::kSignal, 9).bytes());
    scene.guest->send(asked->header.stream, FrameType::kClose, 0, "");
    const std::string told = answer(other);
    EXPECT_EQ(error_in(told), std::nullopt);
    EXPECT_EQ(*proto::FieldReader::parse(told)->number(Tag::kFrozen), freezes ? 1u : 0u);
    EXPECT_EQ(state.boots, 1);
    EXPECT_EQ(state.frozen, freezes);
    const Outcome outcome = outcome_of(scene.first->next(FrameType::kClose));
    EXPECT_EQ(outcome.verdict, Verdict::kCancelled);
    EXPECT_EQ(outcome.detail, "the sandbox was booted anew");
  }
}

TEST(Stillness, ARebootOutlivesTheCommandThatTheSandboxWasToEndWith) {
  BoxState state;
  Scene scene(kept_plan(), state);
  const std::uint32_t command = scene.open(*scene.first, 1, proto::Fields().put_u8(Tag::kKeep, 2));
  scene.started(command);
  Line other = scene.connect();
  ask(other, ControlOperation::kReboot);
  const auto asked = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(asked.has_value());
  scene.guest->send(command, FrameType::kClose, 0,
                    proto::Fields().put_u32(Tag::kSignal, 9).bytes());
  scene.guest->send(asked->header.stream, FrameType::kClose, 0, "");
  EXPECT_EQ(error_in(answer(other)), std::nullopt);
  ask(other, ControlOperation::kUsage);
  EXPECT_EQ(error_in(answer(other)), std::nullopt);
  EXPECT_FALSE(state.killed);
}

TEST(Stillness, ARebootOfAPausedSandboxThawsIt) {
  BoxState state;
  Scene scene(kept_plan(), state);
  ask(*scene.first, ControlOperation::kFreeze);
  answer(*scene.first);
  ask(*scene.first, ControlOperation::kReboot);
  const auto asked = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(asked.has_value());
  scene.guest->send(asked->header.stream, FrameType::kClose, 0, "");
  EXPECT_EQ(error_in(answer(*scene.first)), std::nullopt);
  EXPECT_FALSE(state.frozen);
}

TEST(Stillness, WhatIsOpenedDuringARebootComesAfterIt) {
  BoxState state;
  Scene scene(kept_plan(), state);
  ask(*scene.first, ControlOperation::kReboot);
  const auto asked = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(asked.has_value());
  open_file(*scene.first, 1);
  ask(*scene.first, ControlOperation::kUsage);
  answer(*scene.first);
  scene.guest->send(asked->header.stream, FrameType::kClose, 0, "");
  answer(*scene.first);
  const auto opened = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->header.detail, static_cast<std::uint8_t>(Kind::kFile));
}

TEST(Stillness, ARebootThatTakesTooLongEndsTheSandbox) {
  BoxState state;
  Scene scene(kept_plan(), state, 1'000);
  Line other = scene.connect();
  ask(other, ControlOperation::kReboot);
  // The guest is asked, and says nothing.
  ASSERT_TRUE(scene.guest->next(FrameType::kOpen).has_value());
  const std::string told = answer(other);
  EXPECT_EQ(error_in(told), Code::kDeadlineExceeded);
  EXPECT_EQ(proto::FieldReader::parse(told)->error()->message(),
            "the sandbox did not boot anew within 0 seconds, and was ended");
  EXPECT_FALSE(other.next().has_value());
  EXPECT_TRUE(state.killed);
}

TEST(Stillness, ARebootThatIsInTimeIsNotGivenUpLater) {
  BoxState state;
  Scene scene(kept_plan(), state, 5'000'000);
  ask(*scene.first, ControlOperation::kReboot);
  const auto asked = scene.guest->next(FrameType::kOpen);
  ASSERT_TRUE(asked.has_value());
  scene.guest->send(asked->header.stream, FrameType::kClose, 0, "");
  EXPECT_EQ(error_in(answer(*scene.first)), std::nullopt);
  // A second one has its own time.
  ask(*scene.first, ControlOperation::kReboot);
  EXPECT_TRUE(scene.guest->next(FrameType::kOpen).has_value());
  EXPECT_FALSE(state.killed);
}

TEST(Stillness, OnlyAKeptSandboxBootsAnew) {
  BoxState state;
  Scene scene({}, state);
  ask(*scene.first, ControlOperation::kReboot);
  EXPECT_EQ(error_in(answer(*scene.first)), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace caisson::launcher
