#include "egress/secrets/json_span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/secret_check.h"

namespace caisson::egress {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Found = std::vector<std::pair<std::size_t, std::string>>;

std::vector<std::vector<std::string>> words_of(const std::vector<std::string>& pointers) {
  std::vector<std::vector<std::string>> words;
  for (const std::string& pointer : pointers)
    words.push_back(policy::parse_json_pointer(pointer).value());
  return words;
}

Found found(std::string_view text, const std::vector<std::string>& pointers) {
  const auto spans = find_json_strings(text, words_of(pointers));
  if (!spans) {
    ADD_FAILURE() << spans.error().message();
    return {};
  }
  Found all;
  for (const JsonSpan& span : *spans)
    all.emplace_back(span.pointer, text.substr(span.begin, span.end - span.begin));
  return all;
}

TEST(JsonSpan, FindsTheStringsAtPointers) {
  const std::string_view text =
      R"( { "a" : "one", "b": {"c": ["two", {"d/~e": "th\"ree\\"}]}, "f": 4, "": "five" } )";
  EXPECT_EQ(found(text, {"/a"}), (Found{{0, "one"}}));
  EXPECT_EQ(found(text, {"/b/c/1/d~1~0e", "/b/c/0"}), (Found{{1, "two"}, {0, R"(th\"ree\\)"}}));
  EXPECT_EQ(found(text, {"/"}), (Found{{0, "five"}}));
}

TEST(JsonSpan, WhatIsNoStringOrIsNotThereHasNone) {
  const std::string_view text = R"({"a": {"b": 1}, "c": null, "d": ["x"], "e": true, "f": [[]]})";
  EXPECT_EQ(found(text, {"/a", "/a/b", "/c", "/d", "/e", "/z", "/d/1", "/d/00", "/d/-", "/a/b/c"}),
            Found{});
}

TEST(JsonSpan, KeysAreComparedAsTheyMean) {
  EXPECT_EQ(found(R"({"\u0061\/b": "x"})", {"/a~1b"}), (Found{{0, "x"}}));
}

TEST(JsonSpan, TwoPointersMayBeTheSame) {
  EXPECT_EQ(found(R"(["x"])", {"/0", "/0"}), (Found{{0, "x"}, {1, "x"}}));
}

struct Case {
  std::string text, complaint;
};

TEST(JsonSpan, RefusesWhatOthersMightReadOtherwise) {
  const std::vector<Case> cases = {
      {"", "byte 1 of the JSON body is wrong: no value begins"},
      {"{} {}", "byte 4 of the JSON body is wrong: something stands behind it"},
      {R"({"a": 1, "a": 2})", "a key stands in an object twice"},
      {R"({"a": 1, "\u0061": 2})", "twice"},
      {"{\"a\": \"\xff\"}", "byte 8 of the JSON body is wrong: it is not UTF-8"},
      {"\xef\xbb\xbf{}", "byte 1"},
      {"['a']", "no value begins"},
      {"{a: 1}", "a string should begin"},
      {R"({"a" 1})", "a colon"},
      {R"({"a": 1,})", "a string should begin"},
      {R"({"a": 1)", "a comma or the object's end"},
      {"[1,]", "no value begins"},
      {"[1", "a comma or the array's end"},
      {"[1 2]", "a comma or the array's end"},
      {"\"a", "a string does not end"},
      {"\"a\nb\"", "a control character"},
      {R"("\x")", "an escape that is none"},
      {"\"\\", "an escape that is none"},
      {R"("\u00g0")", "an escape that is none"},
      {R"("\u00)", "an escape that is none"},
      {R"("\ud800")", "half a surrogate pair"},
      {R"("\udc00")", "half a surrogate pair"},
      {R"("\ud800\u0041")", "half a surrogate pair"},
      {R"("\ud800\n")", "half a surrogate pair"},
      {R"("\ud800\u00")", "an escape that is none"},
      {"tru", "no value begins"},
      {"nul", "no value begins"},
      {"falze", "no value begins"},
      {"01", "begins with a zero"},
      {"-", "lacks a digit"},
      {"1.", "lacks a digit"},
      {"1e", "lacks a digit"},
      {"1e+", "lacks a digit"},
      {"+1", "no value begins"},
      {"NaN", "no value begins"},
      {std::string("[\0]", 3), "no value begins"},
      {std::string("\0", 1), "no value begins"},
      {std::string(65, '['), "more than 64 levels"},
      {"/**/1", "no value begins"},
  };
  for (const Case& c : cases) {
    const auto spans = find_json_strings(c.text, {});
    ASSERT_FALSE(spans.has_value()) << c.text;
    EXPECT_THAT(spans.error().message(), HasSubstr(c.complaint)) << c.text;
  }
}

TEST(JsonSpan, TakesEveryValueThatIsOne) {
  for (const std::string_view text :
       {"0", "-0", "-1.5e+10", "1E5", "true", "false", "null", "\"\"", "[]", "{}", "[[],{}]",
        " \t\r\n1 \t\r\n", R"("\"\\\/\b\f\n\r\t\ud83d\ude00")", "[1 , 2]", R"({"a" : 1 , "b":2})"})
    EXPECT_TRUE(find_json_strings(text, {}).has_value()) << text;
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(find_json_strings(deep, {}).has_value());
}

}  // namespace
}  // namespace caisson::egress
