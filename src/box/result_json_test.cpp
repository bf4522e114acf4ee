#include "box/result_json.h"

#include <gtest/gtest.h>

namespace caisson::box {
namespace {

RunResult exited_with(std::string out) {
  RunResult result;
  result.outcome.verdict = Verdict::kExited;
  result.standard_output = std::move(out);
  return result;
}

json::Value parsed(const RunResult& result) {
  const auto value = json::parse(result_line(result, {.wall = "namespace", .image = "host"}));
  EXPECT_TRUE(value.has_value());
  return *value;
}

TEST(ResultLine, HasWhatWasPromised) {
  RunResult result = exited_with("42\n");
  result.outcome.held[1] = HeldBy::kCgroup;
  result.outcome.held[static_cast<std::size_t>(Limit::kIoWrite)] = HeldBy::kPartly;
  result.outcome.limits_hit = {Limit::kDisk};
  result.outcome.refusals = {{.syscall = 165, .count = 2, .what = "mount"}};
  const std::string line = result_line(result, {.wall = "namespace", .image = "host"});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json::Value value = parsed(result);
  EXPECT_EQ(*value.find("verdict")->find("kind")->as_string(), "exited");
  EXPECT_EQ(*value.find("verdict")->find("code")->as_integer(), 0);
  EXPECT_EQ(*value.find("stdout")->as_string(), "42\n");
  EXPECT_EQ(*value.find("stderr")->as_string(), "");
  EXPECT_EQ(value.find("stdout_encoding"), nullptr);
  EXPECT_EQ(*value.find("wall")->as_string(), "namespace");
  EXPECT_EQ(*value.find("image")->as_string(), "host");
  EXPECT_EQ(*value.find("held")->find("memory")->as_string(), "cgroup");
  EXPECT_EQ(*value.find("held")->find("cpus")->as_string(), "none");
  EXPECT_EQ(*value.find("held")->find("io_write")->as_string(), "partly");
  EXPECT_EQ(*(*value.find("limits_hit")->as_array())[0].as_string(), "disk");
  EXPECT_EQ(*(*value.find("refusals")->as_array())[0].find("what")->as_string(), "mount");
  for (const char* key : {"elapsed_us", "user_us", "system_us", "memory_peak", "bytes_written",
                          "pids_peak", "bytes_out", "io_read_bytes", "io_write_bytes"})
    EXPECT_NE(value.find("usage")->find(key), nullptr) << key;
}

TEST(ResultLine, TheNetworkComesWithTheLastRecordOfItsAudit) {
  policy::NetworkReport report{.connections = 2};
  report.refusals.push_back({.target = "a.example.com:443", .reason = "no_rule", .count = 3});
  ResultContext context{.wall = "namespace", .image = "host", .network = &report};
  auto value = json::parse(result_line(exited_with(""), context));
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(json::serialize(*value->find("network")),
            R"({"complete":true,"connections":2,"bytes_up":0,"bytes_down":0,"refused":0,)"
            R"("refusals":[{"target":"a.example.com:443","reason":"no_rule","count":3}]})");
  report.audit_sequence = 7;
  report.audit_hash = "ab";
  value = json::parse(result_line(exited_with(""), context));
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(json::serialize(*value->find("network")->find("audit")), R"({"seq":7,"hash":"ab"})");
}

TEST(ResultLine, OutputThatIsNoTextIsBase64) {
  const json::Value value = parsed(exited_with("\xff\x00z"));
  EXPECT_EQ(*value.find("stdout")->as_string(), "/w==");
  EXPECT_EQ(*value.find("stdout_encoding")->as_string(), "base64");
}

TEST(ResultLine, ACharacterThatOurLimitCutIsLeftOut) {
  RunResult result = exited_with("ab\xe2\x82");
  EXPECT_EQ(*parsed(result).find("stdout_encoding")->as_string(), "base64");
  result.outcome.verdict = Verdict::kOutputLimit;
  EXPECT_EQ(*parsed(result).find("stdout")->as_string(), "ab");
  EXPECT_EQ(parsed(result).find("stdout_encoding"), nullptr);
}

TEST(WithoutPartialCharacter, OnlyAnUnfinishedOneGoes) {
  EXPECT_EQ(without_partial_character(""), "");
  EXPECT_EQ(without_partial_character("abc"), "abc");
  EXPECT_EQ(without_partial_character("a\xc3"), "a");
  EXPECT_EQ(without_partial_character("a\xf0\x9f\x98"), "a");
  EXPECT_EQ(without_partial_character("a\xf0\x9f\x98\x80"), "a\xf0\x9f\x98\x80");
  EXPECT_EQ(without_partial_character("a\xe0\x80"), "a\xe0\x80");  // no character begins so
  EXPECT_EQ(without_partial_character("a\xff"), "a\xff");
  EXPECT_EQ(without_partial_character("a\x80"), "a\x80");
  EXPECT_EQ(without_partial_character("\xff\xc3"), "\xff\xc3");
}

TEST(ResultLine, SignalsAndReasonsAreNamed) {
  RunResult result;
  result.outcome.verdict = Verdict::kSignaled;
  result.outcome.signal = 11;
  const json::Value value = parsed(result);
  EXPECT_EQ(*value.find("verdict")->find("name")->as_string(), "SIGSEGV");
  EXPECT_EQ(*value.find("verdict")->find("message")->as_string(), "ended by SIGSEGV");
}

TEST(ErrorLine, IsASandboxError) {
  const auto value = json::parse(error_line(Error::invalid("limits.disk: found 0")));
  EXPECT_EQ(*value->find("verdict")->find("kind")->as_string(), "sandbox_error");
  EXPECT_EQ(*value->find("verdict")->find("cause")->as_string(), "invalid_argument");
  EXPECT_EQ(*value->find("verdict")->find("message")->as_string(), "limits.disk: found 0");
}

TEST(VerdictSentence, IsThereForEveryEndButAPlainOne) {
  for (std::size_t kind = 0; kind < kVerdictCount; ++kind) {
    Outcome outcome;
    outcome.verdict = static_cast<Verdict>(kind);
    outcome.signal = 9;
    EXPECT_EQ(verdict_sentence(outcome).empty(), outcome.verdict == Verdict::kExited);
    outcome.detail = "said so";
    EXPECT_EQ(verdict_sentence(outcome), "said so");
  }
}

TEST(Info, SurvivesItsText) {
  SandboxInfo info;
  info.id = "abc";
  info.wall = "namespace";
  info.image = "base";
  info.image_id = std::string(64, 'a');
  info.command = {"a", "b c"};
  info.created_ms = 123;
  info.deadline_ms = 456;
  info.life = Life::kKept;
  info.owner_uid = 1000;
  info.user = "user";
  info.uid = 1000;
  info.gid = 7;
  const auto back = parse_info(info_text(info, 8192));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(back->id, "abc");
  EXPECT_EQ(back->image_id, info.image_id);
  EXPECT_EQ(back->command, info.command);
  EXPECT_EQ(back->deadline_ms, info.deadline_ms);
  EXPECT_EQ(back->life, Life::kKept);
  EXPECT_EQ(back->gid, 7u);
}

TEST(Info, LongCommandsAreCutToTheLimit) {
  SandboxInfo info;
  info.command.assign(100, std::string(5000, '"'));
  const std::string text = info_text(info, 8192);
  EXPECT_LE(text.size(), 8192u);
  EXPECT_TRUE(parse_info(text).has_value());
}

TEST(Info, WhatIsMissingIsNamed) {
  EXPECT_FALSE(parse_info("{").has_value());
  EXPECT_FALSE(parse_info("{}").has_value());
  EXPECT_EQ(
      parse_info(R"({"id":"a","wall":"w","image":"i","user":"u","command":[]})").error().message(),
      "a sandbox's info lacks \"created_ms\"");
  EXPECT_FALSE(parse_info(R"({"id":"a","wall":"w","image":"i","user":"u","command":[],
      "created_ms":1,"owner_uid":-1,"uid":0,"gid":0})")
                   .has_value());
}

}  // namespace
}  // namespace caisson::box
