#include "policy/url_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The canonical target, or what is wrong.
std::string canonical(std::string_view text) {
  const auto target = canonical_target(text);
  if (!target) return target.error().message();
  EXPECT_EQ(canonical_target(target->text()).value(), *target) << text;  // once is enough
  return target->text();
}

std::string refusal(std::string_view text) {
  const std::string said = canonical(text);
  EXPECT_THAT(said, StartsWith("the target \"")) << text;
  EXPECT_THAT(said, HasSubstr("; allowed is /PATH or /PATH?QUERY")) << text;
  return said;
}

TEST(CanonicalTarget, HasOneSpelling) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"/", "/"},
      {"/a/b", "/a/b"},
      {"/a/b/", "/a/b/"},
      {"/PUBLIC", "/PUBLIC"},
      {"/api/%70rojects", "/api/projects"},
      {"/%7euser/%41%2d%5f%2E.", "/~user/A-_.."},  // more than two dots are a name
      {"/a%3ab%3Bc", "/a%3Ab%3Bc"},
      {"/a:b@c;d=e,f", "/a:b@c;d=e,f"},
      {"/a%20b%c3%bc", "/a%20b%C3%BC"},
      {"/b\xc3\xbc", "/b%C3%BC"},
      {"/\"<>^`{|}", "/%22%3C%3E%5E%60%7B%7C%7D"},
      {"/100%25", "/100%25"},
      {"/100%2525", "/100%2525"},
      {"/%2541", "/%2541"},
      {"/*", "/*"},
      {"/a%2Ab", "/a%2Ab"},
      {"/...", "/..."},
      {"/.a/..b", "/.a/..b"},
      {"/a;..", "/a;.."},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
}

TEST(CanonicalTarget, ResolvesDotsAndSlashesInARow) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"/public/../secret", "/secret"},
      {"/public/%2e%2e/secret", "/secret"},
      {"/public/.%2E/secret", "/secret"},
      {"/public/%2E./secret", "/secret"},
      {"/a/./b", "/a/b"},
      {"/a/%2e/b", "/a/b"},
      {"/./a", "/a"},
      {"/a/.", "/a/"},
      {"/a/..", "/"},
      {"/a/b/..", "/a/"},
      {"/a/b/../", "/a/"},
      {"/a/b/../..", "/"},
      {"/a/b/../../c", "/c"},
      {"//", "/"},
      {"//a", "/a"},
      {"/a//b", "/a/b"},
      {"/a///b//", "/a/b/"},
      {"//evil.test/x", "/evil.test/x"},
      {"/a//.", "/a/"},
      {"/a;x/../b", "/b"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
}

TEST(CanonicalTarget, RefusesDotsThatServersResolveInTwoWays) {
  for (const std::string_view text :
       {"/..", "/../a", "/a/../..", "/a/../../b", "/%2e%2e/a", "/./.."})
    EXPECT_THAT(refusal(text), HasSubstr("leads above the root")) << text;
  for (const std::string_view text : {"/a//..", "/a//../b", "//..", "/a/b//../..", "/a//./../b"})
    EXPECT_THAT(refusal(text), HasSubstr("\"..\" follows an empty segment")) << text;
  for (const std::string_view text :
       {"/public/..;x/secret", "/public/..;/secret", "/public/.;x/secret", "/..;", "/a/%2e%2e;x/b",
        "/a/..%3bx/b", "/a/..%3Bx/b", "/a/..%253bx/b", "/a/.%2525253b/b", "/;/admin", "/a/;x",
        "/a/%3Bx/b"})
    EXPECT_THAT(refusal(text), HasSubstr("empty or dots but for its parameters")) << text;
}

