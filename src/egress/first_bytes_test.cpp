#include "egress/first_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::egress {
namespace {

using namespace std::string_literals;  // NOLINT: NUL bytes

struct Case {
  std::string bytes;
  FirstBytes protocol;
};

TEST(FirstBytes, TellsProtocolsApart) {
  const Case cases[] = {
      {"\x16\x03", FirstBytes::kTls},
      {"\x16\x03\x01\x02\x00\x01"s, FirstBytes::kTls},
      {"\x80\x2e\x01\x00\x02"s, FirstBytes::kTls},  // SSL 2
      {"\xff\xff\x01\x03\x03"s, FirstBytes::kTls},
      {"GET / HTTP/1.1\r\n", FirstBytes::kHttp1},
      {"G ", FirstBytes::kHttp1},
      {"get /", FirstBytes::kHttp1},
      {"M-SEARCH *", FirstBytes::kHttp1},
      {"PRI /x HTTP/1.1\r\n", FirstBytes::kHttp1},
      {"PRI * HTTP/1.1\r\n", FirstBytes::kHttp1},
      {"PRI * HTTP/2.0\r\n", FirstBytes::kHttp2PriorKnowledge},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FirstBytes::kHttp2PriorKnowledge},
      {"SSH-2.0-x\r\n", FirstBytes::kSsh},
      {"SSHX /", FirstBytes::kHttp1},
      {"\x16\x02", FirstBytes::kOther},
      {"\x17\x03\x03", FirstBytes::kOther},
      {"\x80\x2e\x02", FirstBytes::kOther},
      {"\x80\x2e\x01\x01", FirstBytes::kOther},
      {"\x80\x2e\x01\x00\x01"s, FirstBytes::kOther},
      {" GET /", FirstBytes::kOther},
      {"\r\nGET / HTTP/1.1\r\n", FirstBytes::kOther},
      {"GET\t/", FirstBytes::kOther},
      {"GET\r\n", FirstBytes::kOther},
      {"G\0T /"s, FirstBytes::kOther},
      {"\0"s, FirstBytes::kOther},
  };
  for (const Case& one : cases) EXPECT_EQ(first_bytes(one.bytes), one.protocol) << one.bytes;
}

TEST(FirstBytes, WaitsWhileItCanBeEither) {
  for (const std::string& bytes :
       {""s, "\x16"s, "\x80"s, "\x80\x2e"s, "\x80\x2e\x01"s, "\x80\x2e\x01\x00"s, "S"s, "SSH"s,
        "P"s, "PRI"s, "PRI "s, "PRI * HTTP/2.0\r"s, "GET"s, std::string(kMostMethodBytes, 'M')})
    EXPECT_EQ(first_bytes(bytes), FirstBytes::kNeedMore) << bytes;
}

TEST(FirstBytes, AMethodHasAtMost32Bytes) {
  EXPECT_EQ(first_bytes(std::string(kMostMethodBytes, 'M') + " /"), FirstBytes::kHttp1);
  EXPECT_EQ(first_bytes(std::string(kMostMethodBytes + 1, 'M')), FirstBytes::kOther);
  EXPECT_EQ(first_bytes(std::string(kMostMethodBytes + 1, 'M') + " /"), FirstBytes::kOther);
}

TEST(FirstBytes, TheAnswerStaysWhateverFollows) {
  for (const std::string& bytes :
       {"GET / HTTP/1.1\r\n"s, "PRI * HTTP/2.0\r\n\r\n"s, "SSH-2.0-x\r\n"s,
        "\x16\x03\x01\x02\x00\x01"s, "\x80\x2e\x01\x03\x01\x00"s, "PRI * HTTP/1.1\r\n"s,
        "\x80\x2e\x01\x00\x03"s}) {
    FirstBytes last = FirstBytes::kNeedMore;
    for (std::size_t size = 0; size <= bytes.size(); ++size) {
      const FirstBytes now = first_bytes(std::string_view(bytes).substr(0, size));
      if (last != FirstBytes::kNeedMore) {
        EXPECT_EQ(now, last) << bytes << " " << size;
      }
      last = now;
    }
    EXPECT_NE(last, FirstBytes::kNeedMore);
  }
}

}  // namespace
}  // namespace caisson::egress
