#include "egress/report.h"

#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

TEST(EgressReport, ComesBackAsItWas) {
  Report report{.connections = 3, .bytes_out = 5, .bytes_in = 1ull << 40, .refusals = {}};
  add_refusal(report, "a.test:443", "is not allowed");
  add_refusal(report, "b.test:443", "is not allowed");
  add_refusal(report, "a.test:443", "is not allowed");
  const Report again = decode_report(encode_report(report)).value();
  EXPECT_EQ(again.connections, 3u);
  EXPECT_EQ(again.bytes_out, 5u);
  EXPECT_EQ(again.bytes_in, 1ull << 40);
  EXPECT_EQ(again.refused, 3u);
  ASSERT_EQ(again.refusals.size(), 2u);
  EXPECT_EQ(again.refusals[0].target, "a.test:443");
  EXPECT_EQ(again.refusals[0].reason, "is not allowed");
  EXPECT_EQ(again.refusals[0].count, 2u);
}

TEST(EgressReport, IsBoundedAndHoldsOnlyWhatCanBeShown) {
  Report report;
  for (int i = 0; i < 1000; ++i)
    add_refusal(report, std::to_string(i) + std::string(1000, 'x'),
                "\x1b[2J\n" + std::string(999, 'y'));
  EXPECT_EQ(report.refused, 1000u);
  EXPECT_EQ(report.refusals.size(), kMostRefusals);
  EXPECT_EQ(report.refusals[0].reason.substr(0, 5), "?[2J?");
  const std::string text = encode_report(report);
  EXPECT_LE(text.size(), kMostReport);
  EXPECT_EQ(decode_report(text).value().refusals.size(), kMostRefusals);
}

TEST(EgressReport, RefusesWhatIsNone) {
  for (const char* text :
       {"", "1\n2\n3\n", "1\n2\n3\nx\n", "1\n2\n3\n4", "1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\na\n",
        "1\n2\n3\n4\n5\na\x1b\nb\n", "1\n2\n3\n4\n5\na\nb\nc"})
    EXPECT_FALSE(decode_report(text).has_value()) << text;
}

}  // namespace
}  // namespace caisson::egress
