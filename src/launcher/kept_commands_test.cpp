#include "launcher/kept_commands.h"

#include <gtest/gtest.h>

#include <string>

#include "launcher/supervisor_scene.h"

namespace caisson::launcher {
namespace {

proto::Fields keep(std::string_view label = "") {
  proto::Fields fields;
  fields.put_u8(Tag::kKeep, 1).put_u8(Tag::kStdin, 1).put(Tag::kLabel, label);
  return fields;
}

std::string settle_fields() {
  return proto::Fields()
      .put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(proto::ControlOperation::kSettle))
      .bytes();
}

std::uint64_t field(const std::optional<proto::Frame>& frame, Tag tag) {
  EXPECT_TRUE(frame.has_value());
  if (!frame) return ~0ull;
  return proto::FieldReader::parse(frame->payload)->number_or_none(tag).value_or(~0ull);
}

Code error_of(const std::optional<proto::Frame>& frame) {
  return static_cast<Code>(field(frame, Tag::kErrorCode));
}

// A kept sandbox whose maker has gone, and one kept command in it that `client` has opened.
class Kept : public ::testing::Test {
 protected:
  Kept() : scene_(kept_plan(), state_), client_(scene_.connect()) {
    scene_.first->send(0, FrameType::kControl, 0, settle_fields());
    scene_.first->hang_up();
    guest_number_ = scene_.open(client_, 1, keep("a label"));
    scene_.started(guest_number_);
    const auto started = client_.next(FrameType::kEvent);
    EXPECT_EQ(field(started, Tag::kStarted), 7u);
    number_ = static_cast<std::uint32_t>(field(started, Tag::kCommand));
  }
  void join(Line& client, std::uint32_t stream, KeptCommands::From from) {
    client.send(stream, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields()
                    .put_u8(Tag::kAttach, static_cast<std::uint8_t>(from))
                    .put_u32(Tag::kCommand, number_)
                    .bytes());
  }
  // The command writes; what the supervisor grants for it is taken.
  void write(std::string_view bytes) {
    scene_.guest->send(guest_number_, FrameType::kData, number_of(Channel::kOut), bytes);
    std::size_t granted = 0;
    while (granted < bytes.size()) {
      const auto credit = scene_.guest->next(FrameType::kCredit);
      ASSERT_TRUE(credit.has_value());
      granted += *proto::parse_credit(credit->payload);
    }
  }
  // Every entry of the list: its number, and whether it runs.
  std::vector<std::pair<std::uint64_t, bool>> list(Line& client) {
    client.send(0, FrameType::kControl, 0,
                proto::Fields()
                    .put_u8(Tag::kControlOperation,
                            static_cast<std::uint8_t>(proto::ControlOperation::kListCommands))
                    .put_u32(Tag::kRequest, 5)
                    .bytes());
    std::vector<std::pair<std::uint64_t, bool>> found;
    for (;;) {
      const auto event = client.next(FrameType::kEvent);
      if (!event) return found;
      if (event->header.stream != 0) continue;
      EXPECT_EQ(field(event, Tag::kRequest), 5u);
      const auto fields = proto::FieldReader::parse(event->payload);
      if (!fields->has(Tag::kCommand)) return found;
      EXPECT_EQ(*fields->text(Tag::kLabel), "a label");
      EXPECT_EQ(fields->number_or_none(Tag::kPid), 7u);
      EXPECT_TRUE(fields->has(Tag::kStartedMs));
      found.emplace_back(*fields->number(Tag::kCommand), !fields->has(Tag::kVerdict));
    }
  }

