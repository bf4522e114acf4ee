// What the guest does with frames that do not fit, and with a bad start.
#include "guest/guest_harness.h"

namespace caisson::guest::testing {
namespace {

std::string frame(std::uint32_t stream, FrameType type, std::uint8_t detail,
                  std::string_view payload) {
  return proto::encode_frame(stream, type, detail, payload);
}

// Whether the guest hangs up, having run nothing.
void expect_end(GuestProcess& guest) {
  EXPECT_TRUE(guest.ended());
  EXPECT_EQ(guest.wait(), 1);
}

TEST(Hello, ComesFirstFromBothSides) {
  GuestProcess guest(Transport::kSocket, false);
  guest.send(frame(1, FrameType::kOpen, 1, GuestProcess::command({"true"}).bytes()));
  expect_end(guest);
}

TEST(Hello, TellsAPeerThatIsTooNew) {
  GuestProcess guest(Transport::kSocket, false);
  guest.send(frame(0, FrameType::kHello, 0, GuestProcess::hello_fields(9, 8)));
  ASSERT_TRUE(guest.until([&] { return guest.seen(0).close.has_value(); }));
  EXPECT_EQ(guest.seen(0).error_text(), "hello: the peer speaks versions 8 to 9, this side 1 to 1");
  expect_end(guest);
}

TEST(Hello, OneVersionAheadIsTolerated) {
  GuestProcess guest(Transport::kSocket, false);
  guest.send(frame(0, FrameType::kHello, 0, GuestProcess::hello_fields(2, 1)));
  EXPECT_EQ(guest.run("echo fine").output, "fine\n");
}

TEST(Hello, WithoutAVersionIsRefused) {
  GuestProcess guest(Transport::kSocket, false);
  guest.send(frame(0, FrameType::kHello, 0, {}));
  expect_end(guest);
}

TEST(Frames, WhatIsNotAFrameEndsTheConnection) {
  GuestProcess guest;
  guest.send(std::string(12, '\xff'));
  expect_end(guest);
}

TEST(Frames, ASecondHelloEndsTheConnection) {
  GuestProcess guest;
  guest.send(frame(0, FrameType::kHello, 0, GuestProcess::hello_fields(1, 1)));
  expect_end(guest);
}

TEST(Frames, StreamNumbersAreOddAndGrow) {
  for (const std::uint32_t second : {2u, 1u}) {
    GuestProcess guest;
    guest.send(frame(1, FrameType::kOpen, 5, {}));
    guest.send(frame(second, FrameType::kOpen, 5, {}));
    EXPECT_TRUE(guest.until([&] { return false; }, kDeadline) || guest.ended());
    EXPECT_EQ(guest.wait(), 1);
  }
}

TEST(Frames, AStreamThatWasNeverOpenedIsClosedWithAnError) {
  GuestProcess guest;
  guest.data(77, "x");
  EXPECT_EQ(guest.finish_stream(77).error_text(), "stream 77 was never opened");
  EXPECT_EQ(guest.run("echo ok").output, "ok\n");
}

TEST(Frames, LateFramesOfAClosedStreamAreIgnored) {
  GuestProcess guest;
  const std::uint32_t stream = guest.exec({"true"});
  guest.finish_stream(stream);
  guest.data(stream, "late");
  guest.control(stream, Fields().put_u32(Tag::kSignal, 9));
  guest.cancel(stream);
  guest.grant(stream, proto::Channel::kOut, 5);
  EXPECT_EQ(guest.run("echo ok").output, "ok\n");
}

TEST(Frames, AnUnknownKindIsUnimplemented) {
  GuestProcess guest;
  const Seen seen = guest.finish_stream(guest.open(static_cast<Kind>(42), Fields()));
  EXPECT_EQ(seen.end().number(Tag::kErrorCode).value(),
            static_cast<std::uint64_t>(Code::kUnimplemented));
}

TEST(Frames, APayloadThatIsNoFieldListIsRefused) {
  GuestProcess guest;
  guest.send(frame(1, FrameType::kOpen, 1, "abc"));
  expect_end(guest);
}

TEST(Frames, ViolationsOnAStreamEndThatStream) {
  GuestProcess guest;
  const auto violation = [&](const std::function<void(std::uint32_t)>& act) {
    const std::uint32_t stream =
        guest.open(Kind::kExec, GuestProcess::command({"sleep", "100"}).put_u8(Tag::kStdin, 1));
    act(stream);
    return guest.finish_stream(stream).error_text();
  };
  EXPECT_EQ(violation([&](std::uint32_t stream) {
              for (int i = 0; i < 7; ++i) guest.data(stream, std::string(proto::kMaxPayload, 'x'));
            }),
            "exec: 65536 bytes of input, the credit is 0");
  EXPECT_EQ(
      violation([&](std::uint32_t stream) { guest.send(frame(stream, FrameType::kData, 1, "x")); }),
      "exec: data for an output channel");
  EXPECT_EQ(violation([&](std::uint32_t stream) {
              guest.finish(stream);
              guest.data(stream, "x");
            }),
            "exec: data after the input was finished");
  EXPECT_EQ(violation([&](std::uint32_t stream) {
              guest.send(frame(stream, FrameType::kFinish, 2, {}));
            }),
            "exec: only the input can be finished");
  EXPECT_EQ(violation([&](std::uint32_t stream) {
              guest.send(frame(stream, FrameType::kCredit, 1, "abc"));
            }),
            "credit: payload of 3 bytes, it has 4");
  EXPECT_EQ(violation([&](std::uint32_t stream) { guest.grant(stream, proto::Channel::kIn, 5); }),
            "exec: credit for the input, which only this side grants");
  EXPECT_EQ(
      violation([&](std::uint32_t stream) { guest.send(frame(stream, FrameType::kEvent, 0, {})); }),
      "exec: a frame of type 6 does not belong on an open stream");
  EXPECT_EQ(violation([&](std::uint32_t stream) {
              guest.send(frame(stream, FrameType::kControl, 0, "abc"));
            }),
            "fields: 3 bytes at the end, a field has at least 6");
  const std::uint32_t closed = guest.exec({"sleep", "100"});
  guest.data(closed, "x");
  EXPECT_EQ(guest.finish_stream(closed).error_text(), "exec: 1 bytes of input, the credit is 0");
  EXPECT_EQ(guest.run("echo ok").output, "ok\n");
}

TEST(Frames, ADescriptorThatNeverCameEndsTheConnection) {
  GuestProcess guest;
  guest.open(Kind::kExec, GuestProcess::command({"true"}).put_u8(Tag::kCgroup, 1));
  expect_end(guest);
}

TEST(Frames, ASignalOvertakesAnUpload) {
  GuestProcess guest;
  // The upload fills the command's pipe and waits; the signal behind it is not held up.
  const std::uint32_t stream =
      guest.open(Kind::kExec, GuestProcess::command({"sleep", "100"}).put_u8(Tag::kStdin, 1));
  guest.data(stream, std::string(proto::kMaxPayload, 'x'));
  guest.data(stream, std::string(proto::kMaxPayload, 'x'));
  guest.data(stream, std::string(proto::kMaxPayload, 'x'));
  guest.control(stream, Fields().put_u32(Tag::kSignal, SIGINT));
  EXPECT_EQ(guest.finish_stream(stream).exit_signal(), static_cast<std::uint64_t>(SIGINT));
}

TEST(Frames, NoStreamStarvesAnother) {
  GuestProcess guest;
  const std::uint32_t loud = guest.exec({"yes"});
  const std::uint32_t other = guest.exec({"yes", "n"});
  ASSERT_TRUE(guest.until([&] {
    return guest.seen(loud).output.size() > 4'000'000 &&
           guest.seen(other).output.size() > 1'000'000;
  }));
  EXPECT_EQ(guest.run("echo heard").output, "heard\n");
  guest.cancel(loud);
  guest.cancel(other);
}

// Runs the program with these arguments; its exit status and what it said.
std::pair<int, std::string> start(std::vector<std::string> arguments) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  arguments.insert(arguments.begin(), "caisson-guest");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 2);
    become_guest(std::move(arguments));
  }
  ::close(ends[1]);
  std::string text;
  char bytes[1024];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WEXITSTATUS(status), text};
}

