// The command that a sandbox lives for: it survives its client, and others read it.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "launcher/kept_commands.h"
#include "launcher/supervisor_scene.h"

namespace caisson::launcher {
namespace {

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
  for (std::uint32_t i = 0; i < KeptCommands::kMostReaders + 1; ++i)
    reader.send(2 * i + 1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put_u8(Tag::kAttach, 1).bytes());
  const auto refused = reader.next(FrameType::kClose);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->header.stream, 2 * KeptCommands::kMostReaders + 1);
  const auto fields = proto::FieldReader::parse(refused->payload);
  EXPECT_EQ(fields->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kResourceExhausted));
}

TEST(Supervisor, ASandboxWithoutAMainCommandHasNoneToRead) {
  for (const Life life : {Life::kOwner, Life::kKept}) {
    BoxState state;
    wall::Plan plan;
    plan.life = life;
    Scene scene(plan, state);
    Line reader = scene.connect();
    reader.send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
                proto::Fields().put_u8(Tag::kAttach, 1).bytes());
    const auto close = reader.next(FrameType::kClose);
    ASSERT_TRUE(close.has_value());
    EXPECT_EQ(proto::FieldReader::parse(close->payload)->number_or_none(Tag::kErrorCode),
              static_cast<std::uint64_t>(Code::kFailedPrecondition));
  }
}

TEST(Supervisor, AReaderWhoseMainCommandIsNeverGivenIsToldOfTheEnd) {
  BoxState state;
  Scene scene(detached_plan(), state);
  Line reader = scene.connect();
  reader.send(1, FrameType::kOpen, static_cast<std::uint8_t>(Kind::kExec),
              proto::Fields().put_u8(Tag::kAttach, 1).bytes());
  reader.send(0, FrameType::kControl, 0, shutdown_fields());
  const auto close = reader.next(FrameType::kClose);
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(proto::FieldReader::parse(close->payload)->number_or_none(Tag::kErrorCode),
            static_cast<std::uint64_t>(Code::kUnavailable));
}

}  // namespace
}  // namespace caisson::launcher