  BoxState state_;
  Scene scene_;
  Line client_;
  std::uint32_t guest_number_ = 0, number_ = 0;
};

TEST_F(Kept, TheSandboxEndsWithACommandThatIsKeptForThat) {
  proto::Fields fields;
  fields.put_u8(Tag::kKeep, 2);
  const std::uint32_t last = scene_.open(client_, 7, fields);
  scene_.started(last);
  scene_.exited(last, 4);
  // The other one ends with the sandbox.
  for (int closed = 0; closed < 2; ++closed) {
    const auto close = client_.next(FrameType::kClose);
    const Outcome outcome = outcome_of(close);
    if (close->header.stream == 7) EXPECT_EQ(outcome.exit_code, 4u);
  }
  EXPECT_FALSE(client_.next().has_value());
  EXPECT_TRUE(state_.killed);
}

TEST_F(Kept, AnUnknownWayToKeepIsRefused) {
  client_.send(3, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
               proto::Fields().put(Tag::kArg, "x").put_u8(Tag::kKeep, 3).bytes());
  EXPECT_EQ(error_of(client_.next(FrameType::kClose)), Code::kInvalidArgument);
}

TEST_F(Kept, ACommandSurvivesItsClientAndIsListedAndReadOn) {
  write("first ");
  client_.hang_up();
  Line other = scene_.connect();
  EXPECT_EQ(list(other), (std::vector<std::pair<std::uint64_t, bool>>{{number_, true}}));
  join(other, 1, KeptCommands::From::kOldest);
  const auto started = other.next(FrameType::kEvent);
  EXPECT_EQ(field(started, Tag::kStarted), 7u);
  EXPECT_EQ(field(started, Tag::kCommand), number_);
  EXPECT_EQ(other.next(FrameType::kData)->payload, "first ");
  write("second");
  EXPECT_EQ(other.next(FrameType::kData)->payload, "second");
  EXPECT_EQ(state_.slot_kills, 0);
  EXPECT_FALSE(state_.killed);
}

TEST_F(Kept, WhoJoinsChoosesFromWhereOn) {
  write("old");
  Line kept = scene_.connect(), now = scene_.connect();
  join(kept, 1, KeptCommands::From::kKept);
  EXPECT_EQ(kept.next(FrameType::kData)->payload, "old");
  EXPECT_EQ(kept.next(FrameType::kClose)->payload, "");
  join(now, 1, KeptCommands::From::kNow);
  ASSERT_TRUE(now.next(FrameType::kEvent).has_value());
  write("new");
  EXPECT_EQ(now.next(FrameType::kData)->payload, "new");
}

TEST_F(Kept, ReadersThatDoNotReadDelayNobody) {
  Line idle = scene_.connect();
  join(idle, 1, KeptCommands::From::kOldest);
  const std::string block(32 * 1024, 'x');
  for (int i = 0; i < 64; ++i) write(block);  // eight times what anybody granted
  scene_.exited(guest_number_, 0);
  std::size_t bytes = 0, missed = 0;
  for (;;) {
    const auto frame = idle.next();
    ASSERT_TRUE(frame.has_value());
    if (frame->header.type == FrameType::kData) {
      bytes += frame->payload.size();
      idle.grant(1, Channel::kOut, static_cast<std::uint32_t>(frame->payload.size()));
    } else if (frame->header.type == FrameType::kEvent) {
      const auto fields = proto::FieldReader::parse(frame->payload);
      missed += fields->number_or_none(Tag::kMissed).value_or(0);
    } else if (frame->header.type == FrameType::kClose) {
      EXPECT_EQ(outcome_of(frame).verdict, Verdict::kExited);
      break;
    }
  }
  EXPECT_EQ(bytes + missed, 64u * block.size());
  EXPECT_GE(bytes, KeptCommands::kUsualKept);
}

TEST_F(Kept, AnEndedCommandIsListedAndTellsItsOutcome) {
  write("output");
  scene_.exited(guest_number_, 9);
  EXPECT_EQ(outcome_of(client_.next(FrameType::kClose)).exit_code, 9u);
  Line other = scene_.connect();
  EXPECT_EQ(list(other), (std::vector<std::pair<std::uint64_t, bool>>{{number_, false}}));
  join(other, 1, KeptCommands::From::kOldest);
  ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
  EXPECT_EQ(other.next(FrameType::kFinish)->header.detail, number_of(Channel::kIn));
  EXPECT_EQ(other.next(FrameType::kData)->payload, "output");
  EXPECT_EQ(outcome_of(other.next(FrameType::kClose)).exit_code, 9u);
  EXPECT_FALSE(state_.killed);
}

TEST_F(Kept, InputOfAllClientsGoesInItsOrderUntilOneEndsIt) {
  Line other = scene_.connect();
  join(other, 1, KeptCommands::From::kNow);
  ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
  const auto give = [&](Line& client, FrameType type, std::string_view bytes) {
    client.send(1, type, number_of(Channel::kIn), bytes);
  };
  give(client_, FrameType::kData, "one ");
  EXPECT_EQ(scene_.guest->next(FrameType::kData)->payload, "one ");
  EXPECT_EQ(*proto::parse_credit(client_.next(FrameType::kCredit)->payload), 4u);
  give(other, FrameType::kData, "two");
  EXPECT_EQ(scene_.guest->next(FrameType::kData)->payload, "two");
  give(client_, FrameType::kFinish, "");
  EXPECT_EQ(scene_.guest->next(FrameType::kFinish)->header.stream, guest_number_);
  // Both hear that nobody reads any more.
  EXPECT_TRUE(client_.next(FrameType::kFinish).has_value());
  EXPECT_TRUE(other.next(FrameType::kFinish).has_value());
}

TEST_F(Kept, InputThatACommandDoesNotReadIsHeldBackToABound) {
  const std::string block(32 * 1024, 'x');
  std::optional<proto::Frame> refused;
  // One client after the other uses its first credit up, and goes.
  for (int i = 0; i < 5 && !refused; ++i) {
    Line other = scene_.connect();
    join(other, 1, KeptCommands::From::kNow);
    ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
    for (std::size_t sent = 0; sent < proto::kInitialCredit; sent += block.size())
      other.send(1, FrameType::kData, number_of(Channel::kIn), block);
    other.send(1, FrameType::kClose, 0, "");
    const auto close = other.next(FrameType::kClose);
    ASSERT_TRUE(close.has_value());
    if (!close->payload.empty()) refused = close;
  }
  EXPECT_EQ(error_of(refused), Code::kResourceExhausted);
  EXPECT_FALSE(state_.killed);
}

TEST_F(Kept, WhatWaitsGoesOnAsTheGuestGrants) {
  const std::string block(32 * 1024, 'x');
  for (std::size_t sent = 0; sent < proto::kInitialCredit; sent += block.size())
    client_.send(1, FrameType::kData, number_of(Channel::kIn), block);
  Line other = scene_.connect();
  join(other, 1, KeptCommands::From::kNow);
  ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
  other.send(1, FrameType::kData, number_of(Channel::kIn), "waits");
  other.send(1, FrameType::kFinish, number_of(Channel::kIn), "");
  other.send(1, FrameType::kClose, 0, "");
  EXPECT_EQ(other.next(FrameType::kClose)->payload, "");
  std::size_t taken = 0;
  while (taken < proto::kInitialCredit)
    taken += scene_.guest->next(FrameType::kData)->payload.size();
  scene_.guest->grant(guest_number_, Channel::kIn, 2);
  EXPECT_EQ(scene_.guest->next(FrameType::kData)->payload, "wa");
  scene_.guest->grant(guest_number_, Channel::kIn, 100);
  EXPECT_EQ(scene_.guest->next()->payload, "its");
  EXPECT_EQ(scene_.guest->next()->header.type, FrameType::kFinish);
}

TEST_F(Kept, SignalsComeFromWhoeverIsAttached) {
  Line other = scene_.connect();
  join(other, 1, KeptCommands::From::kNow);
  other.send(1, FrameType::kControl, 0, proto::Fields().put_u32(Tag::kSignal, 15).bytes());
  const auto signal = scene_.guest->next(FrameType::kControl);
  ASSERT_TRUE(signal.has_value());
  EXPECT_EQ(signal->header.stream, guest_number_);
  EXPECT_EQ(field(signal, Tag::kSignal), 15u);
}

TEST_F(Kept, AShutdownOnItsStreamEndsTheCommandAndACloseDoesNot) {
  client_.send(1, FrameType::kClose, 0, "");
  EXPECT_EQ(client_.next(FrameType::kClose)->payload, "");
  EXPECT_EQ(state_.slot_kills, 0);
  Line other = scene_.connect();
  join(other, 1, KeptCommands::From::kNow);
  ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
  other.send(1, FrameType::kControl, 0, shutdown_fields());
  // Answered in order.
  EXPECT_EQ(list(other).size(), 1u);
  EXPECT_EQ(state_.slot_kills, 1);
  scene_.guest->send(guest_number_, FrameType::kClose, 0,
                     proto::Fields().put_u32(Tag::kExitSignal, 9).bytes());
  EXPECT_EQ(outcome_of(other.next(FrameType::kClose)).verdict, Verdict::kCancelled);
}

TEST_F(Kept, OneWithoutInputSaysSoAtOnce) {
  const std::uint32_t number =
      scene_.open(client_, 3, proto::Fields().put_u8(Tag::kKeep, 1).put(Tag::kLabel, "a label"));
  scene_.started(number);
  EXPECT_EQ(client_.next()->header.type, FrameType::kEvent);
  EXPECT_EQ(client_.next()->header.type, FrameType::kFinish);
}

TEST_F(Kept, OneThatCannotStartIsTheBusinessOfItsClientAlone) {
  const std::uint32_t number = scene_.open(client_, 3, keep());
  EXPECT_EQ(list(client_).size(), 1u);
  Line other = scene_.connect();
  other.send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
             proto::Fields().put_u8(Tag::kAttach, 1).put_u32(Tag::kCommand, number_ + 1).bytes());
  EXPECT_EQ(error_of(other.next(FrameType::kClose)), Code::kNotFound);
  scene_.guest->send(
      number, FrameType::kClose, 0,
      proto::Fields().put_u32(Tag::kErrorErrno, 2).put(Tag::kErrorMessage, "none").bytes());
  EXPECT_EQ(outcome_of(client_.next(FrameType::kClose)).exit_code, 127u);
  EXPECT_EQ(list(client_).size(), 1u);
}

