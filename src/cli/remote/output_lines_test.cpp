#include "cli/remote/output_lines.h"

#include <gtest/gtest.h>

#include "box/result_json.h"

namespace caisson::cli {
namespace {

using Kind = OutputLines::Line::Kind;

Result<std::optional<OutputLines::Line>> first(std::string_view text) {
  OutputLines lines;
  lines.feed(text);
  return lines.next();
}

TEST(OutputLines, OutputComesWholeHoweverItsBytesCome) {
  OutputLines lines;
  lines.feed("{\"stdout\":\"a\\n");
  EXPECT_FALSE(lines.next()->has_value());
  lines.feed("\"}\n{\"stderr\":\"/w==\",\"encoding\":\"base64\"}\n");
  const auto out = lines.next();
  ASSERT_TRUE(out.has_value() && out->has_value());
  EXPECT_EQ((*out)->kind, Kind::kOutput);
  EXPECT_EQ((*out)->channel, OutputChannel::kStdout);
  EXPECT_EQ((*out)->bytes, "a\n");
  const auto err = lines.next();
  ASSERT_TRUE(err.has_value() && err->has_value());
  EXPECT_EQ((*err)->channel, OutputChannel::kStderr);
  EXPECT_EQ((*err)->bytes, "\xff");
  EXPECT_FALSE(lines.next()->has_value());
}

TEST(OutputLines, TheOthersAreTold) {
  EXPECT_EQ((*first("{\"started\":{\"pid\":7}}\n"))->kind, Kind::kStarted);
  EXPECT_EQ((*first("{\"goes_on\":true}\n"))->kind, Kind::kGoesOn);
  const auto missed = first("{\"missed\":5}\n");
  EXPECT_EQ((*missed)->kind, Kind::kMissed);
  EXPECT_EQ((*missed)->missed, 5u);
}

TEST(OutputLines, TheEndHasTheOutcome) {
  RunResult result;
  result.outcome.verdict = Verdict::kSignaled;
  result.outcome.signal = 9;
  result.outcome.cause = "why";
  result.outcome.usage = {.elapsed_us = 1, .memory_peak = 2, .io_write_bytes = 3};
  result.outcome.held[1] = HeldBy::kCgroup;
  result.outcome.limits_hit = {Limit::kPids};
  result.outcome.refusals = {{.syscall = 165, .count = 2, .what = "mount"}};
  json::Value line = json::Value::object();
  line.set("end", box::result_value(result, {.wall = "w", .image = "i"}));
  const auto end = first(json::serialize(line) + "\n");
  ASSERT_TRUE(end.has_value() && end->has_value()) << end.error().message();
  EXPECT_EQ((*end)->outcome, result.outcome);
}

TEST(OutputLines, ASentenceOfTheServersIsKept) {
  RunResult result;
  result.outcome.verdict = Verdict::kTimeLimit;
  result.outcome.detail = "ran longer than 5 ms";
  json::Value line = json::Value::object();
  line.set("end", box::result_value(result, {.wall = "w", .image = "i"}));
  EXPECT_EQ((*first(json::serialize(line) + "\n"))->outcome.detail, "ran longer than 5 ms");
}

TEST(OutputLines, ARefusalIsAnError) {
  const auto refused = first("{\"error\":{\"code\":\"not_found\",\"message\":\"no user x\"}}\n");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kNotFound);
  EXPECT_EQ(refused.error().message(), "no user x");
}

TEST(OutputLines, WhatIsNoLineIsAnError) {
  for (const char* text :
       {"x\n", "{}\n", "[]\n", "{\"stdout\":5}\n", "{\"stdout\":\"%\",\"encoding\":\"base64\"}\n",
        "{\"missed\":\"x\"}\n", "{\"missed\":-1}\n", "{\"error\":{}}\n", "{\"end\":{}}\n",
        "{\"end\":{\"verdict\":{\"kind\":\"odd\"}}}\n"}) {
    const auto line = first(text);
    ASSERT_FALSE(line.has_value()) << text;
    EXPECT_EQ(line.error().code(), Code::kDataLoss) << text;
  }
}

TEST(OutputLines, ALineIsBounded) {
  EXPECT_FALSE(first(std::string((1 << 20) + 1, 'x')).has_value());
}

}  // namespace
}  // namespace caisson::cli
