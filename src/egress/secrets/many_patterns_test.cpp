#include "egress/secrets/many_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace caisson::egress {
namespace {

using ::testing::HasSubstr;

ManyPatterns of(const std::vector<std::string>& texts) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return ManyPatterns::create(views).value();
}

TEST(ManyPatterns, FindsTheLeftmostAndOfThoseTheLongest) {
  const ManyPatterns patterns = of({"she", "he", "hers", "his", "usher"});
  EXPECT_EQ(patterns.find("a usher"), (PatternMatch{4, 2, 7}));
  EXPECT_EQ(patterns.find("a ushers"), (PatternMatch{4, 2, 7}));
  EXPECT_EQ(patterns.find("a ushers", 3), (PatternMatch{0, 3, 6}));
  EXPECT_EQ(patterns.find("hers"), (PatternMatch{2, 0, 4}));
  EXPECT_EQ(patterns.find("her"), (PatternMatch{1, 0, 2}));
  EXPECT_EQ(patterns.find("hhis"), (PatternMatch{3, 1, 4}));
  EXPECT_EQ(patterns.find("nothing"), std::nullopt);
  EXPECT_EQ(patterns.find(""), std::nullopt);
}

TEST(ManyPatterns, AShorterOneIsFoundWhereALongerOneDoesNotGoOn) {
  const ManyPatterns patterns = of({"abcdef", "bc"});
  EXPECT_EQ(patterns.find("abcdex"), (PatternMatch{1, 1, 3}));
  EXPECT_EQ(patterns.find("abcdef"), (PatternMatch{0, 0, 6}));
}

TEST(ManyPatterns, KnowsHowManyOfTheLastBytesMayGoOn) {
  const ManyPatterns patterns = of({"aab", "abcd"});
  ManyPatterns::State state = ManyPatterns::kStart;
  std::vector<std::size_t> open;
  for (const char c : std::string_view("aaabcxab")) {
    state = patterns.next(state, static_cast<unsigned char>(c));
    open.push_back(patterns.open(state));
  }
  EXPECT_EQ(open, (std::vector<std::size_t>{1, 2, 2, 2, 3, 0, 1, 2}));
}

TEST(ManyPatterns, OfEqualOnesTheFirstIsFound) {
  EXPECT_EQ(of({"xx", "abc", "abc"}).find("abc"), (PatternMatch{1, 0, 3}));
}

TEST(ManyPatterns, TakesAnyBytes) {
  const std::string zeros(3, '\0'), high = "\xff\xfe";
  const ManyPatterns patterns = of({zeros, high});
  EXPECT_EQ(patterns.find("a" + zeros), (PatternMatch{0, 1, 4}));
  EXPECT_EQ(patterns.find("\xff" + high), (PatternMatch{1, 1, 3}));
}

TEST(ManyPatterns, NoneFindNothing) {
  const ManyPatterns none;
  EXPECT_EQ(none.find("abc"), std::nullopt);
  EXPECT_EQ(none.count(), 0u);
  EXPECT_EQ(none.longest(), 0u);
}

TEST(ManyPatterns, RefusesAnEmptyOneAndTooManyBytes) {
  const std::string_view empty = "";
  const auto refused = ManyPatterns::create(std::span(&empty, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);

  const std::string half(kMostPatternBytes / 2, 'a');
  const std::vector<std::string_view> fit = {half, half}, more = {half, half, "b"};
  EXPECT_TRUE(ManyPatterns::create(fit).has_value());
  const auto too_many = ManyPatterns::create(more);
  ASSERT_FALSE(too_many.has_value());
  EXPECT_EQ(too_many.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(too_many.error().message(), HasSubstr("1048577 bytes; allowed are 1048576"));
}

// The longest pattern that ends at each byte, and the longest beginning.
TEST(ManyPatterns, SeesAtEachByteWhatASimpleSearchSees) {
  std::mt19937 random(20260101);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const auto some = [&](std::size_t most) {
      std::string text(1 + random() % most, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 3);
      return text;
    };
    std::vector<std::string> texts(1 + random() % 6);
    for (std::string& text : texts) text = some(5);
    const ManyPatterns patterns = of(texts);
    const std::string text = some(60);
    ManyPatterns::State state = ManyPatterns::kStart;
    for (std::size_t i = 0; i < text.size(); ++i) {
      state = patterns.next(state, static_cast<unsigned char>(text[i]));
      const std::string_view seen = std::string_view(text).substr(0, i + 1);
      std::size_t longest = 0, open = 0;
      for (const std::string& pattern : texts) {
        if (seen.ends_with(pattern)) longest = std::max(longest, pattern.size());
        for (std::size_t size = 1; size < pattern.size(); ++size) {
          if (seen.ends_with(pattern.substr(0, size))) open = std::max(open, size);
        }
      }
      const auto found = patterns.ends(state);
      EXPECT_EQ(found ? patterns.size(*found) : 0, longest) << seen;
      EXPECT_EQ(patterns.open(state), open) << seen;
    }
  }
}

}  // namespace
}  // namespace caisson::egress
