#include "api/v1/scene_for_test.h"

namespace caisson::api::v1 {
namespace {

using proto::ControlOperation;
using testing::ElementsAre;
using testing::HasSubstr;

using V1Exec = Scene;
constexpr const char* kExec = "/v1/sandboxes/i1/exec";

TEST_F(V1Exec, ACommandsOutputComesAsLines) {
  const FakeExchange exchange = ask(
      "POST", kExec, R"({"command":["echo","42"],"env":{"B":"own"}})", [](FakeSupervisor& fake) {
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_THAT(texts(open, Tag::kArg), ElementsAre("echo", "42"));
        EXPECT_THAT(texts(open, Tag::kEnv), ElementsAre("A=sandbox", "B=own"));
        EXPECT_THAT(texts(open, Tag::kCwd), ElementsAre("/work"));
        EXPECT_THAT(texts(open, Tag::kUser), ElementsAre("user"));
        fake.started(open.header.stream);
        fake.out(open.header.stream, "42\n");
        fake.close(open.header.stream, FakeSupervisor::exited(0));
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.get("Content-Type"), "application/x-ndjson");
  EXPECT_TRUE(exchange.ended);
  EXPECT_THAT(exchange.answer, HasSubstr("{\"stdout\":\"42\\n\"}\n"));
  EXPECT_THAT(exchange.answer, HasSubstr("{\"end\":{\"verdict\":{\"kind\":\"exited\",\"code\":0}"));
}

TEST_F(V1Exec, InputIsWrittenAndClosed) {
  const FakeExchange exchange =
      ask("POST", kExec,
          R"({"command":["cat"],"input":"in","workdir":"/tmp","user":"root","timeout_ms":5,
          "cpu_time_ms":6,"output_bytes":7,"terminal":{"columns":80,"rows":258}})",
          [](FakeSupervisor& fake) {
            const proto::Frame open = fake.next(FrameType::kOpen);
            EXPECT_EQ(number(open, Tag::kTimeLimitMs), 5U);
            EXPECT_EQ(number(open, Tag::kCpuLimitMs), 6U);
            EXPECT_EQ(number(open, Tag::kOutputLimit), 7U);
            EXPECT_THAT(texts(open, Tag::kPty), ElementsAre(std::string("\x50\0\x02\x01", 4)));
            EXPECT_EQ(fake.next(FrameType::kData).payload, "in");
            fake.next(FrameType::kFinish);
            fake.close(open.header.stream, FakeSupervisor::exited(0));
          });
  EXPECT_TRUE(exchange.ended);
}

TEST_F(V1Exec, ACommandEndsWithItsClient) {
  const FakeExchange exchange =
      ask("POST", kExec, R"({"command":["yes"]})",
          [](FakeSupervisor& fake) {
            const proto::Frame open = fake.next(FrameType::kOpen);
            fake.out(open.header.stream, "one");
            // On another channel, so that it is another piece.
            fake.out(open.header.stream, "two", proto::Channel::kErr);
            EXPECT_EQ(fake.next(FrameType::kClose).header.stream, open.header.stream);
          },
          {.gone_at = 1});
  EXPECT_FALSE(exchange.ended);
}

TEST_F(V1Exec, ASilentCommandEndsWithItsClientToo) {
  const FakeExchange exchange =
      ask("POST", kExec, R"({"command":["sleep","inf"]})",
          [](FakeSupervisor& fake) {
            const proto::Frame open = fake.next(FrameType::kOpen);
            fake.out(open.header.stream, "one");
            EXPECT_EQ(fake.next(FrameType::kControl).header.stream, open.header.stream);
            fake.close(open.header.stream, FakeSupervisor::exited(0));
          },
          {.gone_at = 1});
  EXPECT_FALSE(exchange.ended);
}

TEST_F(V1Exec, ASandboxThatEndsBreaksTheAnswerOff) {
  const FakeExchange exchange =
      ask("POST", kExec, R"({"command":["yes"]})",
          [](FakeSupervisor& fake) { fake.started(fake.next(FrameType::kOpen).header.stream); });
  EXPECT_FALSE(exchange.ended);
  EXPECT_TRUE(exchange.aborted);
}

TEST_F(V1Exec, ABadCommandIsNotRun) {
  sandbox();
  for (const auto& [body, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{}", "command: found nothing"},
           {R"({"command":[]})", "command: found nothing"},
           {R"({"command":[""]})", "command: found nothing"},
           {R"({"command":"ls"})", "command: found \"ls\""},
           {R"({"command":["a\u0000"]})", "command: found a zero byte"},
           {R"({"command":["a"],"shell":true})", "shell: found an unknown key"},
           {R"({"command":["a"],"env":{"":"x"}})", "env: found"},
           {R"({"command":["a"],"timeout_ms":0})", "timeout_ms: found 0"},
           {R"({"command":["a"],"terminal":{"rows":1}})", "terminal.columns: found nothing"},
           {R"({"command":["a"],"workdir":7})", "workdir: found 7"},
           {R"({"command":["a"],"user":7})", "user: found 7"},
           {R"({"command":["a"],"input":7})", "input: found 7"}}) {
    EXPECT_THAT(refusal(call("POST", kExec, body), 400), HasSubstr(message));
  }
  // Together with the sandbox's own.
  fleet.sandboxes["i1"]->variables["LARGE"] = std::string(2'700'000, 'x');
  EXPECT_THAT(refusal(call("POST", kExec, R"({"command":["a"]})"), 400),
              HasSubstr("command and env"));
}

// ---- kept commands

class V1Commands : public Scene {
 protected:
  static constexpr const char* kAll = "/v1/sandboxes/i1/commands";
  static constexpr const char* kOne = "/v1/sandboxes/i1/commands/3";

