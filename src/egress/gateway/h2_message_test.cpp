#include "egress/gateway/h2_message.h"

#include <gtest/gtest.h>

#include "http/codec.h"

namespace caisson::egress {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

const H2Fields kGet = {
    {":method", "GET"}, {":scheme", "https"}, {":authority", "a.example.com"}, {":path", "/x?y=1"}};

H2Fields with(H2Fields fields, const H2Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

// The same without a field; and with another value of it.
H2Fields without(H2Fields fields, std::string_view name) {
  std::erase_if(fields, [name](const auto& field) { return field.first == name; });
  return fields;
}
H2Fields but(H2Fields fields, std::string_view name, std::string value) {
  for (auto& [own, old] : fields) {
    if (own == name) old = value;
  }
  return fields;
}

std::string why(const H2Fields& fields) {
  const auto head = request_of(fields, H2Body::kNone);
  return head.has_value() ? "" : head.error().message();
}

TEST(H2Message, ARequestIsOneOfHttp11) {
  const auto head = request_of(with(kGet, {{"accept", "*/*"}, {"te", "trailers"}}), H2Body::kNone);
  ASSERT_TRUE(head.has_value()) << head.error().message();
  EXPECT_EQ(head->method + " " + head->target, "GET /x?y=1");
  EXPECT_EQ(head->headers.all(),
            (Pairs{{"Host", "a.example.com"}, {"accept", "*/*"}, {"te", "trailers"}}));
}

TEST(H2Message, ABodyOfUnknownLengthIsChunked) {
  const auto unknown = request_of(kGet, H2Body::kFollows);
  EXPECT_EQ(unknown->headers.get("Transfer-Encoding"), "chunked");
  const auto known = request_of(with(kGet, {{"content-length", "5"}}), H2Body::kFollows);
  EXPECT_FALSE(known->headers.has("Transfer-Encoding"));
  EXPECT_EQ(known->headers.get("Content-Length"), "5");
}

TEST(H2Message, TheHostIsTheAuthorityAndAnotherStaysBesideIt) {
  const auto same = request_of(with(kGet, {{"host", "a.example.com"}}), H2Body::kNone);
  EXPECT_EQ(same->headers.all(), (Pairs{{"Host", "a.example.com"}}));
  const auto other = request_of(with(kGet, {{"host", "b.example.com"}}), H2Body::kNone);
  EXPECT_EQ(other->headers.all(), (Pairs{{"Host", "a.example.com"}, {"host", "b.example.com"}}));
  const auto alone =
      request_of(with(without(kGet, ":authority"), {{"host", "b.example.com"}}), H2Body::kNone);
  EXPECT_EQ(alone->headers.all(), (Pairs{{"Host", "b.example.com"}}));
}

TEST(H2Message, CrumbsOfACookieAreOne) {
  const auto head = request_of(
      with(kGet, {{"cookie", "a=1"}, {"x-between", "1"}, {"cookie", "b=2"}}), H2Body::kNone);
  EXPECT_EQ(head->headers.get("cookie"), "a=1; b=2");
  const auto empty =
      request_of(with(kGet, {{"cookie", ""}, {"cookie", "a=1"}, {"cookie", ""}}), H2Body::kNone);
  EXPECT_EQ(empty->headers.get("cookie"), "a=1");
}

TEST(H2Message, ConnectHasItsAuthorityAlone) {
  const H2Fields connect = {{":method", "CONNECT"}, {":authority", "a.example.com:443"}};
  const auto head = request_of(connect, H2Body::kFollows);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->target, "a.example.com:443");
  EXPECT_NE(why(with({{":path", "/"}}, connect)), "");
  EXPECT_NE(why(but(kGet, ":method", "CONNECT")), "");
}

TEST(H2Message, RefusesWhatCouldBeReadInTwoWays) {
  EXPECT_EQ(why(kGet), "");
  EXPECT_EQ(why(but(but(kGet, ":method", "OPTIONS"), ":path", "*")), "");
  for (const char* const name : {":method", ":scheme", ":authority", ":path"}) {
    EXPECT_NE(why(without(kGet, name)), "") << name;
    EXPECT_NE(why(but(kGet, name, "")), "") << name;
    EXPECT_NE(why(with(kGet, {{name, "x"}})), "") << name;
  }
  for (const char* const path :
       {"*", "x", "https://a.example.com/", "/a b", "/#a", "/a\r\nb", "/\x7f", "/\xff"})
    EXPECT_NE(why(but(kGet, ":path", path)), "") << path;
  EXPECT_NE(why(but(kGet, ":scheme", "http")), "");
  EXPECT_NE(why(but(kGet, ":method", "G ET")), "");
  EXPECT_NE(why(but(kGet, ":method", std::string(33, 'A'))), "");
  EXPECT_NE(why(but(kGet, ":authority", "a.example.com b")), "");
  EXPECT_NE(why(with(kGet, {{":protocol", "websocket"}})), "");
  EXPECT_NE(why(with({{"accept", "x"}}, kGet)), "");
}

TEST(H2Message, RefusesFieldsThatHaveNoPlace) {
  const H2Fields wrong = {{"connection", "close"},
                          {"proxy-connection", "close"},
                          {"keep-alive", "1"},
                          {"transfer-encoding", "chunked"},
                          {"upgrade", "h2c"},
                          {"te", "gzip"},
                          {"Accept", "x"},
                          {"a b", "x"},
                          {"", "x"},
                          {"a:", "x"},
                          {"x", "a\nb"},
                          {"x", std::string("a\0b", 3)},
                          {"x", " a"},
                          {"x", "a\t"},
                          {"content-length", "x"},
                          {"content-length", ""},
                          {"content-length", "-1"},
                          {"content-length", std::string(19, '1')}};
  for (const auto& field : wrong)
    EXPECT_NE(why(with(kGet, {field})), "") << field.first << ": " << field.second;
  EXPECT_NE(why(with(kGet, {{"content-length", "1"}, {"content-length", "1"}})), "");
}

TEST(H2Message, AnAnswerIsOneOfHttp11) {
  const auto head = response_of({{":status", "204"}, {"x", "1"}});
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->status, 204);
  EXPECT_EQ(head->headers.all(), (Pairs{{"x", "1"}}));
  for (const char* const status : {"", "20", "2000", "2x0", "099", "101"})
    EXPECT_FALSE(response_of({{":status", status}}).has_value()) << status;
  EXPECT_FALSE(response_of({{"x", "1"}}).has_value());
  EXPECT_FALSE(response_of({{":status", "200"}, {":path", "/"}}).has_value());
  EXPECT_FALSE(response_of({{":status", "200"}, {"connection", "close"}}).has_value());
}

