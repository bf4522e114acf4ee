#include "box/exec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "box/fake_supervisor.h"

namespace caisson::box {
namespace {

using proto::Channel;
using proto::FrameType;
using proto::Tag;

Command command(std::vector<std::string> arguments) {
  Command made;
  made.arguments = std::move(arguments);
  return made;
}

TEST(RunExec, TheRequestCarriesTheCommandAndTheResultComesBack) {
  std::vector<std::string> arguments;
  std::string env, cwd, user;
  std::uint64_t input = 99;
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    const proto::Frame open = peer.next(FrameType::kOpen);
    const auto fields = proto::FieldReader::parse(open.payload);
    for (const auto argument : fields->all(Tag::kArg)) arguments.emplace_back(argument);
    env = *fields->text(Tag::kEnv);
    cwd = *fields->text(Tag::kCwd);
    user = *fields->text(Tag::kUser);
    input = *fields->number(Tag::kStdin);
    peer.started(open.header.stream);
    peer.out(open.header.stream, "out");
    peer.out(open.header.stream, "err", Channel::kErr);
    peer.out(open.header.stream, "put");
    peer.close(open.header.stream, FakeSupervisor::exited(3));
  });
  Connection connection(supervisor.take_client());
  Command wanted = command({"prog", "", "a b"});
  wanted.env = {{"K", "V=W"}};
  wanted.workdir = "/w";
  wanted.user = "user";
  const auto result = run_exec(connection, wanted, {});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->outcome.exit_code, 3u);
  EXPECT_EQ(result->standard_output, "output");
  EXPECT_EQ(result->standard_error, "err");
  EXPECT_EQ(arguments, (std::vector<std::string>{"prog", "", "a b"}));
  EXPECT_EQ(env, "K=V=W");
  EXPECT_EQ(cwd, "/w");
  EXPECT_EQ(user, "user");
  EXPECT_EQ(input, 0u);
}

TEST(RunExec, InputIsSentUnderCreditToItsEnd) {
  std::string received;
  std::string given(proto::kInitialCredit * 3 + 17, 'x');
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
    std::size_t unseen = proto::kInitialCredit;
    for (;;) {
      const proto::Frame frame = peer.next();
      if (frame.header.type == FrameType::kFinish) break;
      if (frame.header.type != FrameType::kData) continue;
      received += frame.payload;
      ASSERT_LE(frame.payload.size(), unseen);
      unseen -= frame.payload.size();
      if (unseen > 0) continue;
      peer.send(stream, FrameType::kCredit, 0, credit_payload(100'000));
      unseen = 100'000;
    }
    peer.close(stream, FakeSupervisor::exited(0));
  });
  Connection connection(supervisor.take_client());
  Command wanted = command({"cat"});
  wanted.input = given;
  ASSERT_TRUE(run_exec(connection, wanted, {}).has_value());
  EXPECT_EQ(received, given);
}

TEST(RunExec, InputThatIsNeverReadDoesNotHoldTheEndUp) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
    peer.close(stream, FakeSupervisor::exited(0));
    while (peer.next().header.stream != 0) {
    }
  });
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]), writer(ends[1]);  // never closed, never written
  {
    Connection connection(supervisor.take_client());
    Command wanted = command({"true"});
    wanted.input_fd = reader.get();
    EXPECT_TRUE(run_exec(connection, wanted, {}).has_value());
  }
}

TEST(RunExec, MuchOutputIsGrantedCreditAsItIsTaken) {
  constexpr std::size_t kTotal = 5u << 20;
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
    std::uint64_t may = proto::kInitialCredit;
    for (std::size_t sent = 0; sent < kTotal;) {
      const std::size_t size = std::min<std::uint64_t>({may, 65536, kTotal - sent});
      if (size == 0) {
        const proto::Frame grant = peer.next(FrameType::kCredit);
        for (std::size_t i = 0; i < 4; ++i)
          may += static_cast<std::uint64_t>(static_cast<unsigned char>(grant.payload[i]))
                 << (8 * i);
        continue;
      }
      peer.out(stream, std::string(size, 'y'));
      sent += size;
      may -= size;
    }
    peer.close(stream, FakeSupervisor::exited(0));
  });
  Connection connection(supervisor.take_client());
  std::size_t seen = 0;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view bytes) {
    seen += bytes.size();
    return true;
  };
  ASSERT_TRUE(run_exec(connection, command({"yes"}), options).has_value());
  EXPECT_EQ(seen, kTotal);
}