  static std::string entry(std::uint32_t number, bool takes_input = true) {
    return proto::Fields()
        .put_u32(Tag::kCommand, number)
        .put_u32(Tag::kPid, 7)
        .put_u64(Tag::kStartedMs, 1000)
        .put_u8(Tag::kStdin, takes_input ? 1 : 0)
        .put(Tag::kLabel, "mine")
        .bytes();
  }
  static std::string ended_entry(std::uint32_t number) {
    return entry(number) + encode_outcome(FakeSupervisor::exited(3));
  }
  static void list(FakeSupervisor& fake, const std::string& commands) {
    answer_request(fake, ControlOperation::kListCommands, {commands, ""});
  }
  // Command 3 runs, and is joined.
  static std::uint32_t join(FakeSupervisor& fake) {
    list(fake, entry(3));
    const proto::Frame open = fake.next(FrameType::kOpen);
    EXPECT_EQ(number(open, Tag::kCommand), 3U);
    fake.started(open.header.stream);
    return open.header.stream;
  }
};

TEST_F(V1Commands, OneIsStarted) {
  const FakeExchange exchange = ask(
      "POST", kAll,
      R"({"command":["sleep","9"],"input":true,"label":"mine","output_kept":9,"ends_sandbox":true})",
      [](FakeSupervisor& fake) {
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_EQ(number(open, Tag::kKeep), 2U);
        EXPECT_EQ(number(open, Tag::kStdin), 1U);
        EXPECT_EQ(number(open, Tag::kKeepOutput), 9U);
        EXPECT_THAT(texts(open, Tag::kLabel), ElementsAre("mine"));
        fake.send(open.header.stream, FrameType::kEvent, 0,
                  proto::Fields().put_u32(Tag::kStarted, 7).put_u32(Tag::kCommand, 3).bytes());
        fake.next(FrameType::kClose);
      });
  EXPECT_EQ(exchange.status, 201);
  EXPECT_EQ(exchange.headers.get("Location"), "/v1/sandboxes/i1/commands/3");
  EXPECT_EQ(exchange.answer, R"({"number":3,"pid":7})");
}

TEST_F(V1Commands, OneThatCannotBeStartedHasAVerdict) {
  const FakeExchange exchange =
      ask("POST", kAll, R"({"command":["nothing"]})", [](FakeSupervisor& fake) {
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_EQ(number(open, Tag::kKeep), 1U);
        EXPECT_EQ(number(open, Tag::kStdin), 0U);
        fake.close(open.header.stream, FakeSupervisor::exited(127));
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_THAT(exchange.answer, HasSubstr(R"({"result":{"verdict":{"kind":"exited","code":127)"));
}

TEST_F(V1Commands, OneThatIsRefusedSaysWhy) {
  const FakeExchange exchange = ask("POST", kAll, R"({"command":["a"]})", [](FakeSupervisor& fake) {
    const proto::Frame open = fake.next(FrameType::kOpen);
    fake.send(open.header.stream, FrameType::kClose, 0,
              proto::Fields().put_error(Error::exhausted("200 run already")).bytes());
  });
  EXPECT_THAT(refusal(exchange, 429), HasSubstr("200"));
}

TEST_F(V1Commands, ABadOneIsNotStarted) {
  sandbox();
  EXPECT_THAT(refusal(call("POST", kAll, R"({"command":["a"],"input":"x"})"), 400),
              HasSubstr("input: found \"x\""));
  EXPECT_THAT(refusal(call("POST", kAll, R"({"command":["a"],"output_kept":2000000})"), 400),
              HasSubstr("output_kept"));
}

TEST_F(V1Commands, TheyAreListed) {
  const FakeExchange exchange = ask("GET", kAll, "", [](FakeSupervisor& fake) {
    answer_request(fake, ControlOperation::kListCommands, {entry(3), ended_entry(4), ""});
  });
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  const json::Value::Array& all = *body.find("commands")->as_array();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(json::serialize(all[0]),
            R"({"number":3,"pid":7,"label":"mine","started":"1970-01-01T00:00:01.000000Z",)"
            R"("state":"running","takes_input":true})");
  EXPECT_EQ(*all[1].find("state"), json::Value("ended"));
  EXPECT_EQ(*all[1].find("takes_input"), json::Value(false));
  EXPECT_EQ(*all[1].find("result")->find("verdict")->find("code"), json::Value(3));
}

TEST_F(V1Commands, OneIsShown) {
  const FakeExchange exchange =
      ask("GET", kOne, "", [](FakeSupervisor& fake) { list(fake, entry(3)); });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(*exchange.answer_json().find("number"), json::Value(3));
}

TEST_F(V1Commands, OneThatIsNotThereIsNotFound) {
  const FakeExchange other =
      ask("GET", kOne, "", [](FakeSupervisor& fake) { list(fake, entry(4)); });
  EXPECT_THAT(refusal(other, 404), HasSubstr("command \"3\" not found"));
  refusal(call("GET", "/v1/sandboxes/i1/commands/0"), 404);
  refusal(call("GET", "/v1/sandboxes/i1/commands/x"), 404);
}

TEST_F(V1Commands, ItsOutputIsFollowed) {
  const FakeExchange exchange =
      ask("GET", std::string(kOne) + "/output", "", [](FakeSupervisor& fake) {
        list(fake, entry(3));
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_EQ(number(open, Tag::kAttach), 1U);
        EXPECT_EQ(number(open, Tag::kCommand), 3U);
        fake.started(open.header.stream);
        fake.out(open.header.stream, "42\n");
        fake.close(open.header.stream, FakeSupervisor::exited(0));
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_TRUE(exchange.ended);
  EXPECT_THAT(exchange.answer, HasSubstr("{\"stdout\":\"42\\n\"}\n{\"end\":"));
}

TEST_F(V1Commands, WhatWasKeptIsReadWhileItGoesOn) {
  const FakeExchange exchange =
      ask("GET", std::string(kOne) + "/output?from=kept", "", [](FakeSupervisor& fake) {
        list(fake, entry(3));
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_EQ(number(open, Tag::kAttach), 0U);
        fake.started(open.header.stream);
        fake.send(open.header.stream, FrameType::kClose, 0, "");
      });
  EXPECT_THAT(exchange.answer, HasSubstr("{\"goes_on\":true}\n"));
}

TEST_F(V1Commands, AReaderWhoLeavesEndsItOnlyWhereItSaysSo) {
  for (const bool ends : {false, true}) {
    ask("GET", std::string(kOne) + "/output?ends_with_client=" + (ends ? "true" : "false"), "",
        [&](FakeSupervisor& fake) {
          const std::uint32_t stream = join(fake);
          fake.out(stream, "one");
          fake.out(stream, "two", proto::Channel::kErr);
          // A reader's credit goes before.
          proto::Frame next = fake.next();
          while (next.header.type == FrameType::kCredit) next = fake.next();
          EXPECT_EQ(next.header.type, ends ? FrameType::kControl : FrameType::kClose);
        },
        {.gone_at = 30});
  }
}

TEST_F(V1Commands, ABadQueryIsRefused) {
  sandbox();
  EXPECT_THAT(refusal(call("GET", std::string(kOne) + "/output?from=x"), 400), HasSubstr("from"));
  refusal(call("GET", std::string(kOne) + "/output?ends_with_client=1"), 400);
  refusal(call("POST", std::string(kOne) + "/input?end=1"), 400);
}

TEST_F(V1Commands, InputIsPassedOnAndEnded) {
  const FakeExchange exchange =
      ask("POST", std::string(kOne) + "/input?end=true", "hello", [](FakeSupervisor& fake) {
        const std::uint32_t stream = join(fake);
        // Output meanwhile is nobody's to wait for.
        fake.out(stream, "x");
        EXPECT_EQ(fake.next(FrameType::kData).payload, "hello");
        fake.next(FrameType::kFinish);
        fake.send_raw(proto::encode_credit(stream, proto::Channel::kIn, 5));
        fake.next(FrameType::kClose);
      });
  EXPECT_EQ(exchange.status, 204) << exchange.answer;
}

TEST_F(V1Commands, InputForWhatTakesNoneIsRefused) {
  const auto input = std::string(kOne) + "/input";
  EXPECT_THAT(refusal(ask("POST", input, "x",
                          [](FakeSupervisor& fake) {
                            list(fake, entry(3, false));
                            fake.started(fake.next(FrameType::kOpen).header.stream);
                            fake.next(FrameType::kClose);
                          }),
                      409),
              HasSubstr("takes no input"));
  EXPECT_THAT(
      refusal(ask("POST", input, "x", [](FakeSupervisor& fake) { list(fake, ended_entry(3)); }),
              409),
      HasSubstr("has ended"));
}

TEST_F(V1Commands, InputThatComesTooLateIsRefused) {
  const FakeExchange exchange =
      ask("POST", std::string(kOne) + "/input", "x", [](FakeSupervisor& fake) {
        const std::uint32_t stream = join(fake);
        fake.next(FrameType::kData);
        fake.close(stream, FakeSupervisor::exited(0));
      });
  refusal(exchange, 409);
}

TEST_F(V1Commands, ABodyThatBreaksOffIsTheClientsFault) {
  const FakeExchange exchange = ask("POST", std::string(kOne) + "/input", "x",
                                    [](FakeSupervisor& fake) {
                                      join(fake);
                                      fake.next(FrameType::kClose);
                                    },
                                    {.read_error = Error::invalid("the body broke off")});
  refusal(exchange, 400);
}

TEST_F(V1Commands, ASignalASizeAndAnEndAreSent) {
  const auto control = [&](std::string_view method, const std::string& path,
                           const std::string& body, Tag tag, std::string value) {
    const FakeExchange exchange = ask(method, kOne + path, body, [&](FakeSupervisor& fake) {
      join(fake);
      EXPECT_THAT(texts(fake.next(FrameType::kControl), tag), ElementsAre(value));
      fake.next(FrameType::kClose);
    });
    EXPECT_EQ(exchange.status, 204) << exchange.answer;
  };
  control("POST", "/signal", R"({"signal":15})", Tag::kSignal, std::string("\x0f\0\0\0", 4));
  control("PUT", "/terminal", R"({"columns":80,"rows":24})", Tag::kResize,
          std::string("\x50\0\x18\0", 4));
  control("DELETE", "", "", Tag::kControlOperation, std::string("\x01", 1));
}

TEST_F(V1Commands, ABadSignalOrSizeIsRefused) {
  sandbox();
  for (const char* body : {"{}", R"({"signal":0})", R"({"signal":65})"})
    EXPECT_THAT(refusal(call("POST", std::string(kOne) + "/signal", body), 400),
                HasSubstr("signal"));
  refusal(call("PUT", std::string(kOne) + "/terminal", R"({"columns":80})"), 400);
}

}  // namespace
}  // namespace caisson::api::v1
