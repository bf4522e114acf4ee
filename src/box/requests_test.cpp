#include "box/requests.h"

#include <gtest/gtest.h>

#include <functional>

#include "box/fake_supervisor.h"

namespace caisson::box {
namespace {

using proto::ControlOperation;
using proto::FrameType;
using proto::Tag;

// Takes one request and answers it with these fields, each list in a frame of its own.
void answer(FakeSupervisor& peer, ControlOperation wanted,
            const std::vector<std::string>& answers) {
  const proto::Frame frame = peer.next();
  ASSERT_EQ(frame.header.type, FrameType::kControl);
  const auto fields = proto::FieldReader::parse(frame.payload);
  EXPECT_EQ(*fields->number(Tag::kControlOperation), static_cast<std::uint64_t>(wanted));
  proto::Fields head;
  head.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(wanted))
      .put_u32(Tag::kRequest, static_cast<std::uint32_t>(*fields->number(Tag::kRequest)));
  for (const std::string& each : answers) peer.send(0, FrameType::kEvent, 0, head.bytes() + each);
}

TEST(Requests, ADeadlineIsAskedForAndTold) {
  std::uint64_t from_now = 0;
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    // What answers somebody else's request is passed over.
    peer.send(0, FrameType::kEvent, 0,
              proto::Fields().put_u32(Tag::kRequest, 99).put_u64(Tag::kDeadlineMs, 1).bytes());
    const proto::Frame frame = peer.next();
    const auto fields = proto::FieldReader::parse(frame.payload);
    from_now = *fields->number(Tag::kTimeLimitMs);
    proto::Fields told;
    told.put_u32(Tag::kRequest, static_cast<std::uint32_t>(*fields->number(Tag::kRequest)))
        .put_u64(Tag::kDeadlineMs, 1234);
    peer.send(0, FrameType::kEvent, 0, told.bytes());
  });
  Connection connection(supervisor.take_client());
  EXPECT_EQ(set_deadline(connection, 5000).value_or(0), 1234);
  EXPECT_EQ(from_now, 5000u);
}

TEST(Requests, ARefusalIsItsError) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    answer(peer, ControlOperation::kFreeze,
           {proto::Fields().put_error(Error::precondition("cannot be held here")).bytes()});
    answer(peer, ControlOperation::kThaw, {""});
  });
  Connection connection(supervisor.take_client());
  const auto held = hold(connection, Held::kYes);
  ASSERT_FALSE(held.has_value());
  EXPECT_EQ(held.error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(held.error().message(), "cannot be held here");
  EXPECT_TRUE(hold(connection, Held::kNo).has_value());
}

TEST(Requests, UsageNeedsEveryCounter) {
  proto::Fields all;
  std::uint64_t value = 0;
  for (const Tag tag : {Tag::kUserMicros, Tag::kSystemMicros, Tag::kMemoryNow, Tag::kMemoryPeak,
                        Tag::kPidsNow, Tag::kPidsPeak, Tag::kDiskBytes, Tag::kDiskInodes})
    all.put_u64(tag, ++value);
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    answer(peer, ControlOperation::kUsage, {all.bytes()});
    answer(peer, ControlOperation::kUsage, {""});
  });
  Connection connection(supervisor.take_client());
  const auto told = usage(connection);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->user_us, 1u);
  EXPECT_EQ(told->memory_now, 3u);
  EXPECT_EQ(told->disk_inodes, 8u);
  EXPECT_FALSE(usage(connection).has_value());
}

TEST(Requests, KeptCommandsAreListedToTheLast) {
  const auto entry = [](std::uint32_t number) {
    return proto::Fields()
        .put_u32(Tag::kCommand, number)
        .put_u32(Tag::kPid, 40 + number)
        .put_u64(Tag::kStartedMs, 1000)
        .put(Tag::kLabel, "label")
        .bytes();
  };
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    answer(peer, ControlOperation::kListCommands,
           {entry(1), entry(2) + encode_outcome(FakeSupervisor::exited(3)), ""});
    answer(peer, ControlOperation::kListCommands,
           {proto::Fields().put_u32(Tag::kCommand, 1).bytes()});
  });
  Connection connection(supervisor.take_client());
  const auto list = list_kept(connection);
  ASSERT_TRUE(list.has_value());
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].number, 1u);
  EXPECT_EQ((*list)[0].pid, 41u);
  EXPECT_EQ((*list)[0].label, "label");
  EXPECT_FALSE((*list)[0].outcome.has_value());
  EXPECT_EQ((*list)[1].outcome->exit_code, 3u);
  EXPECT_FALSE(list_kept(connection).has_value());
}

TEST(Requests, ASandboxThatGoesIsSaidSo) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) { peer.hello(); });
  Connection connection(supervisor.take_client());
  const auto told = usage(connection);
  ASSERT_FALSE(told.has_value());
  EXPECT_EQ(told.error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace caisson::box
