#include "api/e2b/process.h"

#include "api/e2b/data_plane_for_test.h"
#include "base/verdict.h"

namespace caisson::api::e2b {
namespace {

Outcome exited(std::uint32_t code) {
  return FakeSupervisor::exited(code);
}

class Processes : public DataPlaneTest {
 protected:
  static void started(FakeSupervisor& at, const proto::Frame& open) {
    event(at, open, proto::Fields().put_u32(Tag::kStarted, 7).put_u32(Tag::kCommand, 3));
  }
  // Answers the list with one command, number 3, pid 7, tag "t".
  struct Listed {
    Terminal terminal = Terminal::kNone;
    std::uint8_t input = 1;
    std::string verdict;
  };
  static void tell_list(FakeSupervisor& at, const Listed& listed) {
    const proto::Frame request = at.next(FrameType::kControl);
    const std::uint64_t number = fields(request).number(Tag::kRequest).value();
    ProcessLabel label;
    label.config.set("cmd", "/bin/bash");
    label.tag = "t";
    label.terminal = listed.terminal;
    proto::Fields one;
    one.put_u32(Tag::kRequest, static_cast<std::uint32_t>(number))
        .put_u32(Tag::kCommand, 3)
        .put_u32(Tag::kPid, 7)
        .put_u8(Tag::kStdin, listed.input)
        .put(Tag::kLabel, encode_label(label));
    at.send(0, FrameType::kEvent, 0, one.bytes() + listed.verdict);
    at.send(0, FrameType::kEvent, 0,
            proto::Fields().put_u32(Tag::kRequest, static_cast<std::uint32_t>(number)).bytes());
  }
  static proto::Frame tell_joined(FakeSupervisor& at) {
    proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(fields(open).number_or_none(Tag::kAttach), 2u);
    EXPECT_EQ(fields(open).number_or_none(Tag::kCommand), 3u);
    started(at, open);
    return open;
  }
};

TEST_F(Processes, AStartTellsBirthOutputAndEnd) {
  sandbox_->variables = {{"A", "old"}, {"B", "b"}};
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    const FieldReader asked = fields(open);
    EXPECT_EQ(asked.all(Tag::kArg), (std::vector<std::string_view>{"/bin/bash", "-c", "true"}));
    EXPECT_EQ(asked.all(Tag::kEnv), (std::vector<std::string_view>{"A=new", "B=b"}));
    EXPECT_EQ(text(open, Tag::kUser), "user");
    EXPECT_EQ(text(open, Tag::kCwd), "/x");
    EXPECT_EQ(asked.number_or_none(Tag::kKeep), 1u);
    EXPECT_EQ(asked.number_or_none(Tag::kStdin), 0u);
    EXPECT_FALSE(asked.has(Tag::kTimeLimitMs));
    EXPECT_EQ(decode_label(text(open, Tag::kLabel)).tag, "t");
    started(at, open);
    at.out(open.header.stream, "hi");
    at.out(open.header.stream, "oh", proto::Channel::kErr);
    at.close(open.header.stream, exited(1));
  });
  const auto answer = stream("/process.Process/Start",
                             R"({"process":{"cmd":"/bin/bash","args":["-c","true"],"cwd":"/x",)"
                             R"("envs":{"A":"new"}},"tag":"t","stdin":false})");
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(messages(*answer),
            "{\"event\":{\"start\":{\"pid\":7}}}\n"
            "{\"event\":{\"data\":{\"stdout\":\"aGk=\"}}}\n"
            "{\"event\":{\"data\":{\"stderr\":\"b2g=\"}}}\n"
            "{\"event\":{\"end\":{\"exitCode\":1,\"exited\":true,\"status\":\"exit status 1\","
            "\"error\":\"exit status 1\"}}}\n"
            "2 {}\n");
  // The log knows of it, without arguments, variables and output.
  using Fields = std::map<std::string, std::string>;
  ASSERT_EQ(sandbox_->noted.size(), 2u);
  EXPECT_EQ(sandbox_->noted[0].message, "a process started");
  EXPECT_EQ(sandbox_->noted[0].fields,
            (Fields{{"cmd", "/bin/bash"}, {"command", "3"}, {"pid", "7"}, {"tag", "t"}}));
  EXPECT_EQ(sandbox_->noted[1].message, "a process ended");
  EXPECT_EQ(sandbox_->noted[1].fields, (Fields{{"cmd", "/bin/bash"},
                                               {"command", "3"},
                                               {"exit_code", "1"},
                                               {"pid", "7"},
                                               {"tag", "t"},
                                               {"verdict", "exited"}}));
}

