#include "base/verdict.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace caisson {
namespace {

Outcome full_outcome() {
  Outcome outcome;
  outcome.verdict = Verdict::kExited;
  outcome.exit_code = 3;
  outcome.cause = "start";
  outcome.detail = "a sentence";
  outcome.usage = {1, 2, 3, 4, 5, 6, 1ull << 40, 8, 9};
  outcome.held = {HeldBy::kCgroup, HeldBy::kRlimit, HeldBy::kWatched};
  outcome.held.back() = HeldBy::kPartly;
  outcome.limits_hit = {Limit::kDisk, Limit::kPids};
  outcome.refusals = {{.syscall = 165, .count = 2, .what = "mount"}, {.syscall = 41, .count = 1}};
  return outcome;
}

TEST(Verdict, EveryFieldSurvivesTheFrame) {
  const Outcome before = full_outcome();
  const auto after = decode_outcome(encode_outcome(before));
  ASSERT_TRUE(after.has_value()) << after.error().message();
  EXPECT_EQ(*after, before);
}

TEST(Verdict, EveryKindSurvivesTheFrame) {
  for (std::size_t kind = 0; kind < kVerdictCount; ++kind) {
    Outcome before;
    before.verdict = static_cast<Verdict>(kind);
    before.signal = before.verdict == Verdict::kSignaled ? 11 : 0;
    const auto after = decode_outcome(encode_outcome(before));
    ASSERT_TRUE(after.has_value()) << to_string(before.verdict) << after.error().message();
    EXPECT_EQ(*after, before);
  }
}

TEST(Verdict, LongTextsAndManyRefusalsAreCut) {
  Outcome before;
  before.verdict = Verdict::kCancelled;
  before.detail.assign(kMaxVerdictDetail + 10, 'x');
  before.refusals.resize(kMaxRefusals + 5);
  const auto after = decode_outcome(encode_outcome(before));
  ASSERT_TRUE(after.has_value()) << after.error().message();
  EXPECT_EQ(after->detail.size(), kMaxVerdictDetail);
  EXPECT_EQ(after->refusals.size(), kMaxRefusals);
}

// A payload with all that is needed, in which one field is replaced.
std::string with_field(proto::Tag tag, std::string_view value) {
  proto::Fields fields;
  const std::string usage(72, '\0');
  const std::string held(kLimits, '\0');
  const auto put = [&](proto::Tag which, std::string_view usual) {
    fields.put(which, which == tag ? value : usual);
  };
  put(proto::Tag::kVerdict, std::string_view("\0", 1));
  put(proto::Tag::kExitCode, std::string_view("\0\0\0\0", 4));
  put(proto::Tag::kUsage, usage);
  put(proto::Tag::kHeld, held);
  if (tag == proto::Tag::kLimitHit || tag == proto::Tag::kRefusal || tag == proto::Tag::kExitSignal)
    fields.put(tag, value);
  return fields.bytes();
}

TEST(Verdict, WhatIsOutOfRangeIsRefused) {
  using proto::Tag;
  EXPECT_TRUE(decode_outcome(with_field(Tag::kVerdict, std::string_view("\0", 1))).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kVerdict, "\x0a")).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kExitCode, {"\0\1\0\0", 4})).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kExitSignal, {"\x41\0\0\0", 4})).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kUsage, "short")).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kHeld, "short")).has_value());
  EXPECT_FALSE(
      decode_outcome(with_field(Tag::kHeld, {"\5\0\0\0\0\0\0\0\0\0\0\0\0", 13})).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kLimitHit, "\x0d")).has_value());
  EXPECT_FALSE(decode_outcome(with_field(Tag::kRefusal, "1234567")).has_value());
  EXPECT_FALSE(decode_outcome("").has_value());
}

TEST(Verdict, ALimitListedTwiceIsRefused) {
  Outcome outcome = full_outcome();
  outcome.limits_hit = {Limit::kDisk, Limit::kDisk};
  EXPECT_FALSE(decode_outcome(encode_outcome(outcome)).has_value());
}

TEST(Verdict, AProgramThatIsNotThereIs127AndOneThatCannotStart126) {
  EXPECT_EQ(exit_status(outcome_not_started(ENOENT, "no such program")), 127);
  EXPECT_EQ(exit_status(outcome_not_started(EACCES, "not executable")), 126);
}

TEST(Verdict, ExitStatuses) {
  const auto status = [](Verdict verdict, std::uint32_t code = 0, std::uint32_t signal = 0) {
    Outcome outcome;
    outcome.verdict = verdict;
    outcome.exit_code = code;
    outcome.signal = signal;
    return exit_status(outcome);
  };
  EXPECT_EQ(status(Verdict::kExited, 42), 42);
  EXPECT_EQ(status(Verdict::kSignaled, 0, 11), 139);
  EXPECT_EQ(status(Verdict::kTimeLimit), 124);
  EXPECT_EQ(status(Verdict::kMemoryLimit), 137);
  EXPECT_EQ(status(Verdict::kProcessLimit), 121);
  EXPECT_EQ(status(Verdict::kDiskLimit), 122);
  EXPECT_EQ(status(Verdict::kOutputLimit), 120);
  EXPECT_EQ(status(Verdict::kPolicyViolation), 119);
  EXPECT_EQ(status(Verdict::kCancelled), 130);
  EXPECT_EQ(status(Verdict::kSandboxError), 125);
}

}  // namespace
}  // namespace caisson
