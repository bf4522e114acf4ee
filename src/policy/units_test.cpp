#include "policy/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr LimitUnit kUnits[] = {LimitUnit::kCpus,     LimitUnit::kBytes,    LimitUnit::kCount,
                                LimitUnit::kDuration, LimitUnit::kByteRate, LimitUnit::kCountRate};

struct Good {
  LimitUnit unit;
  std::string text;
  LimitValue value;
};

TEST(Units, ReadsEveryForm) {
  const std::vector<Good> cases = {
      {LimitUnit::kBytes, "512MiB", 512ull << 20},
      {LimitUnit::kBytes, "1GiB", 1ull << 30},
      {LimitUnit::kBytes, "1TiB", 1ull << 40},
      {LimitUnit::kBytes, "3PiB", 3ull << 50},
      {LimitUnit::kBytes, "2KiB", 2048},
      {LimitUnit::kBytes, "64k", 64'000},
      {LimitUnit::kBytes, "64K", 64'000},
      {LimitUnit::kBytes, "64kB", 64'000},
      {LimitUnit::kBytes, "64KB", 64'000},
      {LimitUnit::kBytes, "1MB", 1'000'000},
      {LimitUnit::kBytes, "1M", 1'000'000},
      {LimitUnit::kBytes, "2GB", 2'000'000'000},
      {LimitUnit::kBytes, "2T", 2'000'000'000'000},
      {LimitUnit::kBytes, "2PB", 2'000'000'000'000'000},
      {LimitUnit::kBytes, "65536", 65'536},
      {LimitUnit::kBytes, "65536B", 65'536},
      {LimitUnit::kBytes, "7bytes", 7},
      {LimitUnit::kBytes, "1.5GiB", 3ull << 29},
      {LimitUnit::kBytes, "0.5KiB", 512},
      {LimitUnit::kBytes, "1.500000000000KiB", 1536},
      {LimitUnit::kBytes, "00012", 12},
      {LimitUnit::kBytes, "18446744073709551615", UINT64_MAX},
      {LimitUnit::kBytes, "unlimited", std::nullopt},
      {LimitUnit::kCount, "256", 256},
      {LimitUnit::kCount, "100k", 100'000},
      {LimitUnit::kCount, "1.5M", 1'500'000},
      {LimitUnit::kCount, "1G", 1'000'000'000},
      {LimitUnit::kCount, "unlimited", std::nullopt},
      {LimitUnit::kCpus, "1", 1000},
      {LimitUnit::kCpus, "0.5", 500},
      {LimitUnit::kCpus, "1.5", 1500},
      {LimitUnit::kCpus, "2.125", 2125},
      {LimitUnit::kCpus, "unlimited", std::nullopt},
      {LimitUnit::kDuration, "500ms", 500},
      {LimitUnit::kDuration, "30s", 30'000},
      {LimitUnit::kDuration, "1.5s", 1500},
      {LimitUnit::kDuration, "2m", 120'000},
      {LimitUnit::kDuration, "1h", 3'600'000},
      {LimitUnit::kDuration, "1d", 86'400'000},
      {LimitUnit::kDuration, "unlimited", std::nullopt},
      {LimitUnit::kByteRate, "10MiB/s", 10ull << 20},
      {LimitUnit::kByteRate, "1.5GB/s", 1'500'000'000},
      {LimitUnit::kByteRate, "1MiB", 1ull << 20},
      {LimitUnit::kByteRate, "65536", 65'536},
      {LimitUnit::kByteRate, "65536/s", 65'536},
      {LimitUnit::kByteRate, "unlimited", std::nullopt},
      {LimitUnit::kCountRate, "500/s", 500},
      {LimitUnit::kCountRate, "10k", 10'000},
      {LimitUnit::kCountRate, "1.5k/s", 1500},
      {LimitUnit::kCountRate, "unlimited", std::nullopt},
  };
  for (const Good& c : cases) {
    const auto value = parse_limit(c.unit, c.text);
    ASSERT_TRUE(value) << c.text << ": " << value.error().message();
    EXPECT_EQ(*value, c.value) << c.text;
    // The canonical form says the same.
    const auto again = parse_limit(c.unit, format_limit(c.unit, c.value));
    ASSERT_TRUE(again) << c.text;
    EXPECT_EQ(*again, c.value) << c.text;
  }
  EXPECT_EQ(*parse_size("1k"), 1000u);
  EXPECT_EQ(*parse_count("1k"), 1000u);
  EXPECT_EQ(*parse_cpus("0.01"), 10u);
  EXPECT_EQ(*parse_duration("1m"), 60'000u);
}

TEST(Units, WritesTheCanonicalForm) {
  const std::vector<Good> cases = {
      {LimitUnit::kBytes, "512MiB", 512ull << 20},
      {LimitUnit::kBytes, "1GiB", 1ull << 30},
      {LimitUnit::kBytes, "1MB", 1'000'000},
      {LimitUnit::kBytes, "1536KiB", 3ull << 19},
      {LimitUnit::kBytes, "1234567", 1'234'567},
      {LimitUnit::kBytes, "64kB", 64'000},
      {LimitUnit::kBytes, "2GB", 2'000'000'000},
      {LimitUnit::kBytes, "4KiB", 4096},
      {LimitUnit::kCount, "100k", 100'000},
      {LimitUnit::kCount, "1024", 1024},
      {LimitUnit::kCpus, "1", 1000},
      {LimitUnit::kCpus, "0.05", 50},
      {LimitUnit::kDuration, "30s", 30'000},
      {LimitUnit::kDuration, "90s", 90'000},
      {LimitUnit::kDuration, "2m", 120'000},
      {LimitUnit::kDuration, "2d", 172'800'000},
      {LimitUnit::kDuration, "1001ms", 1001},
      {LimitUnit::kCount, "unlimited", std::nullopt},
      {LimitUnit::kByteRate, "10MiB/s", 10ull << 20},
      {LimitUnit::kByteRate, "4097/s", 4097},
      {LimitUnit::kByteRate, "unlimited", std::nullopt},
      {LimitUnit::kCountRate, "10k/s", 10'000},
      {LimitUnit::kCountRate, "7/s", 7},
  };
  for (const Good& c : cases) EXPECT_EQ(format_limit(c.unit, c.value), c.text);
}

TEST(Units, EveryAmountComesBackExactly) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::uint64_t value = random() >> (random() % 64);
    constexpr std::uint64_t kFactors[] = {1, 10, 1000, 1024, 60'000, 1'000'000, 1 << 20};
    const std::uint64_t factor = kFactors[random() % std::size(kFactors)];
    if (value < UINT64_MAX / factor) value *= factor;
    if (value == 0) value = 1;
    for (const LimitUnit unit : kUnits) {
      const std::string text = format_limit(unit, value);
      const auto back = parse_limit(unit, text);
      ASSERT_TRUE(back) << text << ": " << back.error().message();
      ASSERT_EQ(*back, value) << text;
    }
  }
}

TEST(Units, RefusesWithWhatWasFoundAndWhatIsAllowed) {
  struct Case {
    LimitUnit unit;
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {LimitUnit::kBytes, "", "found \"\"; allowed is a size such as"},
      {LimitUnit::kBytes, "0",
       "found \"0\" (zero); allowed is an amount above zero; write unlimited"},
      {LimitUnit::kBytes, "0MiB", "(zero)"},
      {LimitUnit::kBytes, "0.0k", "(zero)"},
      {LimitUnit::kBytes, "-1", "a negative amount"},
      {LimitUnit::kBytes, "+1", "begins with a digit"},
      {LimitUnit::kBytes, " 1", "begins with a digit"},
      {LimitUnit::kBytes, "1 MiB", "no unit \" MiB\""},
      {LimitUnit::kBytes, "512m", "no unit \"m\""},
      {LimitUnit::kBytes, "12XB", "no unit \"XB\""},
      {LimitUnit::kBytes, "1s", "no unit \"s\""},
      {LimitUnit::kBytes, "0x10", "no unit \"x10\""},
      {LimitUnit::kBytes, "1e3", "no unit \"e3\""},
      {LimitUnit::kBytes, ".5k", "begins with a digit"},
      {LimitUnit::kBytes, "1.k", "no digit after the point"},
      {LimitUnit::kBytes, "0.1B", "not a whole amount"},
      {LimitUnit::kBytes, "0.3KiB", "not a whole amount"},
      {LimitUnit::kBytes, "0.0000000001PB", "more than nine decimals"},
      {LimitUnit::kBytes, "18446744073709551616", "too large"},
      {LimitUnit::kBytes, "16384PiB", "too large"},
      {LimitUnit::kBytes, std::string(500, '9'), "too large"},
      {LimitUnit::kBytes, "18446744073709551615.999999999PiB", "too large"},
      {LimitUnit::kBytes, "Unlimited", "begins with a digit"},
      {LimitUnit::kBytes, "none", "or unlimited"},
      {LimitUnit::kBytes, "1\x1b[31m", "\\x1b[31m"},
      {LimitUnit::kCount, "5KiB", "allowed is a count such as"},
      {LimitUnit::kCount, "2.5", "not a whole amount"},
      {LimitUnit::kCpus, "1k", "allowed is a number of processors"},
      {LimitUnit::kCpus, "0", "(zero)"},
      {LimitUnit::kCpus, "0.0005", "finer than a thousandth"},
      {LimitUnit::kDuration, "30", "no unit); allowed is a duration with its unit"},
      {LimitUnit::kDuration, "30sec", "no unit \"sec\""},
      {LimitUnit::kDuration, "0s", "(zero)"},
      {LimitUnit::kDuration, "0.5ms", "not a whole amount"},
      {LimitUnit::kDuration, "9999999999999999d", "too large"},
      {LimitUnit::kBytes, "1MiB/s", "no unit \"MiB/s\""},
      {LimitUnit::kCount, "5/s", "no unit \"/s\""},
      {LimitUnit::kByteRate, "1MiB/m", "no unit \"MiB/m\"); allowed is bytes a second such as"},
      {LimitUnit::kByteRate, "1MiB/s/s", "no unit \"MiB/s\""},
      {LimitUnit::kByteRate, "/s", "begins with a digit"},
      {LimitUnit::kByteRate, "0/s", "(zero)"},
      {LimitUnit::kCountRate, "1MiB/s", "allowed is operations a second such as"},
      {LimitUnit::kCountRate, "0.5/s", "not a whole amount"},
  };
  for (const Case& c : cases) {
    const auto value = parse_limit(c.unit, c.text);
    ASSERT_FALSE(value) << c.text;
    EXPECT_THAT(value.error().message(), HasSubstr(c.message)) << c.text;
    EXPECT_THAT(value.error().message(), StartsWith("found ")) << c.text;
    EXPECT_THAT(value.error().message(), HasSubstr("; allowed is ")) << c.text;
    EXPECT_EQ(value.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace caisson::policy