TEST(Credit, MoreThanGrantedAndUnknownChannelsAreABrokenProtocol) {
  Credit credit;
  EXPECT_TRUE(credit.received(1, proto::kInitialCredit).has_value());
  EXPECT_FALSE(credit.received(1, 1).has_value());
  EXPECT_EQ(credit.consumed(1, proto::kInitialCredit), proto::kInitialCredit);
  EXPECT_TRUE(credit.received(1, 1).has_value());
  EXPECT_FALSE(credit.received(0, 1).has_value());
  EXPECT_FALSE(credit.received(3, 1).has_value());
  EXPECT_FALSE(credit.granted("123").has_value());
  EXPECT_TRUE(credit.granted(credit_payload(0x8000'0000)).has_value());
  EXPECT_FALSE(credit.granted(credit_payload(0xffff'ffff)).has_value());
}

TEST(RunExec, CancelAndSignalAndResizeAreAsked) {
  auto control = Control::create();
  ASSERT_TRUE(control.has_value());
  std::uint64_t signal = 0, operation = 0, second = 0;
  std::string size;
  std::uint32_t second_stream = 99;
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
    peer.started(stream);
    proto::Frame frame = peer.next(FrameType::kControl);
    signal = *proto::FieldReader::parse(frame.payload)->number(Tag::kSignal);
    frame = peer.next(FrameType::kControl);
    size = *proto::FieldReader::parse(frame.payload)->text(Tag::kResize);
    frame = peer.next(FrameType::kControl);
    operation = *proto::FieldReader::parse(frame.payload)->number(Tag::kControlOperation);
    frame = peer.next(FrameType::kControl);
    second = *proto::FieldReader::parse(frame.payload)->number(Tag::kControlOperation);
    second_stream = frame.header.stream;
    Outcome outcome;
    outcome.verdict = Verdict::kCancelled;
    peer.close(stream, outcome);
  });
  Connection connection(supervisor.take_client());
  RunOptions options;
  options.control = &*control;
  options.on_started = [&] {
    control->signal(15);
    control->signal(99);  // no signal: not asked
    control->resize(0x1234, 7);
    control->cancel();
    control->cancel();
  };
  const auto result = run_exec(connection, command({"sleep"}), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->outcome.verdict, Verdict::kCancelled);
  EXPECT_EQ(signal, 15u);
  EXPECT_EQ(size, std::string("\x34\x12\x07\x00", 4));
  EXPECT_EQ(operation, 1u);
  EXPECT_EQ(second, 1u);
  EXPECT_EQ(second_stream, 0u);
}

TEST(RunExec, AConsumerThatWantsNoMoreCancels) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
    peer.out(stream, "one");
    const proto::Frame frame = peer.next(FrameType::kControl);
    peer.out(stream, "two");
    Outcome outcome;
    outcome.verdict = frame.header.stream == stream ? Verdict::kCancelled : Verdict::kExited;
    peer.close(stream, outcome);
  });
  Connection connection(supervisor.take_client());
  int calls = 0;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view) {
    ++calls;
    return false;
  };
  const auto result = run_exec(connection, command({"yes"}), options);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->outcome.verdict, Verdict::kCancelled);
  EXPECT_EQ(calls, 1);
}

std::string fault_of(const FakeSupervisor::Script& script) {
  FakeSupervisor supervisor(script);
  Connection connection(supervisor.take_client());
  const auto result = run_exec(connection, command({"true"}), {});
  return result.has_value() ? "" : result.error().message();
}