TEST_F(Processes, ATerminalHasASizeAndOneOutput) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(text(open, Tag::kPty), std::string("\x2c\x01\x18\0", 4));
    started(at, open);
    at.out(open.header.stream, "$");
    at.close(open.header.stream, exited(0));
  });
  const auto answer = stream("/process.Process/Start",
                             R"({"process":{"cmd":"sh"},"pty":{"size":{"cols":300,"rows":24}}})");
  EXPECT_NE(messages(*answer).find(R"({"data":{"pty":"JA=="}})"), std::string::npos);
}

TEST_F(Processes, TheUserIsWhomTheHeaderNames) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(text(open, Tag::kUser), "root");
    at.close(open.header.stream, exited(0));
  });
  stream("/process.Process/Start", R"({"process":{"cmd":"true"}})",
         {{"Authorization", "Basic cm9vdDo="}});
}

TEST_F(Processes, NamesThatMeanMoreThanAUserAreRefused) {
  for (const char* credentials : {"Basic cm9vdDo6", "Bearer x", "Basic !", "Basic MTAwMDo="}) {
    const auto answer = stream("/process.Process/Start", R"({"process":{"cmd":"true"}})",
                               {{"Authorization", credentials}});
    if (std::string_view(credentials) == "Basic cm9vdDo6") continue;  // "root::", a password ":"
    EXPECT_NE(messages(*answer).find(R"("code":"unauthenticated")"), std::string::npos)
        << credentials;
  }
}

TEST_F(Processes, WhatDidNotStartIsToldInTheLastMessage) {
  const auto refused = [&](proto::ErrorSubject subject, std::uint32_t number) {
    play([subject, number](FakeSupervisor& at) {
      const proto::Frame open = at.next(FrameType::kOpen);
      proto::Fields more;
      more.put_u8(Tag::kErrorSubject, static_cast<std::uint8_t>(subject))
          .put_u32(Tag::kErrorErrno, number);
      Outcome outcome = outcome_not_started(static_cast<int>(number), "no such thing");
      at.send(open.header.stream, FrameType::kClose, 0, encode_outcome(outcome) + more.bytes());
    });
    const auto answer = stream("/process.Process/Start", R"({"process":{"cmd":"sh","cwd":"/no"}})");
    EXPECT_EQ(answer->status, 200);
    client_.reset();
    return messages(*answer);
  };
  EXPECT_EQ(refused(proto::ErrorSubject::kDirectory, ENOENT),
            "2 {\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/no' does not "
            "exist\"}}\n");
  EXPECT_NE(refused(proto::ErrorSubject::kDirectory, ENOTDIR).find("is not a directory"),
            std::string::npos);
  EXPECT_EQ(refused(proto::ErrorSubject::kUser, 0),
            "2 {\"error\":{\"code\":\"unauthenticated\",\"message\":\"invalid username: "
            "'user'\"}}\n");
  EXPECT_NE(refused(proto::ErrorSubject::kProgram, ENOENT).find("error starting process 'sh'"),
            std::string::npos);
}

TEST_F(Processes, TheRequestsTimeEndsTheProcess) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    const auto limit = fields(open).number_or_none(Tag::kTimeLimitMs);
    EXPECT_TRUE(limit.has_value() && *limit > 50'000 && *limit <= 60'000);
    started(at, open);
    Outcome outcome;
    outcome.verdict = Verdict::kTimeLimit;
    at.close(open.header.stream, outcome);
  });
  const auto answer = stream("/process.Process/Start", R"({"process":{"cmd":"sleep"}})",
                             {{"Connect-Timeout-Ms", "60000"}});
  EXPECT_NE(messages(*answer).find(R"(2 {"error":{"code":"deadline_exceeded")"), std::string::npos);
}

TEST_F(Processes, ASandboxThatIsKilledCutsTheStream) {
  play([this](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    started(at, open);
    sandbox_->has_ended = true;
    Outcome outcome;
    outcome.verdict = Verdict::kCancelled;
    at.close(open.header.stream, outcome);
  });
  const auto answer = stream("/process.Process/Start", R"({"process":{"cmd":"sleep"}})");
  EXPECT_TRUE(answer->aborted);
  EXPECT_FALSE(answer->ended);
}

