#include "cli/table.h"

#include <gtest/gtest.h>

namespace caisson::cli {
namespace {

TEST(TextTable, ColumnsLineUp) {
  TextTable table({"A", "BB", "C"});
  table.add({"long", "x", "end"});
  EXPECT_EQ(table.text(), "A     BB  C\nlong  x   end\n");
}

TEST(TextTable, CountsCharacters) {
  TextTable table({"A", "B"});
  table.add({"ü…", "x"});
  table.add({"abc", "y"});
  EXPECT_EQ(table.text(), "A    B\nü…   x\nabc  y\n");
}

TEST(DurationText, EachUnit) {
  EXPECT_EQ(duration_text(-5), "0ms");
  EXPECT_EQ(duration_text(999), "999ms");
  EXPECT_EQ(duration_text(59'999), "59s");
  EXPECT_EQ(duration_text(200'000), "3m20s");
  EXPECT_EQ(duration_text(7'500'000), "2h05m");
  EXPECT_EQ(duration_text(90'000'000), "1d01h");
}

TEST(SizeText, EachUnit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(300ull << 20), "300 MiB");
  EXPECT_EQ(size_text(5ull << 40), "5.0 TiB");
}

}  // namespace
}  // namespace caisson::cli
