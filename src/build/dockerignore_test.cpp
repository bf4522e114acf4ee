#include "build/dockerignore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::build {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

bool ignored(std::string_view rules, std::string_view path) {
  auto parsed = IgnoreRules::parse(rules, ".dockerignore");
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed.has_value() && parsed->ignored(path);
}

bool matches(std::string_view pattern, std::string_view path,
             Pattern::Scope scope = Pattern::Scope::kPath) {
  auto made = Pattern::compile(pattern, scope);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return made.has_value() && made->matches(path);
}

TEST(Ignore, APatternLeavesOutWhatIsBelowIt) {
  EXPECT_TRUE(ignored("node_modules\n", "node_modules"));
  EXPECT_TRUE(ignored("node_modules\n", "node_modules/a/b"));
  EXPECT_FALSE(ignored("node_modules\n", "src/node_modules"));
  EXPECT_TRUE(ignored("/a/b/\n", "a/b/c"));
  EXPECT_TRUE(ignored("./x/../a\n", "a"));
  EXPECT_FALSE(ignored("a\n", "ab"));
}

TEST(Ignore, StarsStayInAFolder) {
  EXPECT_TRUE(ignored("*.o\n", "x.o"));
  EXPECT_FALSE(ignored("*.o\n", "d/x.o"));
  EXPECT_TRUE(ignored("*/*.o\n", "d/x.o"));
  EXPECT_TRUE(ignored("a?c\n", "abc"));
  EXPECT_FALSE(ignored("a?c\n", "a/c"));
}

TEST(Ignore, TwoStarsCrossFolders) {
  for (const char* path : {"x.o", "a/x.o", "a/b/x.o"})
    EXPECT_TRUE(ignored("**/*.o\n", path)) << path;
  EXPECT_TRUE(ignored("a/**/z\n", "a/z"));
  EXPECT_TRUE(ignored("a/**/z\n", "a/b/c/z"));
  EXPECT_FALSE(ignored("a/**/z\n", "b/a/z"));
  EXPECT_TRUE(ignored("a/**\n", "a/b/c"));
  EXPECT_FALSE(ignored("a/**\n", "a"));
  EXPECT_TRUE(ignored("**\n", "anything/at/all"));
  EXPECT_FALSE(ignored("**/b\n", "ab"));
}

TEST(Ignore, TheLastMatchDecides) {
  constexpr std::string_view kRules = "*\n!src\nsrc/*.tmp\n!src/keep.tmp\n";
  EXPECT_TRUE(ignored(kRules, "README"));
  EXPECT_FALSE(ignored(kRules, "src"));
  EXPECT_FALSE(ignored(kRules, "src/a/b"));
  EXPECT_TRUE(ignored(kRules, "src/x.tmp"));
  EXPECT_FALSE(ignored(kRules, "src/keep.tmp"));
}

TEST(Ignore, CommentsBlanksAndTheRoot) {
  EXPECT_FALSE(ignored("#a\n\n  \n.\n/\n", "a"));
  EXPECT_TRUE(ignored("  a  \r\n", "a"));
  EXPECT_TRUE(ignored("\\#a\n", "#a"));
  auto rules = IgnoreRules::parse("a\n!b\n", "x");
  ASSERT_TRUE(rules.has_value());
  EXPECT_TRUE(rules->has_exceptions());
}

TEST(Ignore, SaysWhereItIsWrong) {
  auto rules = IgnoreRules::parse("a\n[b\n", ".dockerignore");
  ASSERT_FALSE(rules.has_value());
  EXPECT_THAT(rules.error().message(), StartsWith(".dockerignore:2: the pattern '[b' has a '['"));
  EXPECT_FALSE(IgnoreRules::parse("!\n", "x").has_value());
  EXPECT_FALSE(IgnoreRules::parse("a\\", "x").has_value());
  EXPECT_FALSE(IgnoreRules::parse(std::string(5000, 'a'), "x").has_value());
  std::string many;
  for (int i = 0; i < 4097; ++i) many += "a\n";
  EXPECT_THAT(IgnoreRules::parse(many, "x").error().message(), HasSubstr("x:4097: more than 4096"));
  EXPECT_FALSE(IgnoreRules::parse(std::string(kMaxIgnoreFile + 1, 'a'), "x").has_value());
}

TEST(Patterns, Sets) {
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[a-c]x", "dx"));
  EXPECT_TRUE(matches("[^a-c]x", "dx"));
  EXPECT_FALSE(matches("[^a]", "/"));
  EXPECT_TRUE(matches("[\\]a]", "]"));
  for (const char* bad : {"[", "[]", "[a", "[b-a]", "[a-]", "[^]"})
    EXPECT_FALSE(Pattern::compile(bad, Pattern::Scope::kPath).has_value()) << bad;
}

TEST(Patterns, NamesHaveNoFolders) {
  EXPECT_TRUE(matches("**.c", "x.c", Pattern::Scope::kName));
  EXPECT_FALSE(matches("**", "a/b", Pattern::Scope::kName));
  auto plain = Pattern::compile("a\\*b", Pattern::Scope::kName);
  ASSERT_TRUE(plain.has_value());
  EXPECT_TRUE(plain->is_plain());
  EXPECT_TRUE(plain->matches("a*b"));
}

TEST(Patterns, DoNotExplode) {
  std::string stars, text(2000, 'a');
  for (int i = 0; i < 1000; ++i) stars += "*a";
  EXPECT_FALSE(matches(stars + "b", text));
}

TEST(CleanPath, WorksOutDots) {
  EXPECT_EQ(clean_path("/a//./b/../c/"), "a/c");
  EXPECT_EQ(clean_path("../.."), "");
  EXPECT_EQ(clean_path("."), "");
}

}  // namespace
}  // namespace caisson::build