TEST(Arguments, AreChecked) {
  const std::string allowed =
      ": allowed are --channel=N, or --channel-in=N with --channel-out=N, --userns=N and "
      "--cgroupns=N\n";
  const std::string number = ": allowed is the number of an open descriptor from 3 on\n";
  EXPECT_EQ(start({}), std::make_pair(1, std::string("caisson-guest: --channel=N or --channel-in=N "
                                                     "is missing\n")));
  EXPECT_EQ(start({"--verbose"}).second, "caisson-guest: --verbose" + allowed);
  EXPECT_EQ(start({"--channel=x"}).second, "caisson-guest: --channel=x" + number);
  EXPECT_EQ(start({"--channel=2"}).second, "caisson-guest: --channel=2" + number);
  EXPECT_EQ(start({"--channel=3 "}).second, "caisson-guest: --channel=3 " + number);
  EXPECT_EQ(start({"--channel=999"}),
            std::make_pair(1, std::string("caisson-guest: channel: fcntl: Bad file descriptor\n")));
}

TEST(Arguments, SwitchesAreTheTestBuildsAlone) {
  const auto [status, text] = start({"--switches=nonsense"});
  EXPECT_EQ(status, 1);
#if defined(CAISSON_TEST_SWITCHES)
  EXPECT_TRUE(text.starts_with("caisson-guest: unknown mechanism \"nonsense\"; known are"));
#else
  EXPECT_TRUE(text.starts_with("caisson-guest: --switches=nonsense: allowed are --channel=N"));
#endif
}

}  // namespace
}  // namespace caisson::guest::testing
