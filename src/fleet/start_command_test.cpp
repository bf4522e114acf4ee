#include "fleet/start_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "box/fake_supervisor.h"

namespace caisson::fleet {
namespace {

using box::FakeSupervisor;
using proto::FrameType;
using proto::Tag;
using std::chrono::milliseconds;
using testing::HasSubstr;

// The command that an OPEN asks for, and its stream.
std::pair<std::string, std::uint32_t> opened(FakeSupervisor& fake) {
  const proto::Frame frame = fake.next(FrameType::kOpen);
  const auto fields = proto::FieldReader::parse(frame.payload);
  std::string last;
  if (fields.has_value())
    for (const std::string_view word : fields->all(Tag::kArg)) last = word;
  return {last, frame.header.stream};
}

// What comes of it with a supervisor that plays this.
Status outcome_of(FakeSupervisor::Script script, StartCommand what, StartOptions options) {
  FakeSupervisor supervisor(std::move(script));
  io::Loop loop(1);
  auto socket = io::adopt(loop, supervisor.take_client());
  VERIFY(socket.has_value());
  Status result;
  auto task = [](io::Loop& on, std::unique_ptr<io::Stream> over, StartCommand command,
                 StartOptions chosen, Status& into) -> io::Async<void> {
    auto client = co_await BoxClient::connect(on, std::move(over));
    EXPECT_TRUE(client.has_value());
    into = co_await start_and_wait(on, **client, std::move(command), std::move(chosen));
    on.stop();
  };
  loop.spawn(task(loop, std::move(*socket), std::move(what), std::move(options), result));
  loop.run();
  return result;
}

const StartCommand kBoth = {.command = "serve", .ready = "check", .label = "label"};

TEST(StartCommand, IsTriedUntilItIsReady) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const auto [start, stream] = opened(fake);
    EXPECT_EQ(start, "serve");
    fake.started(stream);
    fake.out(stream, "up soon");
    for (const std::uint32_t status : {1u, 7u, 0u}) {
      const auto [check, tried] = opened(fake);
      EXPECT_EQ(check, "check");
      fake.started(tried);
      fake.close(tried, FakeSupervisor::exited(status));
    }
    fake.next();
  };
  std::string said;
  StartOptions options;
  options.output = [&](std::string_view bytes) { said += bytes; };
  const Status done = outcome_of(script, kBoth, options);
  EXPECT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(said, "up soon");
}

TEST(StartCommand, ComesBackFromJson) {
  EXPECT_EQ(parse_start(start_json(kBoth)).value(), kBoth);
  for (const char* bad :
       {"[]", "{}", R"({"command":"a","ready":"b"})", R"({"command":"a","ready":1,"label":""})"})
    EXPECT_FALSE(parse_start(json::parse(bad).value()).has_value()) << bad;
}

TEST(StartCommand, ThatFailsIsNotWaitedFor) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = opened(fake).second;
    fake.started(stream);
    fake.close(stream, FakeSupervisor::exited(3));
    fake.next();
  };
  const Status done = outcome_of(script, kBoth, {});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(done.error().message(), HasSubstr("the start command failed: exit status 3"));
}

TEST(StartCommand, ThatIsNeverReadyIsGivenUp) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    fake.started(opened(fake).second);
    for (;;) {
      const auto [check, stream] = opened(fake);
      if (stream == 0) return;
      fake.close(stream, FakeSupervisor::exited(1));
    }
  };
  const Status done = outcome_of(script, kBoth, {.ready_time = milliseconds(120)});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(done.error().message(), HasSubstr("at last: exit status 1"));
}

TEST(StartCommand, WithoutAReadyCommandItHasOnlyToRun) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    fake.started(opened(fake).second);
    fake.next();
  };
  EXPECT_TRUE(outcome_of(script, {.command = "serve", .ready = "", .label = ""}, {}).has_value());
}

TEST(StartCommand, ThatEndsWellBeforeItIsReadyIsWaitedForAllTheSame) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    const std::uint32_t stream = opened(fake).second;
    fake.started(stream);
    fake.close(stream, FakeSupervisor::exited(0));
    const std::uint32_t tried = opened(fake).second;
    fake.close(tried, FakeSupervisor::exited(0));
    fake.next();
  };
  EXPECT_TRUE(outcome_of(script, kBoth, {}).has_value());
}

TEST(StartCommand, ASandboxThatEndsIsAnError) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    fake.started(opened(fake).second);
  };
  EXPECT_FALSE(outcome_of(script, {.command = "serve", .ready = "", .label = ""},
                          {.watch_time = std::chrono::minutes(1)})
                   .has_value());
}

TEST(StartCommand, WhatIsTooLongIsRefused) {
  const auto script = [](FakeSupervisor& fake) {
    fake.hello();
    fake.next();
  };
  const Status done = outcome_of(
      script, {.command = std::string(proto::kMaxPayload, 'x'), .ready = "", .label = ""}, {});
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace caisson::fleet
