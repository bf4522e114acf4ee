#include "api/v1.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/service_for_test.h"
#include "box/fake_supervisor.h"

namespace caisson::api {
namespace {

using box::FakeSupervisor;
using proto::FrameType;
using proto::Tag;
using testing::ElementsAre;
using testing::HasSubstr;

class V1Test : public testing::Test, public ServiceFixture {
 protected:
  // A request for sandbox i1, whose supervisor plays `script`.
  FakeExchange exec(FakeSupervisor::Script script, std::string body,
                    std::optional<std::size_t> gone_at = std::nullopt) {
    FakeServed& served = fleet.add("i1");
    served.variables = {{"A", "sandbox"}, {"B", "sandbox"}};
    served.workdir = "/work";
    FakeExchange exchange("POST", "/v1/sandboxes/i1/exec", {{"X-API-KEY", "e2b_01"}},
                          std::move(body));
    exchange.gone_at = gone_at;
    FakeSupervisor supervisor(std::move(script));
    Result<std::unique_ptr<io::Stream>> socket = io::adopt(loop, supervisor.take_client());
    EXPECT_TRUE(socket.has_value());
    auto task = [&]() -> io::Async<void> {
      auto client = co_await fleet::BoxClient::connect(loop, std::move(*socket));
      EXPECT_TRUE(client.has_value());
      if (!client.has_value()) co_return;
      served.box = client->get();
      co_await service().handle(exchange);
      served.box = nullptr;
      co_await (*client)->wait_gone();  // so that the supervisor sees what was sent last
    };
    run(loop, task());
    return exchange;
  }
};

std::vector<std::string> texts(const proto::Frame& frame, Tag tag) {
  const auto fields = proto::FieldReader::parse(frame.payload);
  EXPECT_TRUE(fields.has_value());
  std::vector<std::string> texts;
  if (!fields.has_value()) return texts;
  for (const std::string_view text : fields->all(tag)) texts.emplace_back(text);
  return texts;
}

TEST_F(V1Test, OneIsMade) {
  const FakeExchange exchange = call("POST", "/v1/sandboxes", R"({
      "template":"base","timeout_seconds":60,"on_timeout":"pause","auto_resume":true,
      "env":{"A":"b"},"metadata":{"c":"d"}})");
  EXPECT_EQ(exchange.status, 201) << exchange.answer;
  EXPECT_EQ(exchange.headers.get("Location"), "/v1/sandboxes/i1");
  EXPECT_EQ(exchange.answer,
            R"({"id":"i1","template":"base","state":"running",)"
            R"("started":"2026-01-02T03:04:05.678000Z","ends":"2026-01-02T03:05:05.678000Z",)"
            R"("cpus":1,"memory_mib":512,"disk_mib":1024,"metadata":{"c":"d"},)"
            R"("on_timeout":"pause","auto_resume":true})");
  EXPECT_EQ(fleet.wanted.env.at("A"), "b");
}

TEST_F(V1Test, AMistakeInABodyIsNamed) {
  for (const auto& [body, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{}", "template: found nothing"},
           {R"({"template":"base","imagee":1})", "imagee: found an unknown key"},
           {R"({"template":"base","timeout_seconds":0})", "timeout_seconds: found 0"},
           {R"({"template":"base","on_timeout":"stop"})", "on_timeout: found \"stop\""},
           {R"({"template":"base","auto_resume":1})", "auto_resume: found 1"},
           {R"({"template":"base","env":{"A=":"b"}})", "env: found the name \"A=\""},
           {R"({"template":"base","metadata":[]})", "metadata: found an array"}}) {
    EXPECT_THAT(refusal(call("POST", "/v1/sandboxes", body), 400), HasSubstr(message));
  }
}

TEST_F(V1Test, AListHasPages) {
  fleet.add("i1");
  fleet.next_token = "more";
  const FakeExchange exchange = call("GET", "/v1/sandboxes?limit=1&state=running&after=x");
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  EXPECT_EQ(body.find("sandboxes")->as_array()->size(), 1U);
  EXPECT_EQ(*body.find("next"), json::Value("more"));
  EXPECT_EQ(fleet.query.limit, 1U);
  EXPECT_EQ(fleet.query.after, "x");
  EXPECT_FALSE(fleet.query.paused);
  EXPECT_EQ(call("GET", "/v1/sandboxes").answer_json().find("next"), nullptr);
}

TEST_F(V1Test, ABadListIsRefused) {
  EXPECT_EQ(call("GET", "/v1/sandboxes?limit=0").status, 400);
  EXPECT_EQ(call("GET", "/v1/sandboxes?limit=x").status, 400);
  EXPECT_EQ(call("GET", "/v1/sandboxes?state=dead").status, 400);
}

TEST_F(V1Test, OneIsShownAndEnded) {
  fleet.add("i1");
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1").status, 200);
  EXPECT_EQ(call("DELETE", "/v1/sandboxes/i1").status, 204);
  EXPECT_EQ(call("GET", "/v1/sandboxes/i1").status, 404);
  EXPECT_EQ(call("DELETE", "/v1/sandboxes/i1").status, 404);
}

TEST_F(V1Test, ACommandsOutputComesAsLines) {
  const FakeExchange exchange = exec(
      [](FakeSupervisor& fake) {
        fake.hello();
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_THAT(texts(open, Tag::kArg), ElementsAre("echo", "42"));
        EXPECT_THAT(texts(open, Tag::kEnv), ElementsAre("A=sandbox", "B=own"));
        EXPECT_THAT(texts(open, Tag::kCwd), ElementsAre("/work"));
        EXPECT_THAT(texts(open, Tag::kUser), ElementsAre("user"));
        fake.started(open.header.stream);
        fake.out(open.header.stream, "42\n");
        fake.close(open.header.stream, FakeSupervisor::exited(0));
      },
      R"({"command":["echo","42"],"env":{"B":"own"}})");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.get("Content-Type"), "application/x-ndjson");
  EXPECT_TRUE(exchange.ended);
  EXPECT_THAT(exchange.answer, HasSubstr("{\"stdout\":\"42\\n\"}\n"));
  EXPECT_THAT(exchange.answer, HasSubstr("{\"end\":{\"verdict\":{\"kind\":\"exited\",\"code\":0}"));
}