TEST(CanonicalTarget, RefusesHiddenSeparators) {
  for (const std::string_view text :
       {"/a%2fb", "/a%2Fb", "/%5c..%5c", "/a%5Cb", "/a%00b", "/%00", "/public/..%2fsecret"})
    EXPECT_THAT(refusal(text), HasSubstr("it holds \"%")) << text;
  for (const std::string_view text : {"/a\\b", "/..\\secret", "\\a", "/\\evil.test"}) {
    const std::string said = refusal(text);
    EXPECT_TRUE(said.find("a backslash") != said.npos ||
                said.find("begin with a slash") != said.npos)
        << said;
  }
  for (const std::string_view text :
       {"/%252e", "/public/%252e%252e/secret", "/a%252fb", "/a%252Fb", "/a%255cb", "/a%2500b",
        "/a%25252fb", "/a%25%32%66b", "/a%25%32fb", "/%25%2532e", "/a%252%66b",
        "/a%25%2525"
        "32fb"})
    EXPECT_THAT(refusal(text), HasSubstr("an escape in an escape hides")) << text;
  EXPECT_THAT(refusal("/%2525252525252541"), HasSubstr("nested too deep"));
  for (const std::string_view text :
       {"/%c0%ae%c0%ae/a", "/a%c0%afb", "/a%c1%9cb", "/a%e0%80%afb", "/a%f0%80%80%afb",
        "/a\xc0\xaf"
        "b",
        "/a%25c0%25afb"})
    EXPECT_THAT(refusal(text), HasSubstr("longer than it need be")) << text;
}

TEST(CanonicalTarget, RefusesEscapesThatAreNone) {
  for (const std::string_view text :
       {"/%", "/a%", "/a%2", "/a%2/b", "/a%zz", "/%u002e", "/a% 41", "/%%32e", "/a%-1", "/a%2g"})
    EXPECT_FALSE(canonical_target(text).has_value()) << text;
  EXPECT_THAT(refusal("/a%4"), HasSubstr("not followed by two hexadecimal digits"));
  EXPECT_THAT(refusal("/a%2/b"), HasSubstr("not followed by two hexadecimal digits"));
}

TEST(CanonicalTarget, RefusesControlsWhereverTheyAre) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {"/a\0b"sv, "/a b"sv, "/a\tb"sv, "/a\rb"sv, "/a\nb"sv, "/a\x7f"sv, "/\x01"sv, "/a?b c"sv,
        "/a?b\r\nX: y"sv, "/a?\0"sv, " /a"sv, "/a "sv})
    EXPECT_THAT(refusal(text), HasSubstr("it holds \"")) << text;
}

TEST(CanonicalTarget, IsAbsoluteAndHasNoFragment) {
  EXPECT_THAT(refusal(""), HasSubstr("it is empty"));
  for (const std::string_view text : {"a", "?a", "http://example.com/", "%2fa", "**", "*/", "*?a"})
    EXPECT_THAT(refusal(text), HasSubstr("does not begin with a slash")) << text;
  for (const std::string_view text : {"/a#b", "/#", "/a?b#c"})
    EXPECT_THAT(refusal(text), HasSubstr("fragment")) << text;
  EXPECT_EQ(canonical_target("*").value(), (Target{"*", ""}));
}

TEST(CanonicalTarget, KeepsTheQueryAsItCame) {
  EXPECT_EQ(canonical_target("/a?x=/../").value(), (Target{"/a", "?x=/../"}));
  EXPECT_EQ(canonical_target("/a/../b?%2f%00%zz\\//;?").value(),
            (Target{"/b", "?%2f%00%zz\\//;?"}));
  EXPECT_EQ(canonical_target("/a?").value(), (Target{"/a", "?"}));
  EXPECT_EQ(canonical_target("/?\xc3\xbc").value(), (Target{"/", "?\xc3\xbc"}));
}

TEST(CanonicalTarget, IsBounded) {
  const std::string longest = "/" + std::string(kMaxTarget - 1, 'a');
  EXPECT_EQ(canonical_target(longest).value().path, longest);
  EXPECT_THAT(refusal(longest + "a"), HasSubstr("too long"));
  // In UTF-8 it grows, and what has grown too long to be read again is refused at once.
  EXPECT_THAT(refusal("/" + std::string(kMaxTarget / 2, '|')), HasSubstr("too long"));
}