TEST(RunExec, ASupervisorThatGoesIsSaidSo) {
  EXPECT_NE(fault_of([](FakeSupervisor& peer) {
              peer.hello();
              peer.next(FrameType::kOpen);
            }).find("the sandbox has gone"),
            std::string::npos);
}

TEST(RunExec, ARefusedRequestIsItsError) {
  EXPECT_EQ(fault_of([](FakeSupervisor& peer) {
              peer.hello();
              const std::uint32_t stream = peer.next(FrameType::kOpen).header.stream;
              proto::Fields fields;
              fields.put_u32(Tag::kErrorCode, 8).put(Tag::kErrorMessage, "too many commands");
              peer.send(stream, FrameType::kClose, 0, fields.bytes());
            }),
            "too many commands");
}

TEST(RunExec, ACloseWithoutAVerdictAndOtherNonsenseAreErrors) {
  EXPECT_NE(fault_of([](FakeSupervisor& peer) {
              peer.hello();
              peer.send(peer.next(FrameType::kOpen).header.stream, FrameType::kClose, 0, {});
            }).find("without a verdict"),
            std::string::npos);
  EXPECT_NE(fault_of([](FakeSupervisor& peer) {
              peer.started(peer.next(FrameType::kOpen).header.stream);
            }).find("begins with one HELLO"),
            std::string::npos);
  EXPECT_NE(fault_of([](FakeSupervisor& peer) {
              peer.hello(9, 8);
              peer.next(FrameType::kOpen);
            }).find("versions 8 to 9"),
            std::string::npos);
  EXPECT_NE(fault_of([](FakeSupervisor& peer) {
              peer.hello();
              peer.next(FrameType::kOpen);
              peer.send_raw(std::string(12, '\xff'));
            }),
            "");
}

TEST(RunExec, WhatCannotBeAskedForIsRefusedHere) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    while (peer.next().header.stream != 0) {
    }
  });
  {
    Connection connection(supervisor.take_client());
    EXPECT_FALSE(run_exec(connection, command({}), {}).has_value());
    EXPECT_FALSE(run_exec(connection, command({std::string("a\0b", 3)}), {}).has_value());
    const auto large = run_exec(connection, command({std::string(2'700'000, 'x')}), {});
    ASSERT_FALSE(large.has_value());
    EXPECT_NE(large.error().message().find("at most 2621440"), std::string::npos);
  }
}

TEST(StartExec, ReturnsWhenTheCommandRunsOrCouldNotBeStarted) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    peer.started(peer.next(FrameType::kOpen).header.stream);
    peer.close(peer.next(FrameType::kOpen).header.stream, outcome_not_started(2, "no such file"));
  });
  Connection connection(supervisor.take_client());
  auto running = start_exec(connection, command({"sleep"}));
  ASSERT_TRUE(running.has_value());
  EXPECT_FALSE(running->has_value());
  auto failed = start_exec(connection, command({"nothing"}));
  ASSERT_TRUE(failed.has_value());
  ASSERT_TRUE(failed->has_value());
  EXPECT_EQ((*failed)->exit_code, 127u);
}