TEST(H2Message, TrailersFrameAndDirectNothing) {
  const auto trailers = trailers_of({{"grpc-status", "0"}, {"grpc-message", ""}});
  ASSERT_TRUE(trailers.has_value());
  EXPECT_EQ(trailers->all(), (Pairs{{"grpc-status", "0"}, {"grpc-message", ""}}));
  for (const char* const name : {":status", "content-length", "host", "authorization",
                                 "transfer-encoding", "connection", "Grpc-Status"})
    EXPECT_FALSE(trailers_of({{name, "1"}}).has_value()) << name;
}

TEST(H2Message, GoesBackWithoutWhatHttp2HasNoPlaceFor) {
  http::RequestHead head{.method = "POST", .target = "/x"};
  head.headers.add("Connection", "close").add("Transfer-Encoding", "chunked");
  head.headers.add("Host", "a.example.com").add("X-Mine", "1").add("TE", "trailers");
  EXPECT_EQ(fields_of(head), (H2Fields{{":method", "POST"},
                                       {":scheme", "https"},
                                       {":authority", "a.example.com"},
                                       {":path", "/x"},
                                       {"x-mine", "1"}}));
  http::ResponseHead answer{.status = 200};
  answer.headers.add("Keep-Alive", "1").add("Content-Type", "text/plain");
  EXPECT_EQ(fields_of(answer), (H2Fields{{":status", "200"}, {"content-type", "text/plain"}}));
}

}  // namespace
}  // namespace caisson::egress
