#include "guest/process_stat.h"

#include <gtest/gtest.h>

namespace caisson::guest {
namespace {

TEST(ProcessStat, IsReadFromItsLine) {
  const auto stat = parse_process_stat(
      "17 (a) b (c)) S 4 17 17 0 -1 4194304 90 80 70 60 1 20 300 4000 20 0 1 0 55 1000\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->name, "a) b (c)");
  EXPECT_EQ(stat->parent, 4u);
  EXPECT_EQ(stat->ticks, 4321u);
}

TEST(ProcessStat, ALineThatIsNotWellFormedIsNone) {
  for (const char* line :
       {"", "17", "17 (a", "17 )a(", "17 (a)", "17 (a) S", "17 (a) S x", "17 (a) S 4 17 17",
        "17 (a) S 99999999999 17 17 0 -1 4 90 80 70 60 1 20 300 4000 20",
        "17 (a) S 4 17 17 0 -1 4194304 90 80 70 60 1 20 300"})
    EXPECT_FALSE(parse_process_stat(line).has_value()) << line;
}

TEST(ProcessStat, TheOwnProcessIsAmongThem) {
  bool found = false;
  const Status done = for_each_process(
      [&](std::uint32_t pid, const std::string& directory, const ProcessStat& stat) -> Status {
        if (pid != static_cast<std::uint32_t>(::getpid())) return {};
        found = true;
        EXPECT_EQ(directory, "/proc/" + std::to_string(pid));
        EXPECT_EQ(stat.parent, static_cast<std::uint32_t>(::getppid()));
        return {};
      });
  EXPECT_TRUE(done.has_value());
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace caisson::guest
