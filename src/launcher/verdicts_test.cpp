#include "launcher/verdicts.h"

#include <gtest/gtest.h>

#include "base/proto.h"
#include "base/verdict.h"

namespace caisson::launcher {
namespace {

Outcome refused(std::uint32_t count) {
  Outcome outcome;
  outcome.verdict = Verdict::kExited;
  outcome.refusals.push_back({.syscall = 165, .count = count, .what = "mount"});
  return outcome;
}

std::vector<Refusal> refusals_of(const Verdicts& verdicts) {
  const std::string payload = verdicts.refusals();
  return *decode_refusals(*proto::FieldReader::parse(payload));
}

TEST(Verdicts, TheNewestAreKept) {
  Verdicts verdicts;
  for (std::uint32_t at = 0; at < Verdicts::kMost + 5; ++at) verdicts.add({.command = at}, {});
  ASSERT_EQ(verdicts.all().size(), Verdicts::kMost);
  const auto oldest = proto::FieldReader::parse(verdicts.all().front());
  EXPECT_EQ(oldest->number_or_none(proto::Tag::kCommand), 5u);
}

TEST(Verdicts, TheirBytesAreBounded) {
  Verdicts verdicts;
  Outcome long_one;
  long_one.detail = std::string(kMaxVerdictDetail, 'x');
  for (std::uint32_t at = 0; at < Verdicts::kMost; ++at) verdicts.add({}, long_one);
  std::size_t bytes = 0;
  for (const std::string& one : verdicts.all()) bytes += one.size();
  EXPECT_LE(bytes, Verdicts::kMostBytes);
  EXPECT_GT(verdicts.all().size(), 20u);
}

TEST(Verdicts, RefusedCallsAreCountedOverAll) {
  Verdicts verdicts;
  EXPECT_EQ(verdicts.refusals(), "");
  for (std::size_t at = 0; at < Verdicts::kMost + 1; ++at) verdicts.add({}, refused(2));
  EXPECT_EQ(refusals_of(verdicts).at(0).count, 2 * (Verdicts::kMost + 1));
  EXPECT_EQ(refusals_of(verdicts).at(0).what, "mount");
  verdicts.add({}, refused(0xffffffff));
  EXPECT_EQ(refusals_of(verdicts).at(0).count, 0xffffffff) << "it does not begin anew";
}

TEST(Verdicts, OnlyTheFirstKindsOfRefusedCallsAreKept) {
  Verdicts verdicts;
  for (std::uint32_t call = 0; call < 2 * kMaxRefusals; ++call) {
    Outcome outcome;
    outcome.refusals.push_back({.syscall = call, .count = 1, .what = "a"});
    verdicts.add({}, outcome);
  }
  EXPECT_EQ(refusals_of(verdicts).size(), kMaxRefusals);
}

}  // namespace
}  // namespace caisson::launcher
