#include "build/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::build {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Variables kVariables = {{"X", "ex"}, {"EMPTY", ""}, {"LONG_1", "long"}, {"Q", "a b'\"c"}};

std::string made(std::string_view text) {
  auto result = expand(text, '\\', lookup(kVariables));
  return result.has_value() ? *result : "error: " + result.error().message();
}

TEST(Expand, VariablesInTheirForms) {
  EXPECT_EQ(made("$X"), "ex");
  EXPECT_EQ(made("${X}y"), "exy");
  EXPECT_EQ(made("$LONG_1-$X"), "long-ex");
  EXPECT_EQ(made("a$NONE!"), "a!");
  EXPECT_EQ(made("$"), "$");
  EXPECT_EQ(made("a$ b"), "a$ b");
  EXPECT_EQ(made("$1x"), "x");
}

TEST(Expand, DefaultsAndAlternatives) {
  EXPECT_EQ(made("${NONE:-d}${EMPTY:-d}${X:-d}"), "ddex");
  EXPECT_EQ(made("${NONE-d}${EMPTY-d}${X-d}"), "dex");
  EXPECT_EQ(made("${NONE:+d}${EMPTY:+d}${X:+d}"), "d");
  EXPECT_EQ(made("${NONE+d}${EMPTY+d}${X+d}"), "dd");
  EXPECT_EQ(made("${X:?no}"), "ex");
  EXPECT_EQ(made("${NONE:-${X}/${NONE:-deep}}"), "ex/deep");
  EXPECT_EQ(made("${NONE:-'a}b'}"), "a}b");
}

TEST(Expand, QuotesAndEscapes) {
  EXPECT_EQ(made("'$X'"), "$X");
  EXPECT_EQ(made("\"$X\""), "ex");
  EXPECT_EQ(made("\\$X"), "$X");
  EXPECT_EQ(made("\"\\$X \\\" \\n\""), "$X \" \\n");
  EXPECT_EQ(made("a\\ b"), "a b");
  EXPECT_EQ(made("'it''s'"), "its");
  EXPECT_EQ(made("$Q"), "a b'\"c");
  EXPECT_EQ(made("a\\"), "a\\");
}

TEST(Expand, ADocumentKeepsItsQuotes) {
  auto text = expand("'$X' \"${X}\" \\$X \\n", '\\', lookup(kVariables), Quoting::kText);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "'ex' \"ex\" $X \\n");
}

TEST(Expand, AnotherEscapeCharacter) {
  auto text = expand("C:\\x `$X", '`', lookup(kVariables));
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "C:\\x $X");
}

TEST(Expand, SaysWhatIsWrong) {
  EXPECT_THAT(made("'a"), HasSubstr("single quote"));
  EXPECT_THAT(made("\"a"), HasSubstr("double quote"));
  EXPECT_THAT(made("${X"), HasSubstr("not closed by '}'"));
  EXPECT_THAT(made("${X:-a"), HasSubstr("not closed by '}'"));
  EXPECT_THAT(made("${}"), HasSubstr("without the name"));
  EXPECT_THAT(made("${X%a}"), HasSubstr("not supported; allowed are"));
  EXPECT_THAT(made("${NONE:?say it}"), HasSubstr("NONE is not set: say it"));
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += "${NONE:-";
  EXPECT_THAT(made(deep + std::string(20, '}')), HasSubstr("nested more than 16"));
}

TEST(Expand, IsBounded) {
  const Variables big = {{"B", std::string(100'000, 'b')}};
  auto text = expand("$B$B$B", '\\', lookup(big));
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kResourceExhausted);
}

TEST(Split, KeepsQuotesInWords) {
  const auto words = split_quoted(" a=1 b=\"x y\" c='q \"' d=e\\ f ", '\\');
  ASSERT_TRUE(words.has_value());
  EXPECT_THAT(*words, ElementsAre("a=1", "b=\"x y\"", "c='q \"'", "d=e\\ f"));
  EXPECT_FALSE(split_quoted("a 'b", '\\').has_value());
  EXPECT_THAT(split_blank(" a\t'b c' \n"), ElementsAre("a", "'b", "c'"));
}

TEST(Names, OfVariables) {
  for (const char* good : {"A", "_a1", "http_proxy"}) EXPECT_TRUE(is_variable_name(good));
  for (const char* bad : {"", "1A", "a-b", "a.b", "é"}) EXPECT_FALSE(is_variable_name(bad));
}

}  // namespace
}  // namespace caisson::build