TEST_F(Kept, ThereAreAtMostSoMany) {
  for (std::size_t i = 1; i < KeptCommands::kMostRunning; ++i) {
    const auto stream = static_cast<std::uint32_t>(2 * i + 1);
    ASSERT_NE(scene_.open(client_, stream, keep()), 0u);
    client_.send(stream, FrameType::kClose, 0, "");
  }
  client_.send(1001, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
               keep().put(Tag::kArg, "one more").bytes());
  std::optional<proto::Frame> close;
  do close = client_.next(FrameType::kClose);
  while (close && close->header.stream != 1001);
  EXPECT_EQ(error_of(close), Code::kResourceExhausted);
}

TEST_F(Kept, ItsClientSaysHowLongItMayRunAndHowMuchItMayWrite) {
  const std::uint32_t timed = scene_.open(client_, 3, keep().put_u64(Tag::kTimeLimitMs, 50));
  EXPECT_EQ(scene_.guest->next(FrameType::kClose)->header.stream, timed);  // it was killed
  scene_.guest->send(timed, FrameType::kClose, 0,
                     proto::Fields().put_u32(Tag::kExitSignal, 9).bytes());
  EXPECT_EQ(outcome_of(client_.next(FrameType::kClose)).verdict, Verdict::kTimeLimit);
  const std::uint32_t talks = scene_.open(client_, 5, keep().put_u64(Tag::kOutputLimit, 3));
  scene_.started(talks);
  scene_.guest->send(talks, FrameType::kData, number_of(Channel::kOut), "12345");
  EXPECT_EQ(client_.next(FrameType::kData)->payload, "123");
  scene_.exited(talks, 0);
  EXPECT_EQ(outcome_of(client_.next(FrameType::kClose)).verdict, Verdict::kOutputLimit);
}