TEST(CanonicalTarget, OnceIsEnoughForWhateverIsTaken) {
  std::random_device seed;
  const unsigned chosen = seed();
  std::mt19937 random(chosen);
  const std::string_view pieces[] = {"/",        "/",  ".",  "..", "a",   ";",   "%",
                                     "25",       "2e", "2F", "3b", "%41", "%c3", "%bc",
                                     "\xc3\xbc", "*",  "{",  "?",  "=",   "~",   "%2"};
  int taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = "/";
    for (auto left = random() % 9; left > 0; --left) text += pieces[random() % std::size(pieces)];
    const auto target = canonical_target(text);
    if (!target) continue;
    ++taken;
    EXPECT_EQ(canonical_target(target->text()).value(), *target) << text << " seed " << chosen;
    for (const std::string_view never : {"//", "/./", "/../", "\\", "#", "?"})
      EXPECT_EQ(target->path.find(never), std::string::npos) << text << " seed " << chosen;
  }
  EXPECT_GT(taken, 200) << "seed " << chosen;
}

bool matches(std::string_view pattern, std::string_view path) {
  const auto parsed = PathPattern::parse(pattern);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  const auto target = canonical_target(path);
  EXPECT_TRUE(target.has_value()) << target.error().message();
  return parsed && target && parsed->matches(target->path);
}

struct Case {
  std::string_view pattern;
  std::string_view path;
};

TEST(PathPattern, Matches) {
  for (const auto& [pattern, path] :
       std::initializer_list<Case>{{"/", "/"},
                                   {"/a", "/a"},
                                   {"/a/", "/a/"},
                                   {"/a", "/b/../a"},
                                   {"/%61/%7Eb", "/a/~b"},
                                   {"/b\xc3\xbc", "/b%c3%bc"},
                                   {"/a%20b", "/a%20b"},
                                   {"/%7Ba%7d", "/{a}"},
                                   {"/a,b", "/a,b"},
                                   {"/users/*/keys", "/users/me/keys"},
                                   {"/*", "/a"},
                                   {"/a*", "/a"},
                                   {"/a*", "/abc"},
                                   {"/*c", "/abc"},
                                   {"/a*c", "/ac"},
                                   {"/a*b*c", "/aXbbXc"},
                                   {"/*-*.tar.gz", "/a-b-1.tar.tar.gz"},
                                   {"/a*", "/a%3B"},
                                   {"/*%3B*", "/a%3Bb"},
                                   {"/a/*/", "/a/b/"},
                                   {"/**", "/"},
                                   {"/**", "/a"},
                                   {"/**", "/a/b/"},
                                   {"/a/**", "/a"},
                                   {"/a/**", "/a/"},
                                   {"/a/**", "/a/b/c"},
                                   {"/a/**/z", "/a/z"},
                                   {"/a/**/z", "/a/b/z"},
                                   {"/a/**/z", "/a/z/z/z"},
                                   {"/**/z", "/z"},
                                   {"/**/z/**", "/a/z/b"},
                                   {"/a/**/b/**/c", "/a/x/b/x/b/y/c"},
                                   {"/**/**", "/a"},
                                   {"/**/", "/a/"},
                                   {"/a/{b,c}", "/a/b"},
                                   {"/a/{b,c}", "/a/c"},
                                   {"/a/x{,y}", "/a/x"},
                                   {"/a/x{,y}", "/a/xy"},
                                   {"/{a,b}{c,d}", "/bc"},
                                   {"/{a*,b}.txt", "/aXY.txt"},
                                   {"/repos/acme/app/{pulls,issues}", "/repos/acme/app/issues"}})
    EXPECT_TRUE(matches(pattern, path)) << pattern << " " << path;
}

