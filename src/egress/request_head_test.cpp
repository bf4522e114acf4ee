#include "egress/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::egress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string get(const std::string& headers) {
  return "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n" + headers + "\r\n";
}

RequestHead good(const std::string& bytes) {
  ParsedHead parsed = parse_request_head(bytes);
  EXPECT_FALSE(parsed.refusal.has_value()) << parsed.refusal->sentence;
  EXPECT_TRUE(parsed.head.has_value()) << bytes;
  return parsed.head.value_or(RequestHead{});
}

Answer bad(const std::string& bytes) {
  const ParsedHead parsed = parse_request_head(bytes);
  EXPECT_FALSE(parsed.head.has_value()) << bytes;
  EXPECT_TRUE(parsed.refusal.has_value()) << bytes;
  return parsed.refusal.value_or(Answer{0, ""});
}

TEST(RequestHead, TakesATunnel) {
  const RequestHead head =
      good("CONNECT Example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
  EXPECT_TRUE(head.tunnel);
  EXPECT_EQ(head.target, (Destination{policy::canonical_host("example.com").value(), 443}));
  EXPECT_EQ(head.forward, "");
  EXPECT_EQ(good("CONNECT [::1]:8443 HTTP/1.0\r\n\r\n").target,
            (Destination{policy::canonical_host("[::1]").value(), 8443}));
  // Some clients leave out the port.
  EXPECT_TRUE(good("CONNECT a.example.com:8443 HTTP/1.1\r\nHost: a.example.com\r\n\r\n").tunnel);
}

TEST(RequestHead, WritesAPlainRequestAnew) {
  const RequestHead head = good(
      "POST http://Example.com:8080/p/q?x=1 HTTP/1.1\r\nhost:\t example.com:8080 \r\n"
      "User-Agent: t\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X-Hop\r\n"
      "X-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n"
      "Proxy-Authorization: secret\r\nContent-Length: 12\r\nAccept: */*\r\n\r\n");
  EXPECT_FALSE(head.tunnel);
  EXPECT_EQ(head.target, (Destination{policy::canonical_host("example.com").value(), 8080}));
  EXPECT_EQ(head.body_bytes, 12u);
  EXPECT_EQ(head.forward,
            "POST /p/q?x=1 HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: t\r\n"
            "Content-Length: 12\r\nAccept: */*\r\nConnection: close\r\n\r\n");
}

TEST(RequestHead, APathIsMadeWhereThereIsNone) {
  EXPECT_THAT(good("GET http://a.example.com HTTP/1.1\r\nHost: a.example.com\r\n\r\n").forward,
              HasSubstr("GET / HTTP/1.1\r\nHost: a.example.com\r\n"));
  EXPECT_THAT(good("GET HTTP://a.example.com?x HTTP/1.1\r\nHost: a.example.com:80\r\n\r\n").forward,
              HasSubstr("GET /?x HTTP/1.1\r\n"));
  EXPECT_THAT(good("GET http://[::1]/ HTTP/1.1\r\nHost: [0:0::1]\r\n\r\n").forward,
              HasSubstr("Host: [::1]\r\n"));
}

TEST(RequestHead, WaitsForTheRest) {
  const std::string whole = get("Accept: */*\r\n");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const ParsedHead parsed = parse_request_head(std::string_view(whole).substr(0, size));
    EXPECT_FALSE(parsed.head.has_value() || parsed.refusal.has_value()) << size;
  }
  const ParsedHead parsed = parse_request_head(whole + "rest");
  EXPECT_EQ(parsed.used, whole.size());
}

TEST(RequestHead, IsBounded) {
  EXPECT_EQ(bad("GET http://a.example.com/" + std::string(kMostHead, 'a')).status, 431);
  std::string many;
  for (std::size_t i = 0; i < kMostHeaders; ++i) many += "X: y\r\n";
  EXPECT_EQ(bad(get(many)).status, 431);
}

