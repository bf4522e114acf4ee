#include "policy/ip_class.h"

#include <gtest/gtest.h>

#include <set>

namespace caisson::policy {
namespace {

using enum IpClass;

IpClass of(std::string_view text) {
  const auto address = IpAddress::parse(text);
  EXPECT_TRUE(address.has_value()) << text;
  return classify(address.value_or(IpAddress()));
}

struct Case {
  std::string_view text;
  IpClass ip_class;
};

// First and last address of each block, and the neighbours on both sides.
TEST(IpClass, OfIpv4) {
  for (const auto& [text, expected] : std::initializer_list<Case>{{"0.0.0.0", kUnspecified},
                                                                  {"0.0.0.1", kReserved},
                                                                  {"0.1.2.3", kReserved},
                                                                  {"0.255.255.255", kReserved},
                                                                  {"1.0.0.0", kGlobal},
                                                                  {"1.1.1.1", kGlobal},
                                                                  {"8.8.8.8", kGlobal},
                                                                  {"9.255.255.255", kGlobal},
                                                                  {"10.0.0.0", kPrivate},
                                                                  {"10.255.255.255", kPrivate},
                                                                  {"11.0.0.0", kGlobal},
                                                                  {"100.63.255.255", kGlobal},
                                                                  {"100.64.0.1", kShared},
                                                                  {"100.127.255.255", kShared},
                                                                  {"100.128.0.0", kGlobal},
                                                                  {"100.100.100.199", kShared},
                                                                  {"100.100.100.200", kMetadata},
                                                                  {"126.255.255.255", kGlobal},
                                                                  {"127.0.0.1", kLoopback},
                                                                  {"127.255.255.255", kLoopback},
                                                                  {"128.0.0.0", kGlobal},
                                                                  {"168.63.129.15", kGlobal},
                                                                  {"168.63.129.16", kMetadata},
                                                                  {"168.63.129.17", kGlobal},
                                                                  {"169.253.255.255", kGlobal},
                                                                  {"169.254.0.0", kLinkLocal},
                                                                  {"169.254.0.23", kMetadata},
                                                                  {"169.254.42.42", kMetadata},
                                                                  {"169.254.168.255", kLinkLocal},
                                                                  {"169.254.169.254", kMetadata},
                                                                  {"169.254.169.253", kMetadata},
                                                                  {"169.254.170.2", kMetadata},
                                                                  {"169.254.170.23", kMetadata},
                                                                  {"169.254.171.0", kLinkLocal},
                                                                  {"169.254.255.255", kLinkLocal},
                                                                  {"169.255.0.0", kGlobal},
                                                                  {"172.15.255.255", kGlobal},
                                                                  {"172.16.0.1", kPrivate},
                                                                  {"172.31.255.255", kPrivate},
                                                                  {"172.32.0.0", kGlobal},
                                                                  {"192.0.0.1", kReserved},
                                                                  {"192.0.0.192", kMetadata},
                                                                  {"192.0.0.255", kReserved},
                                                                  {"192.0.1.0", kGlobal},
                                                                  {"192.0.2.1", kDocumentation},
                                                                  {"192.0.3.0", kGlobal},
                                                                  {"192.88.98.255", kGlobal},
                                                                  {"192.88.99.1", kTranslated},
                                                                  {"192.88.100.0", kGlobal},
                                                                  {"192.167.255.255", kGlobal},
                                                                  {"192.168.1.1", kPrivate},
                                                                  {"192.169.0.0", kGlobal},
                                                                  {"198.17.255.255", kGlobal},
                                                                  {"198.18.0.1", kBenchmark},
                                                                  {"198.19.255.255", kBenchmark},
                                                                  {"198.20.0.0", kGlobal},
                                                                  {"198.51.99.255", kGlobal},
                                                                  {"198.51.100.1", kDocumentation},
                                                                  {"198.51.101.0", kGlobal},
                                                                  {"203.0.112.255", kGlobal},
                                                                  {"203.0.113.1", kDocumentation},
                                                                  {"203.0.114.0", kGlobal},
                                                                  {"223.255.255.255", kGlobal},
                                                                  {"224.0.0.1", kMulticast},
                                                                  {"239.255.255.255", kMulticast},
                                                                  {"240.0.0.1", kReserved},
                                                                  {"255.255.255.255", kReserved}})
    EXPECT_EQ(of(text), expected) << text << " " << to_string(of(text));
}

TEST(IpClass, OfIpv6) {
  for (const auto& [text, expected] :
       std::initializer_list<Case>{{"::", kUnspecified},
                                   {"::1", kLoopback},
                                   {"::2", kTranslated},
                                   {"100::1", kReserved},
                                   {"1fff:ffff::1", kReserved},
                                   {"2001:1::1", kReserved},
                                   {"2001:2::1", kBenchmark},
                                   {"2001:2:1::1", kReserved},
                                   {"2001:10::1", kReserved},
                                   {"2001:1ff:ffff::1", kReserved},
                                   {"2001:200::1", kGlobal},
                                   {"2001:db7:ffff::1", kGlobal},
                                   {"2001:db8::1", kDocumentation},
                                   {"2001:db9::1", kGlobal},
                                   {"2003::1", kGlobal},
                                   {"2606:4700::1111", kGlobal},
                                   {"2a00::1", kGlobal},
                                   {"3ffe:ffff::1", kGlobal},
                                   {"3fff::1", kDocumentation},
                                   {"3fff:fff::1", kDocumentation},
                                   {"3fff:1000::1", kGlobal},
                                   {"4000::1", kReserved},
                                   {"5f00::1", kReserved},
                                   {"fbff::1", kReserved},
                                   {"fc00::1", kPrivate},
                                   {"fd12::1", kPrivate},
                                   {"fd00:ec1:ffff::", kPrivate},
                                   {"fd00:ec2::254", kMetadata},
                                   {"fd00:ec2::23", kMetadata},
                                   {"fd00:ec3::", kPrivate},
                                   {"fd20:ce::254", kMetadata},
                                   {"fd20:ce::255", kPrivate},
                                   {"fdff:ffff::1", kPrivate},
                                   {"fe00::1", kReserved},
                                   {"fe80::1", kLinkLocal},
                                   {"fe80::a9fe:a9fe", kMetadata},
                                   {"febf:ffff::1", kLinkLocal},
                                   {"fec0::1", kPrivate},
                                   {"feff::1", kPrivate},
                                   {"ff02::1", kMulticast},
                                   {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", kMulticast}})
    EXPECT_EQ(of(text), expected) << text << " " << to_string(of(text));
}

TEST(IpClass, OfIpv4WithinIpv6) {
  for (const auto& [text, expected] :
       std::initializer_list<Case>{// Judged by what they hold.
                                   {"::ffff:127.0.0.1", kLoopback},
                                   {"::ffff:10.0.0.1", kPrivate},
                                   {"::ffff:169.254.169.254", kMetadata},
                                   {"::ffff:8.8.8.8", kGlobal},
                                   {"64:ff9b::a9fe:a9fe", kMetadata},
                                   {"64:ff9b::7f00:1", kLoopback},
                                   {"64:ff9b::10.0.0.1", kPrivate},
                                   {"64:ff9b::0.0.0.0", kUnspecified},
                                   {"64:ff9b::808:808", kGlobal},
                                   // Refused whatever they hold.
                                   {"64:ff9b:0:1::808:808", kReserved},
                                   {"64:ff9b:1::a00:1", kTranslated},
                                   {"64:ff9b:1::808:808", kTranslated},
                                   {"64:ff9b:1:ffff::808:808", kTranslated},
                                   {"64:ff9b:2::1", kReserved},
                                   {"2002:7f00:1::", kTranslated},
                                   {"2002:808:808::1", kTranslated},
                                   {"2001:0:4136:e378:8000:63bf:3fff:fdd2", kTranslated},
                                   {"2001::1", kTranslated},
                                   {"::127.0.0.1", kTranslated},
                                   {"::8.8.8.8", kTranslated},
                                   {"::ffff:0:8.8.8.8", kTranslated},
                                   {"::fffe:8.8.8.8", kReserved}})
    EXPECT_EQ(of(text), expected) << text << " " << to_string(of(text));
}

TEST(IpClass, EachHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(kTranslated); ++i)
    names.insert(to_string(static_cast<IpClass>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kTranslated) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace caisson::policy
