#include "http/codec.h"

#include <gtest/gtest.h>

#include <vector>

namespace caisson::http {
namespace {

constexpr std::size_t kMostHead = 1024;
constexpr std::size_t kMostHeaders = 8;

// Scans and parses one request; the bytes behind the head do not matter.
Parsed<ParsedRequest> parse(std::string_view bytes) {
  HeadScanner scanner;
  const auto size = scanner.scan(bytes, kMostHead);
  if (!size.has_value()) return std::unexpected(size.error());
  if (!size->has_value()) return std::unexpected(Refusal{0, "the head has not ended"});
  return parse_request_head(bytes.substr(0, **size), kMostHeaders);
}

std::string get(const std::string& headers) {
  return "GET / HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}
std::string post(const std::string& headers) {
  return "POST / HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}

// ---- heads of requests
// ----------------------------------------------------------------------------

struct Case {
  std::string name;
  std::string bytes;
  int status = 0;  // 0: accepted
};

class Heads : public ::testing::TestWithParam<Case> {};

TEST_P(Heads, AreAcceptedOrRefused) {
  const auto request = parse(GetParam().bytes);
  if (GetParam().status == 0) {
    EXPECT_TRUE(request.has_value()) << request.error().sentence;
  } else {
    ASSERT_FALSE(request.has_value());
    EXPECT_EQ(request.error().status, GetParam().status) << request.error().sentence;
    EXPECT_FALSE(request.error().sentence.empty());
  }
}

std::string with_zero(std::string text) {
  for (char& c : text) {
    if (c == '@') c = '\0';
  }
  return text;
}

const std::vector<Case> kLines = {
    {"Plain", get("")},
    {"OldVersion", "GET / HTTP/1.0\r\n\r\n"},
    {"AbsoluteTarget", "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n"},
    {"AbsoluteTargetWithoutPath", "GET https://EXAMPLE.com HTTP/1.1\r\nHost: example.com\r\n\r\n"},
    {"AbsoluteTargetOfAnotherHost", "GET http://example.com/a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"AbsoluteTargetWithUser", "GET http://u@example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n",
     400},
    {"AbsoluteTargetWithoutHost", "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"OtherScheme", "GET ftp://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n", 400},
    {"Asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"},
    {"AsteriskOfGet", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"Connect", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"},
    {"ConnectToAPath", "CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"ConnectWithoutPort", "CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"ConnectWithABody", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", 400},
    {"RelativeTarget", "GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"NoTarget", "GET  HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"NoVersion", "GET /\r\nHost: x\r\n\r\n", 400},
    {"OneWord", "GET\r\nHost: x\r\n\r\n", 400},
    {"EmptyFirstLine", "\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"LeadingSpace", " GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"TwoSpaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"TabInsteadOfSpace", "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"SpaceBehindVersion", "GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
    {"SpaceInTarget", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"ControlInTarget", "GET /a\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"TabInTarget", "GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"HighByteInTarget", "GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"FragmentInTarget", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"MethodIsNoToken", "G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"MethodOfAnyCase", "get / HTTP/1.1\r\nHost: x\r\n\r\n"},
    {"LongMethod", std::string(33, 'A') + " / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"NewVersion", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
    {"StrangeVersion", "GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505},
    {"LongVersion", "GET / HTTP/1.10\r\nHost: x\r\n\r\n", 505},
    {"LowerCaseVersion", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
    {"PrefaceOfHttp2", "PRI * HTTP/2.0\r\n\r\n", 505},
};

const std::vector<Case> kHeaderLines = {
    {"ManyKinds", get("A: \r\nB:b\r\nC: \t c d \t\r\nD: \xc3\xa4\r\n")},
    {"BareLineFeed", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400},
    {"OnlyLineFeeds", "GET / HTTP/1.1\nHost: x\n\n", 400},
    {"BareCarriageReturn", get("A: b\rC: d\r\n"), 400},
    {"TwoCarriageReturns", get("A: b\r\r\n"), 400},
    {"CarriageReturnFirst", "\rGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"ZeroByteInValue", with_zero(get("A: b@c\r\n")), 400},
    {"ZeroByteInName", with_zero(get("A@: b\r\n")), 400},
    {"ZeroByteInTarget", with_zero("GET /@ HTTP/1.1\r\nHost: x\r\n\r\n"), 400},
    {"FoldedBySpace", get("A: b\r\n c\r\n"), 400},
    {"FoldedByTab", get("A: b\r\n\tc\r\n"), 400},
    {"FoldedFirst", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
    {"SpaceBeforeColon", get("A : b\r\n"), 400},
    {"TabBeforeColon", get("A\t: b\r\n"), 400},
    {"NoColon", get("A\r\n"), 400},
    {"NoName", get(": b\r\n"), 400},
    {"NameIsNoToken", get("A(b): c\r\n"), 400},
    {"HighByteInName", get("\xc3\xa4: c\r\n"), 400},
    {"ControlInValue", get("A: b\x01\r\n"), 400},
    {"DeleteInValue", get("A: b\x7f\r\n"), 400},
    {"AsManyAsAllowed", get("A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n")},
    {"TooMany", get("A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n"), 431},
    {"TooLong", get("A: " + std::string(kMostHead, 'b') + "\r\n"), 431},
    {"TooLongWithoutEnd", std::string(kMostHead, 'b'), 431},
    {"NoHost", "GET / HTTP/1.1\r\nA: b\r\n\r\n", 400},
    {"TwoHosts", get("Host: y\r\n"), 400},
    {"TwoEqualHosts", get("host: x\r\n"), 400},
    {"TwoHostsInOldVersion", "GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", 400},
    {"EmptyHost", "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
    {"HostWithPort", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"},
    {"HostWithPath", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400},
    {"HostWithUser", "GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", 400},
    {"HostsInOneLine", "GET / HTTP/1.1\r\nHost: x, y\r\n\r\n", 400},
    {"HostWithSpace", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400},
    {"Expectation", post("Content-Length: 1\r\nExpect: 100-Continue\r\n")},
    {"OtherExpectation", post("Content-Length: 1\r\nExpect: 200-maybe\r\n"), 417},
    {"TwoExpectations", post("Expect: 100-continue\r\nExpect: 100-continue\r\n"), 417},
    {"ExpectationInOldVersion", "GET / HTTP/1.0\r\nExpect: x\r\n\r\n"},
};

const std::vector<Case> kFramings = {
    {"Length", post("Content-Length: 5\r\n")},
    {"ZeroLength", post("Content-Length: 0\r\n")},
    {"LeadingZeros", post("Content-Length: 005\r\n")},
    {"LongestLength", post("Content-Length: 999999999999999999\r\n")},
    {"TooLongLength", post("Content-Length: 1000000000000000000\r\n"), 400},
    {"OverflowingLength", post("Content-Length: 18446744073709551621\r\n"), 400},
    {"PlusLength", post("Content-Length: +5\r\n"), 400},
    {"NegativeLength", post("Content-Length: -5\r\n"), 400},
    {"HexLength", post("Content-Length: 0x5\r\n"), 400},
    {"EmptyLength", post("Content-Length:\r\n"), 400},
    {"LengthWithWord", post("Content-Length: 5 bytes\r\n"), 400},
    {"LengthWithFraction", post("Content-Length: 5.0\r\n"), 400},
    {"TwoLengths", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
    {"TwoEqualLengths", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
    {"ListOfLengths", post("Content-Length: 5, 5\r\n"), 400},
    {"Chunked", post("Transfer-Encoding: chunked\r\n")},
    {"ChunkedOfAnyCase", post("transfer-encoding: CHUNKED\r\n")},
    {"ChunkedAndLength", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400},
    {"LengthAndChunked", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
    {"LengthAndUnknownCoding", post("Content-Length: 5\r\nTransfer-Encoding: x\r\n"), 400},
    {"ChunkedTwice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501},
    {"ChunkedTwiceInOneLine", post("Transfer-Encoding: chunked, chunked\r\n"), 501},
    {"GzipBeforeChunked", post("Transfer-Encoding: gzip, chunked\r\n"), 501},
    {"ChunkedBeforeIdentity", post("Transfer-Encoding: chunked, identity\r\n"), 501},
    {"Identity", post("Transfer-Encoding: identity\r\n"), 501},
    {"EmptyCoding", post("Transfer-Encoding:\r\n"), 501},
    {"QuotedChunked", post("Transfer-Encoding: \"chunked\"\r\n"), 501},
    {"ChunkedWithParameter", post("Transfer-Encoding: chunked;a=b\r\n"), 501},
    {"ChunkedWithVerticalTab", post("Transfer-Encoding: \vchunked\r\n"), 400},
    {"CodingWithSpaceBeforeColon", post("Transfer-Encoding : chunked\r\n"), 400},
    {"CodingThatIsFolded", post("Transfer-Encoding:\r\n chunked\r\n"), 400},
    {"ChunkedInOldVersion", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Lines, Heads, ::testing::ValuesIn(kLines), name_of);
INSTANTIATE_TEST_SUITE_P(HeaderLines, Heads, ::testing::ValuesIn(kHeaderLines), name_of);
INSTANTIATE_TEST_SUITE_P(Framings, Heads, ::testing::ValuesIn(kFramings), name_of);

TEST(HeadScanner, FindsTheEndHoweverTheBytesCome) {
  const std::string head = get("A: b\r\n");
  const std::string bytes = head + "behind it\r\n\r\n";
  HeadScanner scanner;
  for (std::size_t size = 0; size < head.size(); ++size) {
    const auto found = scanner.scan(std::string_view(bytes).substr(0, size), kMostHead);
    ASSERT_TRUE(found.has_value() && !found->has_value()) << size;
  }
  const auto found = scanner.scan(bytes, kMostHead);
  ASSERT_TRUE(found.has_value() && found->has_value());
  EXPECT_EQ(**found, head.size());
}

TEST(HeadScanner, RefusesAMalformedLineBeforeTheHeadHasEnded) {
  HeadScanner scanner;
  EXPECT_FALSE(scanner.scan("GET / HTTP/1.1\n", kMostHead).has_value());
}

TEST(HeadScanner, AcceptsAHeadOfJustTheLargestSize) {
  const std::string head = get("");
  EXPECT_TRUE(HeadScanner().scan(head, head.size()).has_value());
  EXPECT_FALSE(HeadScanner().scan(head, head.size() - 1).has_value());
}

TEST(Request, KeepsWhatCame) {
  const auto request =
      parse("PoST /a%20b?c=d HTTP/1.1\r\nhOst: Example.com:80\r\nX-A:  b c \r\nX-A: d\r\n\r\n");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->head.method, "PoST");
  EXPECT_EQ(request->head.target, "/a%20b?c=d");
  EXPECT_EQ(request->head.minor_version, 1);
  ASSERT_EQ(request->head.headers.all().size(), 3U);
  EXPECT_EQ(request->head.headers.all()[0].first, "hOst");
  EXPECT_EQ(request->head.headers.get("x-a"), "b c");
  EXPECT_EQ(request->head.headers.joined("X-A"), "b c, d");
}

TEST(Request, SaysHowItsBodyEnds) {
  EXPECT_EQ(parse(get(""))->body.kind, Framing::Kind::kNone);
  EXPECT_EQ(parse(post("Content-Length: 0\r\n"))->body.kind, Framing::Kind::kNone);
  const auto length = parse(post("Content-Length: 7\r\n"));
  EXPECT_EQ(length->body.kind, Framing::Kind::kLength);
  EXPECT_EQ(length->body.length, 7U);
  EXPECT_EQ(parse(post("Transfer-Encoding: chunked\r\n"))->body.kind, Framing::Kind::kChunked);
}

TEST(Request, SaysWhetherTheConnectionStays) {
  EXPECT_TRUE(parse(get(""))->keep_alive);
  EXPECT_FALSE(parse(get("Connection: a, Close\r\n"))->keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n")->keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")->keep_alive);
  EXPECT_FALSE(parse(get("Connection: keep-alive\r\nConnection: close\r\n"))->keep_alive);
}

TEST(Request, SaysWhetherItWaitsToSendItsBody) {
  EXPECT_TRUE(parse(post("Content-Length: 1\r\nExpect: 100-continue\r\n"))->expects_continue);
  EXPECT_FALSE(parse(post("Expect: 100-continue\r\n"))->expects_continue);
  EXPECT_FALSE(parse(post("Content-Length: 1\r\n"))->expects_continue);
}

TEST(Request, SaysWhetherItAsksForAnotherProtocol) {
  EXPECT_TRUE(parse(get("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"))->upgrade);
  EXPECT_FALSE(parse(get("Upgrade: websocket\r\n"))->upgrade);
  EXPECT_FALSE(parse(get("Connection: upgrade\r\n"))->upgrade);
  EXPECT_TRUE(parse("CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n")->upgrade);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")->upgrade);
}

// ---- heads of responses
// ---------------------------------------------------------------------------

Parsed<ParsedResponse> parse_answer(std::string_view bytes, std::string_view method = "GET") {
  HeadScanner scanner;
  const auto size = scanner.scan(bytes, kMostHead);
  if (!size.has_value()) return std::unexpected(size.error());
  if (!size->has_value()) return std::unexpected(Refusal{0, "the head has not ended"});
  return parse_response_head(bytes.substr(0, **size), method, kMostHeaders);
}

TEST(Response, KeepsWhatCame) {
  const auto answer = parse_answer("HTTP/1.1 404 Not here\r\nA: b\r\nContent-Length: 3\r\n\r\n");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->head.status, 404);
  EXPECT_EQ(answer->head.reason, "Not here");
  EXPECT_EQ(answer->head.headers.get("a"), "b");
  EXPECT_EQ(answer->body.length, 3U);
  EXPECT_TRUE(answer->keep_alive);
}

TEST(Response, NeedsNoReason) {
  EXPECT_TRUE(parse_answer("HTTP/1.1 200 \r\n\r\n").has_value());
  EXPECT_TRUE(parse_answer("HTTP/1.1 200\r\n\r\n").has_value());
}

TEST(Response, RefusesMalformedOnes) {
  for (const char* bytes :
       {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n", "HTTP/1.1 200 O\x01K\r\n\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"})
    EXPECT_FALSE(parse_answer(bytes).has_value()) << bytes;
}

TEST(Response, SaysHowItsBodyEnds) {
  const std::string length = "Content-Length: 3\r\n\r\n";
  EXPECT_EQ(parse_answer("HTTP/1.1 200 OK\r\n\r\n")->body.kind, Framing::Kind::kUntilClose);
  EXPECT_FALSE(parse_answer("HTTP/1.1 200 OK\r\n\r\n")->keep_alive);
  EXPECT_EQ(parse_answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")->body.kind,
            Framing::Kind::kNone);
  EXPECT_EQ(parse_answer("HTTP/1.1 200 OK\r\n" + length, "HEAD")->body.kind, Framing::Kind::kNone);
  EXPECT_EQ(parse_answer("HTTP/1.1 200 OK\r\n\r\n", "CONNECT")->body.kind, Framing::Kind::kNone);
  for (const char* status : {"100", "101", "204", "304"})
    EXPECT_EQ(parse_answer("HTTP/1.1 " + std::string(status) + " X\r\n" + length)->body.kind,
              Framing::Kind::kNone);
}

// ---- bodies
// ---------------------------------------------------------------------------------------

struct Body {
  std::string bytes, rest;
  bool done = false, refused = false;
};

Body decode(Framing framing, std::string_view input, std::size_t step = 1 << 20,
            std::size_t most = 1 << 20) {
  BodyDecoder decoder(framing);
  Body out;
  while (!input.empty() && !decoder.done()) {
    std::string_view part = input.substr(0, step);
    const std::size_t size = part.size();
    while (!part.empty() && !decoder.done()) {
      const auto piece = decoder.take(part, most);
      if (!piece.has_value()) {
        EXPECT_FALSE(decoder.take(part, most).has_value());  // for good
        out.refused = true;
        return out;
      }
      EXPECT_LE(piece->size(), most);
      out.bytes += *piece;
    }
    input.remove_prefix(size - part.size());
  }
  out.done = decoder.done();
  out.rest = input;
  return out;
}

constexpr Framing kChunked{.kind = Framing::Kind::kChunked};

TEST(Body, OfALengthEndsThere) {
  const Body body = decode({.kind = Framing::Kind::kLength, .length = 5}, "12345rest");
  EXPECT_EQ(body.bytes, "12345");
  EXPECT_EQ(body.rest, "rest");
  EXPECT_TRUE(body.done);
  EXPECT_FALSE(decode({.kind = Framing::Kind::kLength, .length = 5}, "1234").done);
}

TEST(Body, OfChunksIsTheSameHoweverItIsCut) {
  const std::string bytes =
      "5\r\n12345\r\n00A;name=\"v\"\r\n0123456789\r\n0\r\nTrailer: x\r\nOther:\r\n\r\nrest";
  for (const std::size_t step : {1, 2, 3, 7, 1000}) {
    for (const std::size_t most : {1, 4, 1000}) {
      const Body body = decode(kChunked, bytes, step, most);
      EXPECT_EQ(body.bytes, "123450123456789");
      EXPECT_EQ(body.rest, "rest");
      EXPECT_TRUE(body.done);
    }
  }
}

TEST(Body, UntilTheCloseEndsWithTheInput) {
  BodyDecoder decoder(Framing{.kind = Framing::Kind::kUntilClose});
  std::string_view input = "all of it";
  EXPECT_EQ(decoder.take(input, 100).value_or(""), "all of it");
  EXPECT_FALSE(decoder.done());
  EXPECT_TRUE(decoder.end_of_input());
  EXPECT_TRUE(decoder.done());
}

TEST(Body, ThatIsCutOffIsNotWhole) {
  BodyDecoder decoder(kChunked);
  std::string_view input = "5\r\n123";
  EXPECT_EQ(decoder.take(input, 100).value_or(""), "123");
  EXPECT_EQ(decoder.left(), 2U);
  EXPECT_FALSE(decoder.end_of_input());
}

TEST(Body, RefusesMalformedChunks) {
  const std::string many = ";" + std::string(4097, 'x');
  std::string many_trailers = "0\r\n";
  while (many_trailers.size() < 9000) many_trailers += "A: b\r\n";
  for (const std::string& bytes : std::vector<std::string>{"\r\n",
                                                           "x\r\n",
                                                           ";a\r\n",
                                                           "-1\r\n",
                                                           "+1\r\n",
                                                           " 1\r\n",
                                                           "1 \r\n",
                                                           "0x1\r\n",
                                                           "1\n",
                                                           "1\rx",
                                                           "1\r\nab\r\n",
                                                           "1\r\na\n",
                                                           "1\r\na\rx",
                                                           "1000000000000000\r\n",
                                                           "1" + many + "\r\n",
                                                           "1;a\x01\r\n",
                                                           "1;a\n",
                                                           "0\r\nno trailer\r\n\r\n",
                                                           "0\r\nA : b\r\n\r\n",
                                                           "0\r\nA: b\n\r\n",
                                                           "0\r\n\rx",
                                                           "0\r\nA: \x01\r\n\r\n",
                                                           many_trailers + "\r\n"})
    EXPECT_TRUE(decode(kChunked, bytes).refused) << bytes.substr(0, 40);
}

TEST(Body, BoundsTheExtensionsOfAllChunksTogether) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += "1;" + std::string(50, 'x') + "\r\na\r\n";
  EXPECT_TRUE(decode(kChunked, bytes).refused);
}

// ---- encoding
// -------------------------------------------------------------------------------------

TEST(Encode, WhatItWritesParsesToTheSame) {
  RequestHead head{.method = "PUT", .target = "/a?b", .headers = {{"Host", "x"}, {"A", "b c"}}};
  const auto bytes = encode(head);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(*bytes, "PUT /a?b HTTP/1.1\r\nHost: x\r\nA: b c\r\n\r\n");
  EXPECT_TRUE(parse(*bytes).has_value());
}

TEST(Encode, AResponseHasTheReasonOfItsStatus) {
  EXPECT_EQ(encode(ResponseHead{.status = 404}).value_or(""), "HTTP/1.1 404 Not Found\r\n\r\n");
  EXPECT_EQ(encode(ResponseHead{.status = 299}).value_or(""), "HTTP/1.1 299 \r\n\r\n");
  EXPECT_EQ(encode(ResponseHead{.status = 200, .reason = "Fine"}).value_or(""),
            "HTTP/1.1 200 Fine\r\n\r\n");
}

TEST(Encode, RefusesWhatIsNoHead) {
  EXPECT_FALSE(encode(ResponseHead{.status = 99}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.status = 1000}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.reason = "a\r\nb"}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.headers = {{"A b", "c"}}}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.headers = {{"", "c"}}}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.headers = {{"A", "b\r\nC: d"}}}).has_value());
  EXPECT_FALSE(encode(ResponseHead{.headers = {{"A", " b"}}}).has_value());
  EXPECT_FALSE(encode(RequestHead{.method = "G T", .target = "/"}).has_value());
  EXPECT_FALSE(encode(RequestHead{.method = "GET", .target = ""}).has_value());
  EXPECT_FALSE(encode(RequestHead{.method = "GET", .target = "/ b"}).has_value());
}

TEST(Encode, AChunkSaysItsSizeInHex) {
  EXPECT_EQ(chunk("a"), "1\r\na\r\n");
  EXPECT_EQ(chunk(std::string(300, 'x')), "12c\r\n" + std::string(300, 'x') + "\r\n");
}

TEST(HopByHop, RemovesWhatConnectionNamesButNotTheFraming) {
  Headers headers{{"Connection", "close, X-One, content-length, host"},
                  {"X-One", "1"},
                  {"X-Two", "2"},
                  {"Keep-Alive", "5"},
                  {"Upgrade", "x"},
                  {"Content-Length", "3"},
                  {"Host", "x"}};
  remove_hop_by_hop(headers);
  ASSERT_EQ(headers.all().size(), 3U);
  EXPECT_TRUE(headers.has("X-Two"));
  EXPECT_TRUE(headers.has("Content-Length"));
  EXPECT_TRUE(headers.has("Host"));
}

}  // namespace
}  // namespace caisson::http
