#include "api/e2b/process_state.h"

#include <gtest/gtest.h>

#include "base/proto.h"

namespace caisson::api::e2b {
namespace {

using json::Value;

std::string ended(const Outcome& outcome) {
  const Result<Value> event = end_event(outcome);
  return event ? json::serialize(*event) : "error: " + event.error().message();
}

Outcome outcome(Verdict verdict, std::uint32_t exit_code, std::uint32_t signal) {
  Outcome result;
  result.verdict = verdict;
  result.exit_code = exit_code;
  result.signal = signal;
  return result;
}

TEST(ProcessEnd, IsToldAsGoTellsIt) {
  EXPECT_EQ(ended(outcome(Verdict::kExited, 0, 0)),
            R"({"exitCode":0,"exited":true,"status":"exit status 0"})");
  EXPECT_EQ(ended(outcome(Verdict::kExited, 3, 0)),
            R"({"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"})");
  EXPECT_EQ(ended(outcome(Verdict::kSignaled, 0, 9)),
            R"({"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"})");
}

TEST(ProcessEnd, OursIsAKill) {
  EXPECT_EQ(ended(outcome(Verdict::kTimeLimit, 0, 0)),
            R"({"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"})");
}

TEST(ProcessEnd, ALimitSaysWhichOne) {
  Outcome full = outcome(Verdict::kMemoryLimit, 137, 0);
  full.detail = "the memory was used up";
  EXPECT_EQ(ended(full), R"({"exitCode":137,"exited":true,"status":"exit status 137",)"
                         R"("error":"exit status 137: the memory was used up"})");
}

TEST(ProcessEnd, OurOwnFailureIsNoEndOfTheProgram) {
  Outcome broken = outcome(Verdict::kSandboxError, 0, 0);
  EXPECT_EQ(ended(broken), "error: the sandbox failed");
  broken.detail = "no place";
  EXPECT_EQ(ended(broken), "error: no place");
}

ProcessLabel label(std::string cmd, std::string argument) {
  ProcessLabel made;
  made.config.set("cmd", std::move(cmd));
  made.config.set("args", Value(Value::Array{Value("-c"), Value(std::move(argument))}));
  made.config.set("envs", Value::object().set("A", "b"));
  made.config.set("cwd", "/x");
  made.tag = "t";
  made.terminal = Terminal::kPty;
  return made;
}

TEST(ProcessLabel, ComesBackAsItWas) {
  const ProcessLabel before = label("/bin/bash", "echo \"ü\"");
  const ProcessLabel after = decode_label(encode_label(before));
  EXPECT_EQ(after.config, before.config);
  EXPECT_EQ(after.tag, "t");
  EXPECT_EQ(after.terminal, Terminal::kPty);
}

TEST(ProcessLabel, IsCutWhereItIsTooLong) {
  for (const std::string& argument : {std::string(60'000, 'x'), std::string(60'000, '\1')}) {
    const std::string text = encode_label(label("/bin/bash", argument));
    EXPECT_LE(text.size(), proto::kMaxLabel);
    const ProcessLabel after = decode_label(text);
    EXPECT_EQ(*after.config.find("cmd")->as_string(), "/bin/bash");
    EXPECT_EQ(after.config.find("args")->as_array()->size(), 2u);
    EXPECT_EQ(after.tag, "t");
  }
  ProcessLabel many;
  many.config.set("args", Value(Value::Array(20'000, Value("argument"))));
  EXPECT_LE(encode_label(many).size(), proto::kMaxLabel);
}

TEST(ProcessLabel, WhatIsNoneOfOursIsEmpty) {
  for (const char* text : {"", "x", "[]", R"({"config":7,"tag":1})", R"({"config":{"args":1}})"}) {
    const ProcessLabel label = decode_label(text);
    EXPECT_EQ(json::serialize(label.config), "{}") << text;
    EXPECT_EQ(label.tag, std::nullopt);
  }
}

}  // namespace
}  // namespace caisson::api::e2b
