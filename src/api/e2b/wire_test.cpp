#include "api/e2b/wire.h"

#include <gtest/gtest.h>

#include <limits>

#include "api/e2b/messages.h"

namespace caisson::api::e2b {
namespace {

using json::Value;

// What decoding gives, as JSON text, or "error: …".
std::string decoded(const WireMessage& message, std::string_view text) {
  Result<Value> value = decode_message(message, Encoding::kJson, text);
  return value ? json::serialize(*value) : "error: " + value.error().message();
}

std::string binary(const WireMessage& message, std::string_view bytes) {
  Result<Value> value = decode_message(message, Encoding::kBinary, bytes);
  return value ? json::serialize(*value) : "error: " + value.error().message();
}

// A message in JSON, encoded in binary and decoded again.
std::string over_binary(const WireMessage& message, std::string_view text) {
  const Value value = decode_message(message, Encoding::kJson, text).value();
  return binary(message, encode_message(message, Encoding::kBinary, value));
}

TEST(WireJson, NamesInBothStylesAreTakenAndUnknownOnesIgnored) {
  EXPECT_EQ(decoded(kWatchRequest, R"({"path":"x","include_entry":true,"other":{"a":[1]}})"),
            R"({"path":"x","includeEntry":true})");
  EXPECT_EQ(decoded(kWatchRequest, R"({"includeEntry":false,"allowNetworkMounts":true})"),
            R"({"includeEntry":false,"allowNetworkMounts":true})");
}

TEST(WireJson, NullIsAbsent) {
  EXPECT_EQ(decoded(kStartRequest, R"({"process":{"cmd":"a","cwd":null},"pty":null})"),
            R"({"process":{"cmd":"a"}})");
}

TEST(WireJson, NumbersComeAsNumbersOrStrings) {
  EXPECT_EQ(decoded(kListDirRequest, R"({"depth":"3"})"), R"({"depth":3})");
  EXPECT_EQ(decoded(kListDirRequest, R"({"depth":3.0})"), R"({"depth":3})");
  for (const char* bad : {R"({"depth":-1})", R"({"depth":4294967296})", R"({"depth":1.5})",
                          R"({"depth":"x"})", R"({"depth":true})", R"({"depth":1e300})"})
    EXPECT_EQ(decoded(kListDirRequest, bad),
              "error: depth: a whole number from 0 to 4294967295 is wanted");
}

TEST(WireJson, EnumeratorsComeByNameOrNumber) {
  EXPECT_EQ(decoded(kSendSignalRequest, R"({"signal":"SIGNAL_SIGKILL"})"), R"({"signal":9})");
  EXPECT_EQ(decoded(kSendSignalRequest, R"({"signal":15})"), R"({"signal":15})");
  EXPECT_EQ(decoded(kSendSignalRequest, R"({"signal":"SIGHUP"})"),
            "error: signal: the name of an enumerator is wanted");
}

TEST(WireJson, BytesAreBase64InEitherAlphabetWithOrWithoutPadding) {
  for (const char* text : {"+/8=", "-_8=", "+/8", "-_8"}) {
    const Value value = decode_message(kSendInputRequest, Encoding::kJson,
                                       R"({"input":{"stdin":")" + std::string(text) + R"("}})")
                            .value();
    EXPECT_EQ(text_of(*value.find("input"), "stdin"), "\xfb\xff") << text;
  }
  EXPECT_EQ(decoded(kSendInputRequest, R"({"input":{"stdin":"*"}})"),
            "error: input.stdin: base64 in a string is wanted");
}

TEST(WireJson, ErrorsNameTheField) {
  EXPECT_EQ(decoded(kStartRequest, R"({"process":{"args":["a",1]}})"),
            "error: process.args[1]: a string is wanted");
  EXPECT_EQ(decoded(kStartRequest, R"({"process":{"args":"a"}})"),
            "error: process.args: an array is wanted");
  EXPECT_EQ(decoded(kStartRequest, R"({"process":{"envs":{"A":1}}})"),
            "error: process.envs.A: a string is wanted");
  EXPECT_EQ(decoded(kStartRequest, R"({"process":{"envs":[]}})"),
            "error: process.envs: an object of strings is wanted");
  EXPECT_EQ(decoded(kStartRequest, R"({"process":7})"), "error: process: an object is wanted");
  EXPECT_EQ(decoded(kStartRequest, R"({"stdin":"yes"})"), "error: stdin: true or false is wanted");
  EXPECT_EQ(decoded(kStartRequest, "[]"), "error: the message: an object is wanted");
  EXPECT_EQ(decoded(kWatchRequest, R"({"includeEntry":true,"include_entry":true})"),
            "error: includeEntry: one value and not two is wanted");
  EXPECT_TRUE(decoded(kStartRequest, "{").starts_with("error: "));
}

TEST(WireJson, EncodesAsTheMappingSays) {
  const Value entry = Value::object()
                          .set("name", "x")
                          .set("type", 1)
                          .set("size", 12)
                          .set("mode", 0644)
                          .set("modifiedTime", 1'700'000'000'500'000'000)
                          .set("unknown", "left out");
  EXPECT_EQ(encode_message(kEntryInfo, Encoding::kJson, entry),
            R"({"name":"x","type":"FILE_TYPE_FILE","size":"12","mode":420,)"
            R"("modifiedTime":"2023-11-14T22:13:20.500Z"})");
  const Value event = Value::object().set(
      "event",
      Value::object().set("data", Value::object().set("stdout", std::string("\0\xff", 2))));
  EXPECT_EQ(encode_message(kProcessStream, Encoding::kJson, event),
            R"({"event":{"data":{"stdout":"AP8="}}})");
  EXPECT_EQ(encode_message(kSendSignalRequest, Encoding::kJson, Value::object().set("signal", 3)),
            R"({"signal":3})");
}

// The bytes were written by hand from the encoding's description.
TEST(WireBinary, IsProtobuf) {
  const std::string_view bytes(
      "\x0a\x14\x0a\x01"
      "c"
      "\x12\x01"
      "a"
      "\x12\x00\x1a\x06\x0a\x01"
      "K"
      "\x12\x01"
      "V"
      "\x22\x02/x"
      "\x1a\x01"
      "t"
      "\x20\x00",
      27);
  const char* const text =
      R"({"process":{"cmd":"c","cwd":"/x","args":["a",""],"envs":{"K":"V"}},"tag":"t","stdin":false})";
  EXPECT_EQ(binary(kStartRequest, bytes), text);
  EXPECT_EQ(encode_message(kStartRequest, Encoding::kBinary,
                           decode_message(kStartRequest, Encoding::kJson, text).value()),
            bytes);
}

TEST(WireBinary, SaysWhatJsonSays) {
  EXPECT_EQ(over_binary(kSendSignalRequest, R"({"process":{"pid":300},"signal":9})"),
            R"({"process":{"pid":300},"signal":9})");
  EXPECT_EQ(over_binary(kProcessStream, R"({"event":{"end":{"exitCode":-1,"exited":false}}})"),
            R"({"event":{"end":{"exitCode":-1,"exited":false}}})");
  EXPECT_EQ(over_binary(kEntryInfo, R"({"size":"-5","modifiedTime":"1969-12-31T23:59:59.9Z"})"),
            R"({"size":-5,"modifiedTime":-100000000})");
  EXPECT_EQ(over_binary(kProcessStream, R"({"event":{"keepalive":{}}})"),
            R"({"event":{"keepalive":{}}})");
}

TEST(WireBinary, UnknownFieldsOfEveryFormAreSkipped) {
  const std::string_view bytes(
      "\x98\x06\x01"                // 99: varint
      "\x99\x06\1\2\3\4\5\6\7\x08"  // 99: eight bytes
      "\x9a\x06\x02zz"              // 99: with a length
      "\x9d\x06\1\2\3\4"            // 99: four bytes
      "\x0a\x01x",
      3 + 10 + 5 + 6 + 3);
  EXPECT_EQ(binary(kPathRequest, bytes), R"({"path":"x"})");
}

TEST(WireBinary, MalformedBytesAreRefused) {
  using namespace std::literals;
  for (const std::string_view bytes :
       {"\x0a"sv, "\x0a\x05x"sv, "\x80"sv, "\x00"sv, "\x0b"sv, "\x09\x01"sv,
        "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"sv,
        "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv})
    EXPECT_EQ(binary(kPathRequest, bytes),
              "error: the message is not a well-formed protobuf message");
  EXPECT_EQ(binary(kPathRequest, "\x08\x01"), "error: path: a field with a length is wanted");
  EXPECT_EQ(binary(kPathRequest, "\x0a\x01\xff"), "error: path: UTF-8 is wanted");
  EXPECT_EQ(binary(kListDirRequest, "\x12\x01x"), "error: depth: a number is wanted");
  EXPECT_EQ(binary(kStartRequest, "\x0a\x02\x18\x01"), "error: process.envs: a map is wanted");
}

TEST(WireMap, HasOneOrderWhicheverFormItCameIn) {
  const Value from_json =
      decode_message(kEntryInfo, Encoding::kJson, R"({"metadata":{"b":"2","a":"1"}})").value();
  const std::string encoded = encode_message(kEntryInfo, Encoding::kBinary, from_json);
  const Value again = decode_message(kEntryInfo, Encoding::kBinary, encoded).value();
  EXPECT_EQ(json::serialize(from_json), R"({"metadata":{"a":"1","b":"2"}})");
  EXPECT_EQ(json::serialize(again), json::serialize(from_json));
}

TEST(WireBinary, ManyValuesAreTakenQuicklyAndTooManyRefused) {
  std::string config;
  for (std::size_t i = 0; i < 90'000; ++i) config += std::string_view("\x12\x00", 2);
  EXPECT_EQ(decode_message(kProcessConfig, Encoding::kBinary, config)
                .value()
                .find("args")
                ->as_array()
                ->size(),
            90'000u);
  for (std::size_t i = 0; i < 20'000; ++i) config += std::string_view("\x12\x00", 2);
  EXPECT_EQ(binary(kProcessConfig, config), "error: the message has more than 100000 values");
}

TEST(WireTime, IsWrittenWithAsFewDigitsAsItNeeds) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(rfc3339(1'000'000), "1970-01-01T00:00:00.001Z");
  EXPECT_EQ(rfc3339(1'500), "1970-01-01T00:00:00.000001500Z");
  EXPECT_EQ(rfc3339(-1), "1969-12-31T23:59:59.999999999Z");
}

TEST(WireTime, IsReadBack) {
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1'500},
                                  std::int64_t{1'700'000'000'123'456'789}})
    EXPECT_EQ(parse_rfc3339(rfc3339(time)), time);
  for (const char* bad :
       {"", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z", "2026-01-31T12:00:60Z", "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00.1234567890Z", "2026-01-31T12:00:00,1Z", "2026-01-31T12:00:00.xZ",
        "1600-01-31T12:00:00Z", "2026-01-31T12:00:00+01:00"})
    EXPECT_EQ(parse_rfc3339(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace caisson::api::e2b
