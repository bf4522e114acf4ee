#include "egress/socks5_client.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::egress {
namespace {

using namespace std::string_literals;

policy::Host host(std::string_view text) {
  return policy::canonical_host(text).value();
}

std::string sent(Socks5Client& client) {
  std::string bytes(client.to_send());
  client.sent();
  return bytes;
}

// What it says of a proxy that answers so; "" where the connection stands.
std::string outcome(std::string_view username, std::string_view answers) {
  Socks5Client client(host("a.test"), 443, std::string(username), "pw");
  while (client.wanted() > 0) {
    if (answers.size() < client.wanted()) return "wants more";
    const std::string_view taken = answers.substr(0, client.wanted());
    answers.remove_prefix(taken.size());
    const Status status = client.take(taken);
    if (!status.has_value()) return status.error().message();
  }
  return answers.empty() ? "" : "bytes are left";
}

TEST(Socks5Client, AsksForANameAsItIs) {
  Socks5Client client(host("good.test"), 443, "", "");
  EXPECT_EQ(sent(client), "\x05\x01\x00"s);
  EXPECT_TRUE(client.take("\x05\x00"s).has_value());
  EXPECT_EQ(sent(client), "\x05\x01\x00\x03\x09good.test\x01\xbb"s);
  EXPECT_EQ(client.wanted(), 4u);
}

TEST(Socks5Client, AsksForAddressesOfBothFamilies) {
  Socks5Client v4(host("192.0.2.7"), 80, "", "");
  (void)sent(v4);
  EXPECT_TRUE(v4.take("\x05\x00"s).has_value());
  EXPECT_EQ(sent(v4), "\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x50"s);
  Socks5Client v6(host("[2001:db8::1]"), 80, "", "");
  (void)sent(v6);
  EXPECT_TRUE(v6.take("\x05\x00"s).has_value());
  EXPECT_EQ(
      sent(v6),
      "\x05\x01\x00\x04\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50"s);
}

TEST(Socks5Client, LogsInWhereItIsAsked) {
  Socks5Client client(host("good.test"), 443, "me", "pw");
  EXPECT_EQ(sent(client), "\x05\x02\x00\x02"s);
  EXPECT_TRUE(client.take("\x05\x02"s).has_value());
  EXPECT_EQ(sent(client), "\x01\x02me\x02pw"s);
  EXPECT_TRUE(client.take("\x01\x00"s).has_value());
  EXPECT_EQ(sent(client).substr(0, 4), "\x05\x01\x00\x03"s);
}

TEST(Socks5Client, ReadsTheAddressThatNobodyNeedsToItsEnd) {
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"s), "");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x03\x01x\x00\x00"s), "");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x03\x00\x00\x00"s), "");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x04"s + std::string(18, '\0')), "");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00W"s), "bytes are left");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x01\x00\x00"s), "wants more");
}

TEST(Socks5Client, SaysWhatTheProxyRefuses) {
  EXPECT_EQ(outcome("", "\x05\xff"s), "the proxy asks for a username");
  EXPECT_EQ(outcome("me", "\x05\xff"s), "the proxy takes no username and password");
  EXPECT_EQ(outcome("me", "\x05\x02\x01\x01"s),
            "the proxy does not take the username and password");
  const char* const why[] = {"failed, by the number 1", "not allowed",
                             "network unreachable",     "host unreachable",
                             "connection refused",      "expired on its way",
                             "it makes no connections", "it takes no such addresses",
                             "failed, by the number 9"};
  for (char reply = 1; reply <= 9; ++reply)
    EXPECT_EQ(outcome("", "\x05\x00\x05"s + reply + "\x00\x01"s),
              std::string("the proxy says of a.test:443: ") + why[reply - 1]);
}

TEST(Socks5Client, SaysWhatIsNoSocks5) {
  EXPECT_EQ(outcome("", "\x04\x00"s), "the proxy does not speak SOCKS5: another version");
  EXPECT_EQ(outcome("", "\x05\x02"s),
            "the proxy does not speak SOCKS5: a login that was not offered");
  EXPECT_EQ(outcome("me", "\x05\x02\x07\x00"s),
            "the proxy does not speak SOCKS5: another version of its login");
  EXPECT_EQ(outcome("", "\x05\x00\x04\x00\x00\x01"s),
            "the proxy does not speak SOCKS5: another version");
  EXPECT_EQ(outcome("", "\x05\x00\x05\x00\x00\x02"s),
            "the proxy does not speak SOCKS5: an address of another kind");
  Socks5Client client(host("a.test"), 443, "", "");
  EXPECT_FALSE(client.take("\x05"s).has_value());
}

}  // namespace
}  // namespace caisson::egress