TEST(PathPattern, DoesNotMatchAnythingElse) {
  for (const auto& [pattern, path] :
       std::initializer_list<Case>{{"/", "/a"},
                                   {"/a", "/"},
                                   {"/a", "/a/"},
                                   {"/a/", "/a"},
                                   {"/a", "/A"},
                                   {"/a", "/ab"},
                                   {"/a", "/a/b"},
                                   {"/public", "/PUBLIC"},
                                   {"/public/**", "/public/../secret"},
                                   {"/public/**", "/publicity"},
                                   {"/users/*/keys", "/users/keys"},
                                   {"/users/*/keys", "/users/a/b/keys"},
                                   {"/*", "/"},
                                   {"/*", "/a/"},
                                   {"/*", "/a/b"},
                                   {"/a/*", "/a/"},
                                   {"/a/*", "/a"},
                                   {"/a*", "/a/b"},
                                   {"/*c", "/abcd"},
                                   {"/a*b*c", "/aXcXb"},
                                   {"/*B", "/a%3B"},  // an escape is one character
                                   {"/*3B", "/a%3B"},
                                   {"/a%3B", "/a;"},
                                   {"/a/**", "/b/a"},
                                   {"/a/**/z", "/a/b"},
                                   {"/a/**/z", "/a/z/b"},
                                   {"/**/z", "/z/"},
                                   {"/a/{b,c}", "/a/d"},
                                   {"/a/{b,c}", "/a/b,c"},
                                   {"/a/{b,c}", "/a/{b,c}"},
                                   {"/**", "*"},
                                   {"/*", "*"}})
    EXPECT_FALSE(matches(pattern, path)) << pattern << " " << path;
}

std::string complaint(std::string_view pattern) {
  const auto parsed = PathPattern::parse(pattern);
  if (parsed.has_value()) return "taken";
  EXPECT_THAT(parsed.error().message(), HasSubstr("is no pattern for paths: "));
  EXPECT_THAT(parsed.error().message(), HasSubstr("; allowed is an absolute path"));
  return parsed.error().message();
}

TEST(PathPattern, RefusesWhatNoPathCouldMatch) {
  for (const std::string_view pattern : {"", "a", "*", "**", "{/a,/b}", "http://example.com/"})
    EXPECT_THAT(complaint(pattern), HasSubstr("does not begin with a slash")) << pattern;
  for (const std::string_view pattern : {"/a?b", "/a#b", "/a\nb", "/a\x7f", "/a b"})
    EXPECT_THAT(complaint(pattern), HasSubstr("it holds \"")) << pattern;
  for (const std::string_view pattern : {"//", "/a//b", "//a"})
    EXPECT_THAT(complaint(pattern), HasSubstr("a segment within it is empty")) << pattern;
  for (const std::string_view pattern : {"/.", "/a/..", "/a/../b", "/%2e%2e/b", "/a/{.,b}"})
    EXPECT_THAT(complaint(pattern), HasSubstr("a dot segment")) << pattern;
  for (const std::string_view pattern : {"/..;x", "/a/..%3bx", "/;a"})
    EXPECT_THAT(complaint(pattern), HasSubstr("parameters")) << pattern;
  for (const std::string_view pattern : {"/a**", "/**a", "/***", "/a/b**c/d", "/{**,a}", "/{*,a}*"})
    EXPECT_THAT(complaint(pattern), HasSubstr("'**' is not a whole segment")) << pattern;
  for (const std::string_view pattern : {"/a%2fb", "/%00", "/a%5c"})
    EXPECT_THAT(complaint(pattern), HasSubstr("it holds \"%")) << pattern;
  EXPECT_THAT(complaint("/a\\b"), HasSubstr("a backslash"));
  EXPECT_THAT(complaint("/a%252fb"), HasSubstr("an escape in an escape"));
  for (const std::string_view pattern : {"/a%", "/a%2*", "/a%2{0,1}x%"})
    EXPECT_THAT(complaint(pattern), HasSubstr("two hexadecimal digits")) << pattern;
}

TEST(PathPattern, HasItsBracesInPairsWithinOneSegment) {
  for (const std::string_view pattern : {"/{a", "/a}", "/{a,{b,c}}", "/{a/b}", "/}{", "/{{a}}"})
    EXPECT_THAT(complaint(pattern), HasSubstr("braces do not come in pairs")) << pattern;
  for (const std::string_view pattern : {"/{}", "/{a,}", "/{,a}/b", "/a/{}/b"})
    EXPECT_THAT(complaint(pattern), HasSubstr("an alternative of it is an empty segment"))
        << pattern;
  EXPECT_TRUE(matches("/{a}", "/a"));
}

