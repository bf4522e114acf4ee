#include "http/connect.h"

#include <gtest/gtest.h>

namespace caisson::http {
namespace {

using namespace std::chrono_literals;

TEST(Envelope, HasItsFlagsAndItsLengthInFront) {
  EXPECT_EQ(envelope(0, "abc"), std::string("\0\0\0\0\3abc", 8));
  EXPECT_EQ(envelope(kEndStream, ""), std::string("\2\0\0\0\0", 5));
  EXPECT_EQ(envelope(0, std::string(258, 'x')).substr(0, 5), std::string("\0\0\0\1\2", 5));
}

TEST(EnvelopeReader, GivesWholeMessagesHoweverTheyCome) {
  const std::string bytes = envelope(0, "one") + envelope(0, "") + envelope(kEndStream, "{}");
  for (const std::size_t step : {1, 2, 5, 100}) {
    EnvelopeReader reader(100);
    std::string seen;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.feed(std::string_view(bytes).substr(at, step));
      for (;;) {
        const auto message = reader.next();
        ASSERT_TRUE(message.has_value());
        if (!message->has_value()) break;
        seen += std::to_string((*message)->flags) + (*message)->bytes + " ";
      }
    }
    EXPECT_EQ(seen, "0one 0 2{} ");
    EXPECT_FALSE(reader.partial());
  }
}

TEST(EnvelopeReader, KnowsThatAMessageHasBegun) {
  EnvelopeReader reader(100);
  EXPECT_FALSE(reader.partial());
  reader.feed(envelope(0, "one").substr(0, 6));
  EXPECT_FALSE(reader.next()->has_value());
  EXPECT_TRUE(reader.partial());
}

TEST(EnvelopeReader, RefusesALongMessageBeforeItHasCome) {
  EnvelopeReader reader(3);
  reader.feed(envelope(0, "four").substr(0, 5));
  for (int i = 0; i < 2; ++i) {
    const auto message = reader.next();
    ASSERT_FALSE(message.has_value());
    EXPECT_EQ(message.error().code(), Code::kResourceExhausted);
  }
}

TEST(EnvelopeReader, RefusesCompressionAndUnknownFlags) {
  EnvelopeReader compressed(3);
  compressed.feed(envelope(kCompressed, "x"));
  EXPECT_EQ(compressed.next().error().code(), Code::kUnimplemented);
  EnvelopeReader unknown(3);
  unknown.feed("\x80");
  EXPECT_EQ(unknown.next().error().code(), Code::kInvalidArgument);
}

TEST(ConnectError, HasTheStatusOfItsCode) {
  EXPECT_EQ(rpc_status_of(Code::kCancelled), 499);
  EXPECT_EQ(rpc_status_of(Code::kUnknown), 500);
  EXPECT_EQ(rpc_status_of(Code::kInvalidArgument), 400);
  EXPECT_EQ(rpc_status_of(Code::kDeadlineExceeded), 504);
  EXPECT_EQ(rpc_status_of(Code::kNotFound), 404);
  EXPECT_EQ(rpc_status_of(Code::kAlreadyExists), 409);
  EXPECT_EQ(rpc_status_of(Code::kPermissionDenied), 403);
  EXPECT_EQ(rpc_status_of(Code::kResourceExhausted), 429);
  EXPECT_EQ(rpc_status_of(Code::kFailedPrecondition), 400);
  EXPECT_EQ(rpc_status_of(Code::kAborted), 409);
  EXPECT_EQ(rpc_status_of(Code::kOutOfRange), 400);
  EXPECT_EQ(rpc_status_of(Code::kUnimplemented), 501);
  EXPECT_EQ(rpc_status_of(Code::kInternal), 500);
  EXPECT_EQ(rpc_status_of(Code::kUnavailable), 503);
  EXPECT_EQ(rpc_status_of(Code::kDataLoss), 500);
  EXPECT_EQ(rpc_status_of(Code::kUnauthenticated), 401);
}

TEST(ConnectError, IsJson) {
  const Error error = Error::not_found("no \"such\" file");
  EXPECT_EQ(error_json(error), R"({"code":"not_found","message":"no \"such\" file"})");
  EXPECT_EQ(end_stream_json(error),
            R"({"error":{"code":"not_found","message":"no \"such\" file"}})");
  EXPECT_EQ(end_stream_json(std::nullopt), "{}");
}

TEST(ConnectTimeout, IsANumberOfAtMostTenDigits) {
  EXPECT_EQ(parse_timeout(std::nullopt).value(), std::nullopt);
  EXPECT_EQ(parse_timeout("60000").value(), 60s);
  EXPECT_EQ(parse_timeout("9999999999").value(), 9999999999ms);
  for (const char* text : {"", "10000000000", "-1", "+1", " 1", "1.5", "1s", "x"})
    EXPECT_FALSE(parse_timeout(text).has_value()) << text;
}

}  // namespace
}  // namespace caisson::http