TEST_F(Kept, ALabelHasItsBound) {
  client_.send(3, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
               keep(std::string(proto::kMaxLabel + 1, 'x')).put(Tag::kArg, "program").bytes());
  EXPECT_EQ(error_of(client_.next(FrameType::kClose)), Code::kInvalidArgument);
}

TEST(KeptSandbox, EndsWithAMakerWhoDiesBeforeItIsSettled) {
  BoxState state;
  Scene scene(kept_plan(), state);
  scene.first->hang_up();
  EXPECT_FALSE(scene.guest->next(FrameType::kOpen).has_value());
  EXPECT_TRUE(state.killed);
}

TEST(KeptSandbox, ACommandThatIsNotKeptEndsWithItsClient) {
  BoxState state;
  Scene scene(kept_plan(), state);
  Line other = scene.connect();
  const std::uint32_t number = scene.open(other, 1);
  scene.started(number);
  ASSERT_TRUE(other.next(FrameType::kEvent).has_value());
  other.hang_up();
  EXPECT_EQ(scene.guest->next(FrameType::kClose)->header.stream, number);
  EXPECT_EQ(state.slot_kills, 1);
  EXPECT_FALSE(state.killed);
}

TEST(KeptSandbox, IsTheOnlyOneThatKeepsCommands) {
  BoxState state;
  Scene scene({}, state);
  scene.first->send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                    keep().put(Tag::kArg, "program").bytes());
  EXPECT_EQ(error_of(scene.first->next(FrameType::kClose)), Code::kFailedPrecondition);
}

// The table alone, with a clock of the test's.
KeptCommand& started(KeptCommands& kept, std::size_t keeps = KeptCommands::kUsualKept) {
  EXPECT_TRUE(kept.check_room().has_value());
  KeptCommand& command = kept.add("", keeps);
  command.pid = 2;
  return command;
}