TEST_F(Processes, LostOutputIsAnErrorAndNoGap) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = at.next(FrameType::kOpen);
    started(at, open);
    event(at, open, proto::Fields().put_u64(Tag::kMissed, 5));
    at.next(FrameType::kClose);
  });
  const auto answer = stream("/process.Process/Start", R"({"process":{"cmd":"yes"}})");
  EXPECT_NE(messages(*answer).find("data_loss"), std::string::npos);
}

TEST_F(Processes, TheListHasThoseThatRun) {
  play([](FakeSupervisor& at) {
    tell_list(at, {});
    tell_list(at, {.verdict = encode_outcome(exited(0))});
  });
  EXPECT_EQ(call("/process.Process/List", "{}")->answer,
            R"({"processes":[{"config":{"cmd":"/bin/bash"},"pid":7,"tag":"t"}]})");
  EXPECT_EQ(call("/process.Process/List", "")->answer, R"({"processes":[]})");
}

TEST_F(Processes, AConnectReadsOnFromNow) {
  play([](FakeSupervisor& at) {
    tell_list(at, {});
    const proto::Frame open = tell_joined(at);
    at.out(open.header.stream, "x");
    at.close(open.header.stream, exited(0));
  });
  const auto answer = stream("/process.Process/Connect", R"({"process":{"tag":"t"}})");
  EXPECT_TRUE(messages(*answer).starts_with("{\"event\":{\"start\":{\"pid\":7}}}\n"));
  EXPECT_TRUE(messages(*answer).ends_with("\"status\":\"exit status 0\"}}}\n2 {}\n"));
}

TEST_F(Processes, OneThatIsNotThereIsNotFound) {
  play([](FakeSupervisor& at) {
    for (int i = 0; i < 3; ++i) tell_list(at, {});
    tell_list(at, {.verdict = encode_outcome(exited(0))});
  });
  const auto answer =
      call("/process.Process/SendSignal", R"({"process":{"pid":8},"signal":"SIGNAL_SIGKILL"})");
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->answer, R"({"code":"not_found","message":"process with pid 8 not found"})");
  EXPECT_NE(messages(*stream("/process.Process/Connect", R"({"process":{"pid":8}})"))
                .find("process with pid 8 not found"),
            std::string::npos);
  EXPECT_NE(call("/process.Process/Update", R"({"process":{"tag":"u"}})")
                ->answer.find("process with tag u not found"),
            std::string::npos);
  // One that has ended takes no signals.
  EXPECT_EQ(
      call("/process.Process/SendSignal", R"({"process":{"pid":7},"signal":"SIGNAL_SIGKILL"})")
          ->status,
      404);
}

TEST_F(Processes, ASignalGoesToTheProcess) {
  std::uint64_t signal = 0;
  play([&](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    signal = fields(at.next(FrameType::kControl)).number_or_none(Tag::kSignal).value_or(0);
  });
  EXPECT_EQ(
      call("/process.Process/SendSignal", R"({"process":{"pid":7},"signal":"SIGNAL_SIGTERM"})")
          ->answer,
      "{}");
  finish_script();
  EXPECT_EQ(signal, 15u);
  EXPECT_EQ(call("/process.Process/SendSignal", R"({"process":{"pid":7},"signal":1})")->status,
            400);
}

TEST_F(Processes, InputIsOnItsWayBeforeTheStreamEnds) {
  std::string input;
  play([&](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    input = take_input(at);
  });
  EXPECT_EQ(
      call("/process.Process/SendInput", R"({"process":{"pid":7},"input":{"stdin":"aGVsbG8="}})")
          ->answer,
      "{}");
  finish_script();
  EXPECT_EQ(input, "hello");
}

TEST_F(Processes, ClosedInputTakesNothing) {
  play([](FakeSupervisor& at) {
    tell_list(at, {.input = 0});
    tell_joined(at);
    tell_list(at, {.input = 0});
  });
  const auto answer =
      call("/process.Process/SendInput", R"({"process":{"pid":7},"input":{"stdin":"aGk="}})");
  EXPECT_EQ(answer->status, 500);
  EXPECT_EQ(answer->answer, R"({"code":"internal","message":"stdin not enabled or closed"})");
  // To close it again changes nothing.
  EXPECT_EQ(call("/process.Process/CloseStdin", R"({"process":{"pid":7}})")->answer, "{}");
}