TEST(AttachExec, ShowsWhatIsKeptAndWhetherItEnded) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    for (const bool ended : {false, true}) {
      const proto::Frame open = peer.next(FrameType::kOpen);
      const auto follow = *proto::FieldReader::parse(open.payload)->number(Tag::kAttach);
      if (follow == 1)
        peer.send(open.header.stream, FrameType::kEvent, 0,
                  proto::Fields().put_u64(Tag::kMissed, 12).bytes());
      peer.out(open.header.stream, follow == 1 ? "followed" : "kept");
      if (ended) {
        peer.close(open.header.stream, FakeSupervisor::exited(5));
      } else {
        peer.send(open.header.stream, FrameType::kClose, 0, {});
      }
    }
  });
  Connection connection(supervisor.take_client());
  std::string seen;
  RunOptions options;
  options.on_output = [&](OutputChannel, std::string_view bytes) {
    seen += bytes;
    return true;
  };
  options.on_missed = [&](std::uint64_t bytes) {
    seen += "[" + std::to_string(bytes) + " missed]";
  };
  const auto kept = attach_exec(connection, std::nullopt, Sandbox::From::kKept, options);
  ASSERT_TRUE(kept.has_value());
  EXPECT_FALSE(kept->has_value());
  const auto followed = attach_exec(connection, std::nullopt, Sandbox::From::kOldest, options);
  ASSERT_TRUE(followed.has_value());
  ASSERT_TRUE(followed->has_value());
  EXPECT_EQ((*followed)->exit_code, 5u);
  EXPECT_EQ(seen, "kept[12 missed]followed");
}

TEST(AttachExec, AKeptCommandIsJoinedByItsNumberAndLeftWithoutEndingIt) {
  FakeSupervisor supervisor([](FakeSupervisor& peer) {
    peer.hello();
    const proto::Frame open = peer.next(FrameType::kOpen);
    const auto fields = proto::FieldReader::parse(open.payload);
    EXPECT_EQ(*fields->number(Tag::kCommand), 12u);
    EXPECT_EQ(*fields->number(Tag::kAttach), 2u);
    peer.started(open.header.stream);
    peer.out(open.header.stream, "enough");
    // A shutdown would end the command.
    EXPECT_EQ(peer.next().header.type, FrameType::kClose);
    peer.send(open.header.stream, FrameType::kClose, 0, {});
  });
  Connection connection(supervisor.take_client());
  RunOptions options;
  options.on_output = [](OutputChannel, std::string_view) { return false; };
  const auto left = attach_exec(connection, 12, Sandbox::From::kNew, options);
  ASSERT_TRUE(left.has_value());
  EXPECT_FALSE(left->has_value());
}

TEST(KeepExec, StartsAndLeavesACommandThatGoesOn) {
  std::string label;
  FakeSupervisor supervisor([&](FakeSupervisor& peer) {
    peer.hello();
    const proto::Frame open = peer.next(FrameType::kOpen);
    const auto fields = proto::FieldReader::parse(open.payload);
    EXPECT_EQ(*fields->number(Tag::kKeep), 1u);
    EXPECT_EQ(*fields->number(Tag::kKeepOutput), 4096u);
    EXPECT_EQ(*fields->number(Tag::kTimeLimitMs), 77u);
    EXPECT_FALSE(fields->has(Tag::kOutputLimit));
    label = *fields->text(Tag::kLabel);
    peer.send(open.header.stream, FrameType::kEvent, 0,
              proto::Fields().put_u32(Tag::kStarted, 7).put_u32(Tag::kCommand, 3).bytes());
    EXPECT_EQ(peer.next().header.type, FrameType::kClose);
    peer.send(open.header.stream, FrameType::kClose, 0, {});
    peer.close(peer.next(FrameType::kOpen).header.stream, outcome_not_started(2, "no such file"));
  });
  Connection connection(supervisor.take_client());
  const auto kept = keep_exec(connection, command({"sleep"}),
                              {.label = "mine", .output_kept = 4096, .timeout_ms = 77});
  ASSERT_TRUE(kept.has_value());
  const auto* made = std::get_if<KeptCommand>(&*kept);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->number, 3u);
  EXPECT_EQ(made->pid, 7u);
  EXPECT_EQ(label, "mine");
  const auto failed = keep_exec(connection, command({"nothing"}), {});
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(std::get<Outcome>(*failed).exit_code, 127u);
}

TEST(KeepExec, InputIsRefusedHere) {
  FakeSupervisor supervisor([](FakeSupervisor&) {});
  Connection connection(supervisor.take_client());
  Command wanted = command({"cat"});
  wanted.input = "x";
  EXPECT_EQ(keep_exec(connection, wanted, {}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace caisson::box
