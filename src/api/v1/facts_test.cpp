#include "api/v1/scene_for_test.h"
#include "base/verdict.h"

namespace caisson::api::v1 {
namespace {

using proto::ControlOperation;
using testing::HasSubstr;

using V1Facts = Scene;

TEST_F(V1Facts, UsageIsTheSupervisors) {
  const FakeExchange exchange = ask("GET", "/v1/sandboxes/i1/usage", "", [](FakeSupervisor& fake) {
    proto::Fields told;
    told.put_u64(Tag::kUserMicros, 1).put_u64(Tag::kMemoryNow, 2).put_u64(Tag::kDiskInodes, 3);
    answer_request(fake, ControlOperation::kUsage, {told.bytes()});
  });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer,
            R"({"user_us":1,"system_us":0,"memory_now":2,"memory_peak":0,"pids_now":0,)"
            R"("pids_peak":0,"disk_bytes":0,"disk_inodes":3})");
}

TEST_F(V1Facts, LimitsHaveTheirValuesAndHowTheyAreHeld) {
  const FakeExchange exchange = ask("GET", "/v1/sandboxes/i1/limits", "", [](FakeSupervisor& fake) {
    std::string values(kLimits * 8, '\0'), held(kLimits, '\0');
    values[0] = '\xdc', values[1] = '\x05';  // 1500 thousandths
    values[8 + 2] = '\x01';
    held[1] = static_cast<char>(HeldBy::kCgroup);
    proto::Fields told;
    told.put(Tag::kLimitValues, values).put(Tag::kHeld, held);
    answer_request(fake, ControlOperation::kLimits, {told.bytes()});
  });
  EXPECT_EQ(exchange.status, 200) << exchange.answer;
  const json::Value body = exchange.answer_json();
  EXPECT_EQ(json::serialize(*body.find("cpus")), R"({"value":1.5,"held":"none"})");
  EXPECT_EQ(json::serialize(*body.find("memory")), R"({"value":65536,"held":"cgroup"})");
  EXPECT_EQ(json::serialize(*body.find("pids")), R"({"value":null,"held":"none"})");
  EXPECT_NE(body.find("cpu_time_ms"), nullptr);
  EXPECT_EQ(body.find("timeout"), nullptr);
}

TEST_F(V1Facts, ASupervisorThatTellsTooLittleIsOurFault) {
  const FakeExchange exchange = ask("GET", "/v1/sandboxes/i1/limits", "", [](FakeSupervisor& fake) {
    proto::Fields told;
    told.put(Tag::kLimitValues, "x").put(Tag::kHeld, std::string(kLimits, '\0'));
    answer_request(fake, ControlOperation::kLimits, {told.bytes()});
  });
  refusal(exchange, 500);
}

std::string ended(std::uint32_t number, std::string_view program) {
  proto::Fields fields;
  fields.put_u32(Tag::kCommand, number)
      .put(Tag::kProgram, program)
      .put_u64(Tag::kStartedMs, 1000)
      .put_u64(Tag::kEndedMs, 2000);
  return fields.bytes() + encode_outcome(FakeSupervisor::exited(3));
}

TEST_F(V1Facts, VerdictsAreThoseOfTheNewestCommands) {
  const FakeExchange exchange =
      ask("GET", "/v1/sandboxes/i1/verdicts", "", [](FakeSupervisor& fake) {
        answer_request(fake, ControlOperation::kListVerdicts,
                       {ended(0, "/bin/ls"), ended(5, "a\xff"), ""});
      });
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  const json::Value::Array& all = *body.find("verdicts")->as_array();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(json::serialize(all[0]),
              testing::StartsWith(
                  R"({"program":"/bin/ls","started":"1970-01-01T00:00:01.000000Z",)"
                  R"("ended":"1970-01-01T00:00:02.000000Z","result":{"verdict":{"kind":"exited",)"
                  R"("code":3})"));
  EXPECT_EQ(*all[1].find("number"), json::Value(5));
  EXPECT_EQ(*all[1].find("program"), json::Value("a"));
}

TEST_F(V1Facts, RefusalsAreCounted) {
  const FakeExchange exchange =
      ask("GET", "/v1/sandboxes/i1/refusals", "", [](FakeSupervisor& fake) {
        const Refusal refusal{.syscall = 165, .count = 4, .what = "mount"};
        answer_request(fake, ControlOperation::kListVerdicts,
                       {ended(0, "x"), encode_refusals({&refusal, 1})});
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer, R"({"refusals":[{"syscall":165,"what":"mount","count":4}]})");
}

TEST_F(V1Facts, PortsAreReadInside) {
  const FakeExchange exchange = ask("GET", "/v1/sandboxes/i1/ports", "", [](FakeSupervisor& fake) {
    const proto::Frame first = fake.next(FrameType::kOpen);
    EXPECT_THAT(texts(first, Tag::kPath), testing::ElementsAre("/proc/net/tcp"));
    fake.out(first.header.stream, "head\n   0: 0100007F:1F90 00000000:0000 0A 0\n");
    fake.send(first.header.stream, FrameType::kClose, 0, "");
    const proto::Frame second = fake.next(FrameType::kOpen);
    fake.send(second.header.stream, FrameType::kClose, 0,
              proto::Fields().put_error(Error::not_found("no IPv6 here")).bytes());
  });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer,
            R"({"ports":[{"port":8080,"address":"127.0.0.1","host":"8080-i1.example.com"}]})");
}

}  // namespace
}  // namespace caisson::api::v1