TEST_F(V1Test, InputIsWrittenAndClosed) {
  const FakeExchange exchange = exec(
      [](FakeSupervisor& fake) {
        fake.hello();
        const proto::Frame open = fake.next(FrameType::kOpen);
        EXPECT_EQ(fake.next(FrameType::kData).payload, "in");
        fake.next(FrameType::kFinish);
        fake.close(open.header.stream, FakeSupervisor::exited(0));
      },
      R"({"command":["cat"],"input":"in","workdir":"/tmp","user":"root","timeout_ms":5})");
  EXPECT_TRUE(exchange.ended);
}

TEST_F(V1Test, ACommandEndsWithItsClient) {
  const FakeExchange exchange = exec(
      [](FakeSupervisor& fake) {
        fake.hello();
        const proto::Frame open = fake.next(FrameType::kOpen);
        fake.out(open.header.stream, "one");
        // Both would be one message where they come together.
        fake.next(FrameType::kControl);
        fake.out(open.header.stream, "two");
        EXPECT_EQ(fake.next(FrameType::kClose).header.stream, open.header.stream);
      },
      R"({"command":["yes"]})", 1);
  EXPECT_FALSE(exchange.ended);
}

TEST_F(V1Test, ASilentCommandEndsWithItsClientToo) {
  const FakeExchange exchange = exec(
      [](FakeSupervisor& fake) {
        fake.hello();
        const proto::Frame open = fake.next(FrameType::kOpen);
        fake.out(open.header.stream, "one");
        const proto::Frame cancel = fake.next(FrameType::kControl);
        EXPECT_EQ(cancel.header.stream, open.header.stream);
        fake.close(open.header.stream, FakeSupervisor::exited(0));
      },
      R"({"command":["sleep","inf"]})", 1);
  EXPECT_FALSE(exchange.ended);
}

TEST_F(V1Test, ASandboxThatEndsBreaksTheAnswerOff) {
  const FakeExchange exchange = exec(
      [](FakeSupervisor& fake) {
        fake.hello();
        const proto::Frame open = fake.next(FrameType::kOpen);
        fake.started(open.header.stream);
      },
      R"({"command":["yes"]})");
  EXPECT_FALSE(exchange.ended);
  EXPECT_TRUE(exchange.aborted);
}

TEST_F(V1Test, ABadCommandIsNotRun) {
  fleet.add("i1");
  for (const auto& [body, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{}", "command: found nothing"},
           {R"({"command":[]})", "command: found nothing"},
           {R"({"command":[""]})", "command: found nothing"},
           {R"({"command":"ls"})", "command: found \"ls\""},
           {R"({"command":["a\u0000"]})", "command: found a zero byte"},
           {R"({"command":["a"],"shell":true})", "shell: found an unknown key"},
           {R"({"command":["a"],"env":{"":"x"}})", "env: found"},
           {R"({"command":["a"],"timeout_ms":0})", "timeout_ms: found 0"},
           {R"({"command":["a"],"workdir":7})", "workdir: found 7"},
           {R"({"command":["a"],"user":7})", "user: found 7"},
           {R"({"command":["a"],"input":7})", "input: found 7"}}) {
    EXPECT_THAT(refusal(call("POST", "/v1/sandboxes/i1/exec", body), 400), HasSubstr(message));
  }
  const std::string large = R"({"command":["a"],"env":{"A":")" + std::string(70000, 'x') + R"("}})";
  EXPECT_THAT(refusal(call("POST", "/v1/sandboxes/i1/exec", large), 400),
              HasSubstr("command and env"));
}

TEST_F(V1Test, ACommandNeedsASandboxThatRuns) {
  const std::string body = R"({"command":["true"]})";
  EXPECT_EQ(call("POST", "/v1/sandboxes/i1/exec", body).status, 404);
  FakeServed& served = fleet.add("i1");
  EXPECT_EQ(call("POST", "/v1/sandboxes/i1/exec", body).status, 503);
  served.view_now.state = fleet::State::kPaused;
  EXPECT_EQ(call("POST", "/v1/sandboxes/i1/exec", body).status, 409);
}

}  // namespace
}  // namespace caisson::api