TEST(KeptCommandsTable, ForgetsAnEndedOneAfterItsTime) {
  KeptCommands kept;
  const std::uint32_t number = started(kept).number;
  kept.end(*kept.find(number), "over", 1000);
  EXPECT_EQ(kept.next_forget_us(), 1000 + KeptCommands::kEndedUs);
  kept.forget_old(999 + KeptCommands::kEndedUs);
  EXPECT_NE(kept.find(number), nullptr);
  kept.forget_old(1000 + KeptCommands::kEndedUs);
  EXPECT_EQ(kept.find(number), nullptr);
}

TEST(KeptCommandsTable, DoesNotForgetOneThatIsStillRead) {
  KeptCommands kept;
  KeptCommand& command = started(kept);
  kept.attach(command, 1, 1, KeptCommands::From::kOldest);
  kept.end(command, "over", 0);
  kept.forget_old(10 * KeptCommands::kEndedUs);
  EXPECT_NE(kept.find(command.number), nullptr);
  kept.drop_client(1);
  kept.forget_old(10 * KeptCommands::kEndedUs);
  EXPECT_EQ(kept.all().size(), 0u);
}

TEST(KeptCommandsTable, KeepsTheEndedOnesThatEndedLast) {
  KeptCommands kept;
  for (std::uint64_t i = 0; i < 2 * KeptCommands::kMostEnded; ++i)
    kept.end(started(kept), "over", i);
  kept.forget_old(0);
  EXPECT_EQ(kept.all().size(), KeptCommands::kMostEnded);
  EXPECT_EQ(kept.all().begin()->first, KeptCommands::kMostEnded + 1);
}

TEST(KeptCommandsTable, OneThatKeepsMuchWaitsForThoseWhoFollow) {
  KeptCommands kept;
  KeptCommand& command = started(kept, KeptCommands::kKeptToWait);
  const std::string lag(KeptCommands::kMostLag, 'x');
  kept.add_output(command, Channel::kOut, lag + "x");
  EXPECT_FALSE(kept.must_wait(command));  // nobody follows
  kept.attach(command, 1, 1, KeptCommands::From::kNow);
  kept.add_output(command, Channel::kOut, lag);
  EXPECT_FALSE(kept.must_wait(command));
  kept.add_output(command, Channel::kOut, "x");
  EXPECT_TRUE(kept.must_wait(command));
  kept.leave(1, 1);
  EXPECT_FALSE(kept.must_wait(command));
}

TEST(KeptCommandsTable, NobodyWaitsForOneWhoTakesNothingForLong) {
  KeptCommands kept;
  KeptCommand& command = started(kept, KeptCommands::kKeptToWait);
  kept.attach(command, 1, 1, KeptCommands::From::kNow);
  kept.add_output(command, Channel::kOut, std::string(KeptCommands::kMostLag + 1, 'x'));
  kept.watch_lag(1);
  kept.watch_lag(KeptCommands::kLagPatienceUs);
  EXPECT_TRUE(kept.must_wait(command));
  kept.watch_lag(1 + KeptCommands::kLagPatienceUs);
  EXPECT_FALSE(kept.must_wait(command));
}

TEST(KeptCommandsTable, OneThatKeepsLittleWaitsForNobody) {
  KeptCommands kept;
  KeptCommand& command = started(kept, KeptCommands::kKeptToWait - 1);
  kept.attach(command, 1, 1, KeptCommands::From::kNow);
  kept.add_output(command, Channel::kOut, std::string(KeptCommands::kMostLag + 1, 'x'));
  EXPECT_FALSE(kept.must_wait(command));
}

TEST(KeptCommandsTable, BoundsAllOutputTogether) {
  KeptCommands kept;
  const std::string block(64 * 1024, 'x');
  for (int i = 0; i < 12; ++i) {
    KeptCommand& command = started(kept, OutputTail::kMaxBytes);
    for (int j = 0; j < 16; ++j) kept.add_output(command, Channel::kOut, block);
  }
  std::size_t cost = 0;
  for (const auto& [number, command] : kept.all()) {
    cost += command.tail.cost();
    EXPECT_GE(command.tail.size(), OutputTail::kMaxBytes / 2) << number;
  }
  EXPECT_LE(cost, KeptCommands::kMostOutput);
}

}  // namespace
}  // namespace caisson::launcher