TEST_F(Processes, InputThatIsNotTakenInTimeIsNoSuccess) {
  play([](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    while (at.next().header.type != FrameType::kClose) continue;
  });
  const std::string input(1 << 20, 'A');
  const auto answer = call("/process.Process/SendInput",
                           R"({"process":{"pid":7},"input":{"stdin":")" + input + R"("}})",
                           {{"Connect-Timeout-Ms", "50"}});
  EXPECT_EQ(*answer->answer_json().find("code")->as_string(), "deadline_exceeded");
}

TEST_F(Processes, InputThatIsTooMuchSaysSo) {
  play([](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    const proto::Frame data = at.next(FrameType::kData);
    proto::Fields full;
    full.put_error(Error::exhausted("the command does not read its input"));
    at.send(data.header.stream, FrameType::kClose, 0, full.bytes());
    at.next();
  });
  const auto answer =
      call("/process.Process/SendInput", R"({"process":{"pid":7},"input":{"stdin":"aGk="}})");
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(*answer->answer_json().find("message")->as_string(),
            "the command does not read its input");
}

TEST_F(Processes, ClosingStdinIsAFinish) {
  bool finished = false;
  play([&](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    finished = at.next().header.type == FrameType::kFinish;
  });
  EXPECT_EQ(call("/process.Process/CloseStdin", R"({"process":{"pid":7}})")->answer, "{}");
  finish_script();
  EXPECT_TRUE(finished);
}

TEST_F(Processes, TerminalsHaveTheirOwnInputAndSize) {
  play([](FakeSupervisor& at) {
    tell_list(at, {.terminal = Terminal::kPty});
    tell_joined(at);
    tell_list(at, {.terminal = Terminal::kPty});
    tell_list(at, {.terminal = Terminal::kPty});
    tell_joined(at);
    EXPECT_EQ(text(at.next(FrameType::kControl), Tag::kResize), std::string("\x50\0\x18\0", 4));
    tell_list(at, {});
  });
  EXPECT_EQ(call("/process.Process/SendInput", R"({"process":{"pid":7},"input":{"stdin":"aGk="}})")
                ->status,
            400);
  EXPECT_EQ(call("/process.Process/CloseStdin", R"({"process":{"pid":7}})")->status, 400);
  const char* const resize = R"({"process":{"pid":7},"pty":{"size":{"cols":80,"rows":24}}})";
  EXPECT_EQ(call("/process.Process/Update", resize)->answer, "{}");
  EXPECT_EQ(call("/process.Process/Update", resize)->status, 400);  // no terminal
}

TEST_F(Processes, AStreamOfInputIsTakenInItsOrder) {
  std::string input;
  play([&](FakeSupervisor& at) {
    tell_list(at, {});
    tell_joined(at);
    input = take_input(at);
  });
  const std::string body = http::envelope(0, R"({"start":{"process":{"pid":7}}})") +
                           http::envelope(0, R"({"data":{"input":{"stdin":"YQ=="}}})") +
                           http::envelope(0, R"({"keepalive":{}})") +
                           http::envelope(0, R"({"data":{"input":{"stdin":"Yg=="}}})");
  const auto answer = ask("POST", "/process.Process/StreamInput",
                          {{"Content-Type", "application/connect+json"}}, body);
  EXPECT_EQ(messages(*answer), "{}\n2 {}\n");
  finish_script();
  EXPECT_EQ(input, "ab");
}

TEST_F(Processes, AMessageThatAsksForNothingSensibleIsRefused) {
  const auto code = [&](std::string_view message) {
    return messages(*stream("/process.Process/Start", message));
  };
  for (const char* message :
       {"{}", R"({"process":{"cmd":""}})", R"({"process":{"cmd":"a","envs":{"":"x"}}})",
        R"({"process":{"cmd":"a","envs":{"A=B":"x"}}})",
        R"({"process":{"cmd":"a"},"pty":{"size":{"cols":70000,"rows":1}}})",
        R"({"process":{"cmd":"a","cwd":"/a\u0000"}})"})
    EXPECT_NE(code(message).find("invalid_argument"), std::string::npos) << message;
  EXPECT_EQ(call("/process.Process/SendInput", R"({"input":{}})")->status, 400);
}

}  // namespace
}  // namespace caisson::api::e2b
