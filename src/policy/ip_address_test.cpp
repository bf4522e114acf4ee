#include "policy/ip_address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;

std::string canonical(std::string_view text) {
  const auto address = IpAddress::parse(text);
  return address ? address->to_string() : "(none)";
}

TEST(IpAddress, HasOneSpelling) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"0.0.0.0", "0.0.0.0"},
      {"192.0.2.1", "192.0.2.1"},
      {"255.255.255.255", "255.255.255.255"},
      {"::", "::"},
      {"::1", "::1"},
      {"1::", "1::"},
      {"2001:DB8:0:0::1", "2001:db8::1"},
      {"2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"},
      {"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},  // one zero is no run
      {"2001:db8::1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},   // though it may be written as one
      {"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},           // the longest run
      {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},     // the first of equal ones
      {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"},
      {"1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"},
      {"0:0:3:4:5:6:7:8", "::3:4:5:6:7:8"},
      {"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
      {"64:ff9b::192.0.2.33", "64:ff9b::c000:221"},
      {"1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"},
      {"::1.2.3.4", "::102:304"},
      {"fe80::A", "fe80::a"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(canonical(text), expected) << text;
    EXPECT_EQ(canonical(expected), expected) << text;
  }
}

TEST(IpAddress, AMappedOneIsItsIpv4One) {
  for (const std::string_view text :
       {"::ffff:127.0.0.1", "::FFFF:7f00:1", "0:0:0:0:0:ffff:127.0.0.1", "::ffff:7f00:0001"}) {
    const auto address = IpAddress::parse(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_FALSE(address->is_v6());
    EXPECT_EQ(*address, IpAddress::v4({127, 0, 0, 1}));
    EXPECT_EQ(address->to_string(), "127.0.0.1");
  }
  EXPECT_EQ(IpAddress::v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3}),
            IpAddress::v4({10, 1, 2, 3}));
  EXPECT_TRUE(IpAddress::parse("::fffe:127.0.0.1")->is_v6());
}

TEST(IpAddress, RefusesEveryOtherSpelling) {
  for (const std::string_view text : {"",
                                      ".",
                                      "1",
                                      "1.2.3",
                                      "1.2.3.",
                                      ".1.2.3",
                                      "1.2.3.4.",
                                      "1.2.3.4.5",
                                      "1..3.4",
                                      "256.0.0.1",
                                      "1.2.3.999",
                                      "01.2.3.4",
                                      "1.2.3.00",
                                      "0177.0.0.1",
                                      "0x7f.0.0.1",
                                      "0x7f000001",
                                      "2130706433",
                                      "127.1",
                                      "1.2.3.+4",
                                      "1.2.3.-4",
                                      " 1.2.3.4",
                                      "1.2.3.4 ",
                                      "1.2.3.4/32",
                                      "1,2,3,4",
                                      "a.b.c.d",
                                      ":",
                                      ":::",
                                      "::::",
                                      "1::2::3",
                                      "1:2:3:4:5:6:7",
                                      "1:2:3:4:5:6:7:",
                                      ":2:3:4:5:6:7:8",
                                      "1:2:3:4:5:6:7:8:9",
                                      "1:2:3:4:5:6:7::8",
                                      "1:2:3:4:5:6:7:8::",
                                      "::1:2:3:4:5:6:7:8",
                                      "12345::",
                                      "00001::",
                                      "g::",
                                      "-1::",
                                      "+1::",
                                      "0x1::",
                                      "::1%eth0",
                                      "fe80::1%25eth0",
                                      "[::1]",
                                      "::1/128",
                                      "::1.2.3",
                                      "::1.2.3.4.5",
                                      "::1.2.3.4:5",
                                      "1.2.3.4::",
                                      "::01.2.3.4",
                                      "::256.1.1.1",
                                      "1:2:3:4:5:6:7:1.2.3.4",
                                      "1:2:3:4:5:1.2.3.4",
                                      ":1.2.3.4",
                                      "::1 ",
                                      "::\n"}) {
    EXPECT_EQ(canonical(text), "(none)") << text;
  }
  EXPECT_EQ(canonical(std::string_view("1.2.3.4\0", 8)), "(none)");
  EXPECT_EQ(canonical(std::string_view("::1\0", 4)), "(none)");
}

// What fails is printed, so that it can be had again.
class RandomAddress : public ::testing::Test {
 protected:
  std::array<std::uint8_t, 16> random_bytes() {
    std::array<std::uint8_t, 16> bytes{};
    // Mostly zero and ones, so that runs and mapped addresses come up.
    for (std::uint8_t& byte : bytes) {
      const unsigned kind = random_() % 4;
      byte = static_cast<std::uint8_t>(kind == 0 ? random_() : kind == 1 ? 0xff : 0);
    }
    if (random_() % 4 == 0) {
      std::fill_n(bytes.begin(), 10, std::uint8_t{0});
      bytes[10] = bytes[11] = 0xff;
    }
    return bytes;
  }
  std::mt19937 random_{std::random_device{}()};
};

TEST_F(RandomAddress, ReadsWhatTheCLibraryWritesAndTheOtherWayRound) {
  for (int i = 0; i < 10'000; ++i) {
    const auto bytes = random_bytes();
    const IpAddress address = IpAddress::v6(bytes);
    char theirs[INET6_ADDRSTRLEN];
    ASSERT_NE(::inet_ntop(AF_INET6, bytes.data(), theirs, sizeof theirs), nullptr);
    EXPECT_EQ(IpAddress::parse(theirs), address) << theirs;
    const std::string ours = address.to_string();
    std::array<std::uint8_t, 16> back{};
    ASSERT_EQ(::inet_pton(address.is_v6() ? AF_INET6 : AF_INET, ours.c_str(), back.data()), 1)
        << ours;
    EXPECT_EQ(back, address.bytes()) << ours;
    EXPECT_EQ(IpAddress::parse(ours), address) << ours;
  }
}

std::string block(std::string_view text) {
  const auto parsed = Cidr::parse(text);
  return parsed ? parsed->to_string() : parsed.error().message();
}

TEST(Cidr, ReadsBlocksAndAddresses) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"10.0.0.0/8", "10.0.0.0/8"},
      {"0.0.0.0/0", "0.0.0.0/0"},
      {"10.20.0.5/32", "10.20.0.5/32"},
      {"10.20.0.5", "10.20.0.5/32"},
      {"198.18.0.0/15", "198.18.0.0/15"},
      {"::/0", "::/0"},
      {"fd00:5A:d::/64", "fd00:5a:d::/64"},
      {"2001:db8::1", "2001:db8::1/128"},
      {"8000::/1", "8000::/1"},
      {"2001:db8::fffe/127", "2001:db8::fffe/127"},
      {"::ffff:10.0.0.0/104", "10.0.0.0/8"},
      {"::ffff:10.0.0.5", "10.0.0.5/32"},
      {"::ffff:0:0/96", "0.0.0.0/0"},
      {"::ffff:10.0.0.5/128", "10.0.0.5/32"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(block(text), expected) << text;
    EXPECT_EQ(block(expected), expected) << text;
  }
}

TEST(Cidr, NamesTheBlockThatWasMeant) {
  EXPECT_EQ(block("10.1.2.3/8"),
            "\"10.1.2.3/8\" is an address inside a block; the block is 10.0.0.0/8, the address "
            "alone 10.1.2.3");
  EXPECT_THAT(block("0.0.0.1/0"), HasSubstr("the block is 0.0.0.0/0"));
  EXPECT_THAT(block("198.19.0.0/15"), HasSubstr("the block is 198.18.0.0/15"));
  EXPECT_THAT(block("192.0.2.129/25"), HasSubstr("the block is 192.0.2.128/25"));
  EXPECT_THAT(block("2001:db8::1/64"), HasSubstr("the block is 2001:db8::/64"));
  EXPECT_THAT(block("::1/127"), HasSubstr("the block is ::/127"));
  EXPECT_THAT(block("::ffff:10.1.2.3/104"), HasSubstr("the block is 10.0.0.0/8"));
}

TEST(Cidr, RefusesWhatIsNoBlock) {
  for (const std::string_view text :
       {"", "/", "/8", "example.com", "10/8", "10.0.0/8", "010.0.0.0/8", "[::1]", "[::]/0",
        "fe80::%eth0/10", " 10.0.0.0/8"}) {
    EXPECT_THAT(block(text), HasSubstr("is no address and no block of addresses; allowed is"))
        << text;
  }
  for (const std::string_view text :
       {"10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/+8", "10.0.0.0/-1", "10.0.0.0/8/8",
        "10.0.0.0/ 8", "10.0.0.0/0x8", "10.0.0.0/255.0.0.0", "10.0.0.0/4294967304"})
    EXPECT_THAT(block(text), HasSubstr("no number from 0 to 32")) << text;
  for (const std::string_view text : {"::/129", "::/", "::/00", "2001:db8::/999"})
    EXPECT_THAT(block(text), HasSubstr("no number from 0 to 128")) << text;
  for (const std::string_view text : {"::ffff:10.0.0.0/8", "::ffff:0:0/95", "::ffff:0:0/129"})
    EXPECT_THAT(block(text), HasSubstr("no number from 96 to 128")) << text;
}

TEST(Cidr, HoldsAddressesOfItsFamilyAlone) {
  const auto holds = [](std::string_view text, std::string_view address) {
    return Cidr::parse(text).value().contains(IpAddress::parse(address).value());
  };
  EXPECT_TRUE(holds("10.0.0.0/8", "10.255.255.255"));
  EXPECT_TRUE(holds("10.0.0.0/8", "10.0.0.0"));
  EXPECT_FALSE(holds("10.0.0.0/8", "11.0.0.0"));
  EXPECT_FALSE(holds("10.0.0.0/8", "9.255.255.255"));
  EXPECT_TRUE(holds("172.16.0.0/12", "172.31.255.255"));
  EXPECT_FALSE(holds("172.16.0.0/12", "172.32.0.0"));
  EXPECT_TRUE(holds("10.20.0.5", "10.20.0.5"));
  EXPECT_FALSE(holds("10.20.0.5", "10.20.0.4"));
  EXPECT_TRUE(holds("0.0.0.0/0", "255.255.255.255"));
  EXPECT_TRUE(holds("::/0", "ffff::"));
  EXPECT_TRUE(holds("fe80::/10", "febf::1"));
  EXPECT_FALSE(holds("fe80::/10", "fec0::1"));
  // A mapped address is in the IPv4 block, and in no IPv6 one.
  EXPECT_TRUE(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
  EXPECT_TRUE(holds("::ffff:10.0.0.0/104", "10.1.2.3"));
  EXPECT_FALSE(holds("::/0", "::ffff:10.1.2.3"));
  EXPECT_FALSE(holds("::/0", "10.1.2.3"));
  EXPECT_FALSE(holds("0.0.0.0/0", "::a01:203"));
}

TEST(Cidr, KnowsWhetherItIsOneAddress) {
  EXPECT_TRUE(Cidr::parse("10.0.0.1")->is_single());
  EXPECT_TRUE(Cidr::parse("10.0.0.1/32")->is_single());
  EXPECT_TRUE(Cidr::parse("2001:db8::1")->is_single());
  EXPECT_TRUE(Cidr::parse("::ffff:10.0.0.1/128")->is_single());
  EXPECT_FALSE(Cidr::parse("10.0.0.0/31")->is_single());
  EXPECT_FALSE(Cidr::parse("2001:db8::/32")->is_single());
}

TEST_F(RandomAddress, ABlockHoldsWhatSharesItsLeadingBits) {
  for (int i = 0; i < 10'000; ++i) {
    const IpAddress one = IpAddress::v6(random_bytes());
    const auto alone = Cidr::parse(one.to_string());
    ASSERT_TRUE(alone.has_value());
    const IpAddress other = IpAddress::v6(random_bytes());
    unsigned shared = 0;
    const unsigned all = alone->bits();
    const auto bit = [](const IpAddress& address, unsigned at) {
      return address.bytes()[at / 8] >> (7 - at % 8) & 1;
    };
    while (shared < all && bit(one, shared) == bit(other, shared)) ++shared;
    // The block is read off the complaint, as a person would.
    const unsigned bits = static_cast<unsigned>(random_() % (all + 1));
    const std::string text = one.to_string() + "/" + std::to_string(bits);
    auto parsed = Cidr::parse(text);
    if (!parsed) {
      const std::string& message = parsed.error().message();
      constexpr std::string_view kBefore = "the block is ";
      const std::size_t begin = message.find(kBefore);
      ASSERT_NE(begin, std::string::npos) << message;
      const std::size_t end = message.find(',', begin);
      parsed = Cidr::parse(
          std::string_view(message).substr(begin + kBefore.size(), end - begin - kBefore.size()));
      ASSERT_TRUE(parsed.has_value()) << message;
    }
    EXPECT_EQ(parsed->bits(), bits);
    EXPECT_TRUE(parsed->contains(one)) << text;
    EXPECT_EQ(parsed->contains(other), one.is_v6() == other.is_v6() && shared >= bits)
        << text << " " << other.to_string();
  }
}

}  // namespace
}  // namespace caisson::policy
