#include "api/body.h"

#include <gtest/gtest.h>

#include "api/exchange_for_test.h"

namespace caisson::api {
namespace {

json::Value object_of(std::string_view text) {
  Result<json::Value> value = parse_object(text, Body::kRequired);
  EXPECT_TRUE(value.has_value()) << text;
  return value.value_or(json::Value::object());
}

template <typename T>
std::string message_of(const Result<T>& result) {
  EXPECT_FALSE(result.has_value());
  return result.has_value() ? "" : result.error().message();
}

TEST(BodyTest, ABodyIsReadWhole) {
  FakeExchange exchange("POST", "/x", {}, R"({"a":1})");
  exchange.piece = 3;
  exchange.chunked = true;
  const Result<json::Value> body = run(read_object(exchange, Body::kRequired));
  ASSERT_TRUE(body.has_value());
  EXPECT_EQ(*body->find("a"), json::Value(1));
}

TEST(BodyTest, NothingIsHeldOfABodyThatWasRead) {
  for (const char* text : {R"({"a":1})", "[]"}) {
    FakeExchange exchange("POST", "/x", {}, text);
    static_cast<void>(run(read_object(exchange, Body::kRequired)));
    EXPECT_EQ(exchange.held, 0U) << text;
  }
}

TEST(BodyTest, ALongBodyIsRefusedByItsLength) {
  FakeExchange exchange("POST", "/x", {}, std::string(kMostBody + 1, ' '));
  const Result<json::Value> body = run(read_object(exchange, Body::kRequired));
  ASSERT_FALSE(body.has_value());
  EXPECT_EQ(body.error().code(), Code::kOutOfRange);
}

TEST(BodyTest, ALongChunkedBodyIsRefusedWhenItIsTooLong) {
  FakeExchange exchange("POST", "/x", {}, std::string(kMostBody + 1, ' '));
  exchange.chunked = true;
  const Result<json::Value> body = run(read_object(exchange, Body::kRequired));
  ASSERT_FALSE(body.has_value());
  EXPECT_EQ(body.error().code(), Code::kOutOfRange);
}

TEST(BodyTest, ABodyThatBreaksOffIsAnError) {
  FakeExchange exchange("POST", "/x", {}, "{");
  exchange.read_error = Error::unavailable("the connection broke");
  const Result<json::Value> body = run(read_object(exchange, Body::kRequired));
  ASSERT_FALSE(body.has_value());
  EXPECT_EQ(body.error().code(), Code::kUnavailable);
}

TEST(BodyTest, AnAbsentBodyIsAnEmptyObjectWhereItMayBe) {
  EXPECT_EQ(*parse_object("", Body::kOptional), json::Value::object());
  EXPECT_EQ(*parse_object("null", Body::kOptional), json::Value::object());
  EXPECT_EQ(message_of(parse_object("", Body::kRequired)),
            "the body is empty; allowed is a JSON object");
}

TEST(BodyTest, WhatIsNoObjectIsRefused) {
  EXPECT_EQ(message_of(parse_object("[]", Body::kRequired)),
            "the body: found an array; allowed is a JSON object");
  EXPECT_EQ(message_of(parse_object("null", Body::kRequired)),
            "the body: found null; allowed is a JSON object");
  EXPECT_NE(message_of(parse_object("{", Body::kRequired)).find("the body: "), std::string::npos);
}

TEST(BodyTest, NullIsAbsent) {
  const json::Value value = object_of(R"({"a":null})");
  const Object body(value);
  EXPECT_EQ(*body.text("a", 10), std::nullopt);
  EXPECT_EQ(*body.truth("a"), std::nullopt);
  EXPECT_EQ(*body.integer("a", 0, 1), std::nullopt);
  EXPECT_EQ(*body.texts("a", 1, 1), std::nullopt);
  EXPECT_EQ(*body.map("a", {1, 1, 1}), std::nullopt);
  EXPECT_FALSE(body.object("a")->has_value());
  EXPECT_FALSE(body.objects("a", 1)->has_value());
}

TEST(BodyTest, TextsAreBounded) {
  const json::Value value = object_of(R"({"a":"four","b":4})");
  EXPECT_EQ(*Object(value).text("a", 4), "four");
  EXPECT_EQ(message_of(Object(value).text("a", 3)), "a: found 4 bytes; allowed is at most 3");
  EXPECT_EQ(message_of(Object(value).text("b", 3)), "b: found 4; allowed is a string");
}

TEST(BodyTest, AWholeNumberMayBeWrittenAsAFloatingOne) {
  const json::Value value = object_of(R"({"a":300.0,"b":1.5,"c":1e300,"d":-1,"e":"5"})");
  const Object body(value);
  EXPECT_EQ(*body.integer("a", 0, 1000), 300);
  EXPECT_EQ(message_of(body.integer("b", 0, 10)),
            "b: found 1.5; allowed is a whole number from 0 to 10");
  EXPECT_FALSE(body.integer("c", 0, 10).has_value());
  EXPECT_EQ(message_of(body.integer("d", 0, 10)),
            "d: found -1; allowed is a whole number from 0 to 10");
  EXPECT_FALSE(body.integer("e", 0, 10).has_value());
}

TEST(BodyTest, ATruthIsNoNumber) {
  const json::Value value = object_of(R"({"a":true,"b":1})");
  EXPECT_EQ(*Object(value).truth("a"), true);
  EXPECT_EQ(message_of(Object(value).truth("b")), "b: found 1; allowed is true or false");
}

TEST(BodyTest, ArraysOfTextsNameTheItem) {
  const json::Value value = object_of(R"({"a":["x","y"],"b":["x",1],"c":"x"})");
  const Object body(value);
  EXPECT_EQ(**body.texts("a", 2, 1), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(message_of(body.texts("a", 1, 1)), "a: found 2 items; allowed is at most 1");
  EXPECT_EQ(message_of(body.texts("b", 2, 1)), "b[1]: found 1; allowed is a string");
  EXPECT_EQ(message_of(body.texts("c", 2, 1)), "c: found \"x\"; allowed is an array of strings");
}

TEST(BodyTest, MapsAreBoundedInEveryDirection) {
  const json::Value value = object_of(R"({"a":{"k":"v","key":"value"},"b":{"odd key":1},"c":[]})");
  const Object body(value);
  EXPECT_EQ((*body.map("a", {2, 3, 5}))->at("key"), "value");
  EXPECT_EQ(message_of(body.map("a", {1, 3, 5})), "a: found 2 entries; allowed is at most 1");
  EXPECT_EQ(message_of(body.map("a", {2, 2, 5})),
            "a: found a key of 3 bytes; allowed is at most 2");
  EXPECT_EQ(message_of(body.map("a", {2, 3, 4})), "a.key: found 5 bytes; allowed is at most 4");
  EXPECT_EQ(message_of(body.map("b", {2, 9, 5})), "b[\"odd key\"]: found 1; allowed is a string");
  EXPECT_EQ(message_of(body.map("c", {1, 1, 1})),
            "c: found an array; allowed is an object of strings");
}

TEST(BodyTest, NestedObjectsKeepTheirPath) {
  const json::Value value = object_of(R"({"a":{"b":1},"c":3,"d":[{"e":1},2],"f":{}})");
  const Object body(value);
  EXPECT_EQ(message_of((*body.object("a"))->text("b", 1)), "a.b: found 1; allowed is a string");
  EXPECT_EQ(message_of(body.object("c")), "c: found 3; allowed is an object");
  EXPECT_EQ(message_of(body.objects("d", 2)), "d[1]: found 2; allowed is an object");
  EXPECT_EQ(message_of(body.objects("d", 1)), "d: found 2 items; allowed is at most 1");
  EXPECT_EQ(message_of(body.objects("f", 1)), "f: found an object; allowed is an array of objects");
}

TEST(BodyTest, UnknownKeysAreNamed) {
  const json::Value value = object_of(R"({"image":"base","imagee":1})");
  EXPECT_EQ(message_of(Object(value).only({"image", "env"})),
            "imagee: found an unknown key; allowed is image or env");
  EXPECT_TRUE(Object(value).only({"image", "imagee"}).has_value());
}

}  // namespace
}  // namespace caisson::api
