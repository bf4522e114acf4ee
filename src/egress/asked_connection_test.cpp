#include "egress/asked_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace caisson::egress {
namespace {

using namespace std::string_literals;
using State = AskedConnection::State;
using testing::HasSubstr;
using testing::StartsWith;

std::string name_request(std::string_view name, std::string_view port = "\x01\xbb") {
  return "\x05\x01\x00\x03"s + static_cast<char>(name.size()) + std::string(name) +
         std::string(port);
}

TEST(AskedConnection, IsOfConnect) {
  const auto asked =
      asked_connection("CONNECT Good.Test:443 HTTP/1.1\r\nHost: good.test\r\n\r\nxx");
  ASSERT_EQ(asked.state, State::kAsked) << asked.sentence;
  EXPECT_EQ(asked.to.text(), "good.test:443");
  EXPECT_EQ(asked.used, 51u);
  EXPECT_EQ(asked.answer, "HTTP/1.1 200 Connection established\r\n\r\n");
  EXPECT_EQ(asked.instead, "");
}

TEST(AskedConnection, IsOfATargetWithAHost) {
  const auto asked = asked_connection(
      "GET http://example.com:8080/a?b HTTP/1.1\r\nHost: example.com:8080\r\n"
      "Proxy-Authorization: Basic eA==\r\n\r\n");
  ASSERT_EQ(asked.state, State::kAsked) << asked.sentence;
  EXPECT_EQ(asked.to.text(), "example.com:8080");
  EXPECT_EQ(asked.answer, "");
  EXPECT_EQ(asked.instead,
            "GET /a?b HTTP/1.1\r\nHost: example.com:8080\r\nConnection: close\r\n\r\n");
}

TEST(AskedConnection, OfHttpIsWellFormedAndOfOneMeaning) {
  for (const char* request :
       {"GET /a HTTP/1.1\r\nHost: good.test\r\n\r\n", "CONNECT good.test HTTP/1.1\r\n\r\n",
        "CONNECT good.test:0 HTTP/1.1\r\n\r\n", "CONNECT u@good.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT good.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
        "CONNECT good.test%00.evil.test:443 HTTP/1.1\r\n\r\n",
        "CONNECT 0x7f.1:443 HTTP/1.1\r\n\r\n", "CONNECT 2130706433:443 HTTP/1.1\r\n\r\n",
        "GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "GET http://example.com@example.org/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "\x16\x03\x01\n"}) {
    const auto asked = asked_connection(request);
    EXPECT_EQ(asked.state, State::kRefused) << request;
    EXPECT_FALSE(asked.sentence.empty());
    EXPECT_THAT(asked.answer, StartsWith("HTTP/1.1 400"));
  }
  EXPECT_EQ(asked_connection("CONNECT good.test:443 HTT").state, State::kMore);
  EXPECT_EQ(asked_connection("").state, State::kMore);
}

TEST(AskedConnection, OfSocks5BeginsWithAGreeting) {
  const auto greeted = asked_connection("\x05\x02\x02\x00rest"s);
  ASSERT_EQ(greeted.state, State::kGreeted);
  EXPECT_EQ(greeted.used, 4u);
  EXPECT_EQ(greeted.answer, "\x05\x00"s);
  const auto login = asked_connection("\x05\x01\x02"s);
  EXPECT_EQ(login.state, State::kRefused);
  EXPECT_EQ(login.answer, "\x05\xff"s);
  for (const std::string& cut : {"\x05"s, "\x05\x02"s, "\x05\x02\x00"s})
    EXPECT_EQ(asked_connection(cut).state, State::kMore);
  const auto socks4 = asked_connection("\x04\x01\x01\xbb\x01\x02\x03\x04\x00"s);
  EXPECT_EQ(socks4.state, State::kRefused);
  EXPECT_THAT(socks4.sentence, HasSubstr("SOCKS4"));
}

TEST(AskedConnection, OfSocks5IsANameOrAnAddress) {
  const auto named = socks_request(name_request("Good.Test") + "tls");
  ASSERT_EQ(named.state, State::kAsked);
  EXPECT_EQ(named.to.text(), "good.test:443");
  EXPECT_EQ(named.used, 16u);
  EXPECT_EQ(named.answer, "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"s);
  EXPECT_EQ(socks_request("\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x50"s).to.text(), "192.0.2.7:80");
  const std::string v6 =
      "\x05\x01\x00\x04\x20\x01\x0d\xb8"s + std::string(11, '\0') + "\x01\x00\x50"s;
  EXPECT_EQ(socks_request(v6).to.text(), "[2001:db8::1]:80");
  // One address in two spellings is one.
  const std::string mapped =
      "\x05\x01\x00\x04"s + std::string(10, '\0') + "\xff\xff\x7f\x00\x00\x01\x00\x50"s;
  EXPECT_EQ(socks_request(mapped).to.text(), "127.0.0.1:80");
  for (std::size_t size = 0; size < v6.size(); ++size)
    EXPECT_EQ(socks_request(v6.substr(0, size)).state, State::kMore) << size;
}

TEST(AskedConnection, OfSocks5HasNoNameThatEndsElsewhere) {
  for (const std::string& name :
       {""s, "good.test\0.evil.test"s, "good.test\r\n"s, "good.test "s, "u@good.test"s,
        "good.test:443"s, "good.test/"s, "127.1"s, "0x7f000001"s, "good..test"s}) {
    const auto asked = socks_request(name_request(name));
    EXPECT_EQ(asked.state, State::kRefused) << testing::PrintToString(name);
    EXPECT_EQ(asked.answer.substr(0, 2), "\x05\x02"s);
  }
}

TEST(AskedConnection, OfSocks5IsConnectAlone) {
  for (const char command : {'\x00', '\x02', '\x03', '\x7f'}) {
    const auto asked = socks_request("\x05"s + command + "\x00\x01\x7f\x00\x00\x01\x00\x50"s);
    EXPECT_EQ(asked.state, State::kRefused);
    EXPECT_EQ(asked.answer.substr(0, 2), "\x05\x07"s);
  }
  EXPECT_EQ(socks_request("\x05\x01\x00\x02\x00\x00\x00"s).answer.substr(0, 2), "\x05\x08"s);
  EXPECT_EQ(socks_request(name_request("good.test", "\x00\x00"s)).state, State::kRefused);
  EXPECT_EQ(socks_request("\x04\x01\x00\x01\x00"s).state, State::kRefused);
}

}  // namespace
}  // namespace caisson::egress