TEST(PathPattern, IsBounded) {
  const std::string longest = "/" + std::string(kMaxPathPattern - 1, 'a');
  EXPECT_EQ(complaint(longest), "taken");
  EXPECT_THAT(complaint(longest + "a"), HasSubstr("too long"));
  std::string doubling = "/";
  for (int i = 0; i < 60; ++i) doubling += "{a,b}";
  EXPECT_THAT(complaint(doubling), HasSubstr("too many alternatives"));
  EXPECT_THAT(complaint("/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"),
              HasSubstr("too many alternatives"));
  EXPECT_EQ(complaint("/{a,b}{a,b}{a,b}{a,b}/{a,b}{a,b}{a,b}{a,b}"), "taken");
}

// What is said about the time holds: each byte of a path is looked at once for each of a pattern.
// Backtracking to more than the last star would take longer than anybody could wait.
TEST(PathPattern, MatchesTheWorstInBoundedTime) {
  const std::string letters(kMaxTarget - 1, 'a');
  std::string stars = "/", any, path;
  for (int i = 0; i < 300; ++i) stars += "*a";
  for (int i = 0; i < 200; ++i) any += "/**/a";
  while (path.size() + 2 <= kMaxTarget) path += "/a";
  for (const auto& [pattern, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {stars + "*b", "/" + letters},
           {"/*" + std::string(1000, 'a') + "b", "/" + letters},
           {any + "/b", path},
           {"/**" + path.substr(0, 1000) + "/b", path}}) {
    const auto parsed = PathPattern::parse(pattern);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
    EXPECT_FALSE(parsed->matches(text)) << pattern;
    EXPECT_TRUE(parsed->matches(text + (text == path ? "/b" : "b"))) << pattern;
  }
}

// Another matcher, as plain as can be, says the same of small patterns and paths.
bool plainly(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern.starts_with("/**") && (pattern.size() == 3 || pattern[3] == '/')) {
    if (!path.empty() && path[0] != '/') return false;
    for (std::size_t at = 0;; at = path.find('/', at + 1)) {
      if (at == path.npos) return plainly(pattern.substr(3), "");
      if (plainly(pattern.substr(3), path.substr(at))) return true;
      if (path.empty()) return false;
    }
  }
  if (pattern[0] != '*') {
    if (path.empty() || path[0] != pattern[0]) return false;
    // A segment that is a star alone is not empty.
    if (pattern.starts_with("/*") && (pattern.size() == 2 || pattern[2] == '/') &&
        (path.size() == 1 || path[1] == '/'))
      return false;
    return plainly(pattern.substr(1), path.substr(1));
  }
  for (std::size_t taken = 0; taken <= path.size(); ++taken) {
    if (plainly(pattern.substr(1), path.substr(taken))) return true;
    if (taken < path.size() && path[taken] == '/') return false;
  }
  return false;
}

TEST(PathPattern, AgreesWithAPlainMatcher) {
  std::random_device seed;
  const unsigned chosen = seed();
  std::mt19937 random(chosen);
  const auto text = [&](std::initializer_list<std::string_view> segments, bool open) {
    std::string made;
    for (auto left = random() % 5 + 1; left > 0; --left)
      made += "/" + std::string(segments.begin()[random() % segments.size()]);
    return open ? made + "/" : made;
  };
  int found = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string pattern =
        text({"a", "b", "*", "**", "a*", "*a", "ab", "a*b", "**"}, random() % 8 == 0);
    const std::string path = text({"a", "b", "ab", "aab", "ba"}, random() % 8 == 0);
    const auto parsed = PathPattern::parse(pattern);
    ASSERT_TRUE(parsed.has_value()) << pattern;
    EXPECT_EQ(parsed->matches(path), plainly(pattern, path))
        << pattern << " " << path << " seed " << chosen;
    found += parsed->matches(path) ? 1 : 0;
  }
  EXPECT_GT(found, 200) << "seed " << chosen;
}

}  // namespace
}  // namespace caisson::policy