TEST(RequestHead, RefusesWhatTwoServersCouldReadDifferently) {
  EXPECT_THAT(bad(get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")).sentence,
              HasSubstr("both"));
  EXPECT_THAT(bad(get("Content-Length: 1\r\nContent-Length: 1\r\n")).sentence, HasSubstr("twice"));
  EXPECT_THAT(bad(get("Content-Length: 1\r\ncontent-length: 2\r\n")).sentence, HasSubstr("twice"));
  EXPECT_THAT(bad(get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")).sentence,
              HasSubstr("twice"));
  for (const char* value : {"gzip, chunked", "identity", "chunked;q=1", "xchunked", "chunked, "})
    EXPECT_EQ(bad(get(std::string("Transfer-Encoding: ") + value + "\r\n")).status, 501) << value;
  for (const char* value : {"", "-1", "+1", "0x1", "1 1", "1,1", "1_0", "1234567890123456789"})
    EXPECT_THAT(bad(get(std::string("Content-Length: ") + value + "\r\n")).sentence,
                HasSubstr("Content-Length"))
        << value;
  EXPECT_THAT(bad(get("Host: example.com\r\n")).sentence, HasSubstr("twice"));
  EXPECT_THAT(bad(get("Connection: content-length\r\nContent-Length: 1\r\n")).sentence,
              HasSubstr("Connection names"));
  EXPECT_THAT(
      bad("GET http://a.example.com/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").sentence,
      HasSubstr("chunked"));
  EXPECT_TRUE(good(get("transfer-encoding:CHUNKED\r\n")).chunked);
}

TEST(RequestHead, RefusesOtherLineEndsAndFolding) {
  for (const char* bytes : {"GET http://a.example.com/ HTTP/1.1\nHost: a.example.com\n\n",
                            "GET http://a.example.com/ HTTP/1.1\r\nA: b\nC: d",
                            "GET http://a.example.com/ HTTP/1.1\r\nA: b\rC: d\r\n\r\n"})
    EXPECT_THAT(bad(bytes).sentence, HasSubstr("CR LF"));
  for (const char* line : {" folded\r\n", "\tfolded\r\n", "Name : v\r\n", ": v\r\n", "no colon\r\n",
                           "N\x01: v\r\n", "Na me: v\r\n"})
    EXPECT_THAT(bad(get(line)).sentence, HasSubstr("NAME: VALUE")) << line;
  EXPECT_THAT(bad(get(std::string("A: b\0c\r\n", 8))).sentence, HasSubstr("character"));
  EXPECT_THAT(bad(get("A: b\x7f\r\n")).sentence, HasSubstr("character"));
}

TEST(RequestHead, RefusesTargetsThatAreNoProxys) {
  for (const char* line : {"GET / HTTP/1.1",
                           "GET https://a.example.com/ HTTP/1.1",
                           "OPTIONS * HTTP/1.1",
                           "GET a.example.com HTTP/1.1",
                           "GET ftp://a.example.com/ HTTP/1.1",
                           "GET http:///x HTTP/1.1",
                           "GET http://user:word@a.example.com/ HTTP/1.1",
                           "GET http://a.example.com/#part HTTP/1.1",
                           "GET http://a.example.com:0/ HTTP/1.1",
                           "GET http://a.example.com:99999/ HTTP/1.1",
                           "CONNECT a.example.com HTTP/1.1",
                           "CONNECT http://a.example.com:443/ HTTP/1.1",
                           "CONNECT :443 HTTP/1.1",
                           "CONNECT a.example.com:443/x HTTP/1.1",
                           "connect a.example.com:443 HTTP/1.1",
                           "GET http://a.example.com/ HTTP/2",
                           "GET http://a.example.com/ HTTP/1.1 x",
                           "GET  http://a.example.com/ HTTP/1.1",
                           "GET http://a.example.com/",
                           "G(T http://a.example.com/ HTTP/1.1",
                           "GET http://example.com\xc3\xa4/ HTTP/1.1",
                           "GET http://a.example.com\\@b.example.com/ HTTP/1.1",
                           ""})
    EXPECT_GE(bad(std::string(line) + "\r\nHost: a.example.com\r\n\r\n").status, 400) << line;
}

TEST(RequestHead, HostMustNameTheSame) {
  for (const char* host : {"b.example.com", "a.example.com:81", "", "a.example.com, b.example.com",
                           "a.example.com/", "user@a.example.com"})
    EXPECT_THAT(bad("GET http://a.example.com/ HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n")
                    .sentence,
                HasSubstr("another target"))
        << host;
  EXPECT_THAT(bad("GET http://a.example.com/ HTTP/1.1\r\n\r\n").sentence, HasSubstr("Host"));
  EXPECT_THAT(bad("CONNECT a.example.com:443 HTTP/1.1\r\nHost: b.example.com:443\r\n\r\n").sentence,
              HasSubstr("another target"));
  EXPECT_THAT(bad("CONNECT a.example.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n").sentence,
              HasSubstr("no body"));
}

TEST(Response, SaysWhy) {
  EXPECT_EQ(response({403, "no"}),
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Content-Length: 12\r\nConnection: close\r\n\r\ncaisson: no\n");
}

// What is passed on of a body that comes in pieces of this size.
std::string passed(BodyFramer& framer, std::string_view bytes, std::size_t piece) {
  std::string out;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, piece);
    const auto used = framer.take(part);
    if (!used) return "malformed";
    out += part.substr(0, *used);
    if (*used < part.size()) break;
    bytes.remove_prefix(part.size());
  }
  return out;
}

TEST(BodyFramer, EndsWithItsLength) {
  for (const std::size_t piece : {1u, 2u, 3u, 100u}) {
    BodyFramer framer(RequestHead{.target = {}, .forward = {}, .body_bytes = 5});
    EXPECT_EQ(passed(framer, "hello, and more", piece), "hello");
    EXPECT_TRUE(framer.whole());
  }
  EXPECT_TRUE(BodyFramer(RequestHead{}).whole());
}

TEST(BodyFramer, EndsWithTheLastChunk) {
  const std::string body = "5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n";
  for (const std::size_t piece : {1u, 2u, 3u, 7u, 100u}) {
    BodyFramer framer(RequestHead{.target = {}, .forward = {}, .chunked = true});
    EXPECT_EQ(passed(framer, body + "GET http://b.example.com/ HTTP/1.1\r\n", piece), body);
    EXPECT_TRUE(framer.whole());
  }
}

TEST(BodyFramer, RefusesWhatIsNotPlainlyAChunk) {
  for (const char* body : {"\r\n", "g\r\n", "5;x=y\r\nhello\r\n", "5\nhello\r\n", "5\r\nhello0\r\n",
                           "5 \r\nhello\r\n", "-5\r\n", "0x5\r\n", "0\r\nTrailer: x\r\n\r\n",
                           "1234567890123456\r\n", "1\r\na\n0\r\n\r\n"}) {
    BodyFramer framer(RequestHead{.target = {}, .forward = {}, .chunked = true});
    EXPECT_EQ(passed(framer, body, 100), "malformed") << body;
  }
}

}  // namespace
}  // namespace caisson::egress
