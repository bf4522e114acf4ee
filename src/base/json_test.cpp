#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

namespace caisson::json {
namespace {

using ::testing::HasSubstr;

TEST(Json, WritesWhatItRead) {
  for (const std::string text :
       {R"(null)", R"(true)", R"(-7)", R"(18446744073709551615)", R"(0.5)", R"(1e+300)", R"("")",
        R"([])", R"({})", R"([1,[2,{"a":null}],"x"])", R"({"b":1,"a":{"c":[false]}})",
        R"("q\" b\\ n\n t\t u\u0001 é 😀")"}) {
    const auto value = parse(text);
    ASSERT_TRUE(value) << text << ": " << value.error().message();
    EXPECT_EQ(serialize(*value), text);
    const auto again = parse(serialize(*value, Layout::kPretty));
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(*again, *value);
  }
}

TEST(Json, KeepsTheKindOfANumber) {
  EXPECT_EQ(serialize(Value(2.0)), "2.0");
  EXPECT_EQ(parse("2.0")->kind(), Value::Kind::kDouble);
  EXPECT_EQ(serialize(Value(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(Value(std::uint64_t{5}), Value(5));
  EXPECT_EQ(parse("9223372036854775808")->kind(), Value::Kind::kUnsigned);
}

TEST(Json, ReadsTheNearestDouble) {
  for (const std::string text : {"0.1", "1.7976931348623157e+308", "5e-324", "9007199254740993.0",
                                 "0.30000000000000004", "-2.2250738585072011e-308"}) {
    EXPECT_EQ(*parse(text)->as_double(), std::strtod(text.c_str(), nullptr)) << text;
    EXPECT_EQ(*parse(serialize(*parse(text))), *parse(text)) << text;
  }
}

TEST(Json, LaysOutForPeople) {
  Value value = Value::object();
  value.set("a", 1).set("b", Value::array().push("x").push(Value::object()));
  EXPECT_EQ(serialize(value, Layout::kPretty),
            "{\n  \"a\": 1,\n  \"b\": [\n    \"x\",\n    {}\n  ]\n}");
}

TEST(Json, SetReplacesAndFindFinds) {
  Value value = Value::object();
  value.set("a", 1).set("a", "two");
  ASSERT_EQ(value.as_object()->size(), 1u);
  EXPECT_EQ(*value.find("a")->as_string(), "two");
  EXPECT_EQ(value.find("b"), nullptr);
  EXPECT_EQ(Value(3).find("a"), nullptr);
}

TEST(Json, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(serialize(Value(std::string("a\xff\xc3"))), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(Json, RefusesWithPlaceAndReason) {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "line 1, column 1: found an incomplete JSON text"},
      {"{\"a\":\n  tru}", "line 2, column"},
      {"{\"a\":1,}", "found broken JSON"},
      {"[1] 2", "something behind the end"},
      {"{\"a\":{\"b\":[0,{\"c\":1,\"c\":2}]}}", "a.b[1].c: found the key twice; allowed is once"},
      {"\"\\ud800\"", "found broken JSON"},
      {"\"\xff\"", "found broken JSON"},
      {"\"a\nb\"", "found broken JSON"},
      {"[NaN]", "found broken JSON"},
      {"{\"a\":[1,18446744073709551E615]}", "a[1]: found a number out of range; allowed are"},
      {"// c\n1", "found broken JSON"},
      {std::string(33, '[') + std::string(33, ']'), "nested deeper than 32 levels"},
      {"[" + std::string(1 << 20, ' ') + "]", "allowed are at most 1048576"},
  };
  for (const Case& c : cases) {
    const auto value = parse(c.text);
    ASSERT_FALSE(value) << c.text;
    EXPECT_THAT(value.error().message(), HasSubstr(c.message)) << c.text;
    EXPECT_THAT(value.error().message(), HasSubstr("found "));
    EXPECT_THAT(value.error().message(), HasSubstr("allowed "));
  }
}

TEST(Json, BoundsTheNumberOfValues) {
  EXPECT_TRUE(parse("[1,2]", {.bytes = 100, .depth = 2, .values = 3}));
  const auto value = parse("[1,2,3]", {.bytes = 100, .depth = 2, .values = 3});
  ASSERT_FALSE(value);
  EXPECT_THAT(value.error().message(), HasSubstr("more than 3 values"));
}

}  // namespace
}  // namespace caisson::json
