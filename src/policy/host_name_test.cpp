#include "policy/host_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "policy/ip_class.h"

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The canonical text, or what is wrong.
std::string canonical(std::string_view text) {
  const auto host = canonical_host(text);
  if (!host) return host.error().message();
  EXPECT_EQ(canonical_host(host->text()).value(), *host) << text;  // once is enough
  return host->text();
}

bool refused(std::string_view text) {
  const auto host = canonical_host(text);
  if (host.has_value()) return false;
  EXPECT_THAT(host.error().message(), HasSubstr("is no host: "));
  EXPECT_THAT(host.error().message(), HasSubstr("; allowed is a name (example.com), an IPv4"));
  return true;
}

TEST(CanonicalHost, KnowsNamesFromAddresses) {
  const Host name = canonical_host("allowed.test").value();
  EXPECT_EQ(name.kind, Host::Kind::kName);
  EXPECT_EQ(name.name, "allowed.test");
  EXPECT_FALSE(name.is_address());
  const Host four = canonical_host("192.0.2.1").value();
  EXPECT_TRUE(four.is_address());
  EXPECT_EQ(four.name, "192.0.2.1");
  EXPECT_EQ(four.address, IpAddress::v4({192, 0, 2, 1}));
  const Host six = canonical_host("[2001:DB8::1]").value();
  EXPECT_TRUE(six.is_address());
  EXPECT_EQ(six.name, "2001:db8::1");
  EXPECT_EQ(six.text(), "[2001:db8::1]");
  EXPECT_EQ(six.address, IpAddress::parse("2001:db8::1"));
}

TEST(CanonicalHost, RefusesControlsAndWhatPartsAUrl) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"evil.test\0.allowed.test"sv,
                                      "\0"sv,
                                      "allowed.test\0"sv,
                                      "evil.test%00.allowed.test"sv,
                                      "allowed.test%2e"sv,
                                      "evil.test .allowed.test"sv,
                                      " allowed.test"sv,
                                      "allowed.test "sv,
                                      "evil.test\t.allowed.test"sv,
                                      "evil.test\r.allowed.test"sv,
                                      "evil.test\n.allowed.test"sv,
                                      "evil.test\r\nHost: allowed.test"sv,
                                      "evil.test\x7f.allowed.test"sv,
                                      "evil.test\x01.allowed.test"sv,
                                      "evil.test\\.allowed.test"sv,
                                      "user@allowed.test"sv,
                                      "allowed.test@evil.test"sv,
                                      "user:password@allowed.test"sv,
                                      "evil.test#allowed.test"sv,
                                      "evil.test?allowed.test"sv,
                                      "evil.test/allowed.test"sv,
                                      "http://example.com"sv}) {
    EXPECT_TRUE(refused(text)) << text;
    EXPECT_THAT(canonical(text), HasSubstr("it holds \"")) << text;
  }
  EXPECT_EQ(canonical("a\tb"),
            R"("a\x09b" is no host: it holds "\x09"; allowed is a name (example.com), an IPv4 )"
            "address (192.0.2.1) or an IPv6 address in brackets ([2001:db8::1])");
}

TEST(CanonicalHost, RefusesColonsOutsideOfBrackets) {
  for (const std::string_view text : {"evil.test:443.allowed.test", "allowed.test:443", ":", "a:b"})
    EXPECT_THAT(canonical(text), HasSubstr("it holds a colon")) << text;
  for (const std::string_view text : {"::1", "2001:db8::1", "::ffff:127.0.0.1"})
    EXPECT_THAT(canonical(text), HasSubstr("an IPv6 address stands in brackets")) << text;
}

TEST(CanonicalHost, OtherNamesAreOtherNames) {
  const Host allowed = canonical_host("allowed.test").value();
  for (const std::string_view text :
       {"notallowed.test", "allowed.test.evil.test", "xallowed.test", "allowed-test",
        "allowed_.test", "allowed.tes", "\xd0\xb0llowed.test" /* a Cyrillic a */}) {
    const auto other = canonical_host(text);
    ASSERT_TRUE(other.has_value()) << text;
    EXPECT_NE(*other, allowed) << text;
  }
}

TEST(CanonicalHost, FoldsCaseAndOneDotAtTheEnd) {
  for (const std::string_view text :
       {"ALLOWED.TEST", "Allowed.Test", "allowed.test.", "ALLOWED.TEST."})
    EXPECT_EQ(canonical(text), "allowed.test") << text;
  EXPECT_EQ(canonical("localhost."), "localhost");
  EXPECT_EQ(canonical("metadata.google.internal."), "metadata.google.internal");
  for (const std::string_view text :
       {"allowed.test..", ".allowed.test", "a..allowed.test", ".", "..", "allowed..test"})
    EXPECT_THAT(canonical(text), HasSubstr("a label of it is empty")) << text;
  EXPECT_THAT(canonical(""), StartsWith("\"\" is no host: it is empty; "));
}

TEST(CanonicalHost, BoundsLabelsAndNames) {
  const std::string label(63, 'a');
  EXPECT_EQ(canonical(label + ".test"), label + ".test");
  EXPECT_THAT(canonical(label + "a.test"), HasSubstr("longer than 63"));
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'b');
  ASSERT_EQ(longest.size(), 253u);
  EXPECT_EQ(canonical(longest), longest);
  EXPECT_EQ(canonical(longest + "."), longest);
  EXPECT_THAT(canonical(longest + "b"), HasSubstr("longer than 253"));
  EXPECT_THAT(canonical(std::string(2000, 'a')), HasSubstr("longer than 253"));
  // Of a name in UTF-8 the A-labels count: each of these letters takes more than one of a label.
  std::string wide;
  for (int i = 0; i < 60; ++i) wide += "\xc3\xbc";
  EXPECT_TRUE(refused(wide + ".test"));
}

TEST(CanonicalHost, TakesLettersDigitsDashesAndUnderscores) {
  for (const std::string_view text : {"a", "a-b.test", "_dmarc.allowed.test", "r3---sn-abc.test",
                                      "-a-.test", "1.test", "0x1.test", "3com.test", "a.b.c.d.e.f"})
    EXPECT_EQ(canonical(text), text);
  for (const std::string_view text :
       {"a,b.test", "a*b.test", "*.test", "a!b", "(a)", "a=b", "a+b", "a&b", "a;b", "a|b", "~a",
        "\"a\"", "'a'", "{a}", "<a>", "a]b", "a`b", "a^b", "a$b"})
    EXPECT_TRUE(refused(text)) << text;
}

TEST(CanonicalHost, NamesInUtf8BecomeALabels) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"b\xc3\xbc"
       "cher.test",
       "xn--bcher-kva.test"},
      {"B\xc3\x9c"
       "CHER.TEST",
       "xn--bcher-kva.test"},
      {"bu\xcc\x88"
       "cher.test",
       "xn--bcher-kva.test"},  // u and a combining diaeresis
      {"xn--bcher-kva.test", "xn--bcher-kva.test"},
      {"XN--BCHER-KVA.test", "xn--bcher-kva.test"},
      {"fa\xc3\x9f.test", "xn--fa-hia.test"},  // sharp s, by the transitional rules "fass"
      {"\xd0\xb0llowed.test", "xn--llowed-2nf.test"},
      {"allowed\xe3\x80\x82test", "allowed.test"},  // an ideographic full stop
      {"allowed\xef\xbc\x8etest", "allowed.test"},  // a fullwidth one
      {"\xef\xbd\x81llowed.test", "allowed.test"},  // a fullwidth a
      {"al\xc2\xadlowed.test", "allowed.test"},     // a soft hyphen is nothing
      {"\xe5\x85\xac\xe5\x8f\xb8.cn", "xn--55qx5d.cn"},
      {"_a.b\xc3\xbc"
       "cher.test.",
       "_a.xn--bcher-kva.test"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
}

TEST(CanonicalHost, RefusesWhatIdnaDoes) {
  for (const std::string_view text : {"xn--a.test",     // decodes to a control
                                      "xn--abc-.test",  // hides ASCII
                                      "xn--.test",
                                      "xn--0.test",  // no Punycode
                                      "xn--B\xc3\xbc"
                                      "cher.test",                     // not ASCII
                                      "al\xe2\x80\x8dlowed.test",      // a zero width joiner
                                      "al\xe2\x80\x8clowed.test",      // a zero width non-joiner
                                      "al\xe2\x80\x8blowed.test\xff",  // no UTF-8
                                      "\xc0\xaellowed.test",           // a dot in two bytes
                                      "a\xed\xa0\x80.test",            // a surrogate
                                      "a\xe2\x84\x80"
                                      "b.test",  // "a/c" in one character
                                      "a\xef\xbc\x8f"
                                      "b.test",  // a fullwidth slash
                                      "a\xef\xbc\xa0"
                                      "b.test",  // a fullwidth at
                                      "a\xef\xbc\x9a"
                                      "443.test",  // a fullwidth colon
                                      "a\xef\xbc\x85"
                                      "b.test",          // a fullwidth percent
                                      "a\xc2\x80.test",  // a control beyond ASCII
                                      "a\xc2\xa0"
                                      "b.test",  // a no-break space
                                      "\xe3\x80\x82"
                                      "allowed.test",  // an empty label, behind the mapping
                                      "allowed.test\xe3\x80\x82\xe3\x80\x82",
                                      "\xcc\x88"
                                      "a.test",  // begins with a combining mark
                                      "\xd7\x90"
                                      "1a.test",                // right to left and not
                                      "\xf4\x8f\xbf\xbf.test",  // nobody's code point
                                      "xn--x-ecb.\xc2\xad.test"})
    EXPECT_TRUE(refused(text)) << text;
  EXPECT_THAT(canonical("xn--a.test"), HasSubstr("IDNA has: "));
  EXPECT_THAT(canonical("a\xef\xbc\x8f"
                        "b.test"),
              HasSubstr("IDNA makes \"a/b.test\" of it"));
  EXPECT_THAT(canonical("a\xff"), HasSubstr("it is not UTF-8"));
}

TEST(CanonicalHost, RefusesEverySpellingOfAnIpv4AddressButOne) {
  for (const std::string_view text :
       {"2130706433",
        "0x7f000001",
        "0X7F000001",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "169.254.169.254.",
        "127.0.0.01",
        "127.0.0.256",
        "1.2.3.4.5",
        "127.0.0.0x1",
        "0x7f.1",
        "0x.0x.0x.0x",
        "allowed.0x",
        "allowed.test.1",
        "allowed.test.0x7f",
        "0",
        "00",
        "4294967296",
        "256.256.256.256",
        "127..1",
        "127.0.0.",
        "\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.0.0.1",  // in circles
        "\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1",  // fullwidth digits
        "127\xe3\x80\x82"
        "0\xe3\x80\x82"
        "0\xe3\x80\x82"
        "1",                 // ideographic full stops
        "127.0.0.\xc2\xb9",  // a superscript
        "\xef\xbc\x90x7f000001",
        "127.0.0.1\xc2\xad"})
    EXPECT_TRUE(refused(text)) << text;
  EXPECT_THAT(canonical("127.1"), HasSubstr("it is not four decimal numbers from 0 to 255"));
  EXPECT_THAT(canonical("127.0.0.1."), HasSubstr("an address has no dot at its end"));
  EXPECT_EQ(canonical("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(canonical("0.0.0.0"), "0.0.0.0");
}

TEST(CanonicalHost, TakesIpv6InBracketsAlone) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"[::1]", "[::1]"},
      {"[::]", "[::]"},
      {"[2001:DB8:0:0::1]", "[2001:db8::1]"},
      {"[::ffff:127.0.0.1]", "127.0.0.1"},
      {"[::ffff:7f00:1]", "127.0.0.1"},
      {"[::127.0.0.1]", "[::7f00:1]"},
      {"[64:ff9b::169.254.169.254]", "[64:ff9b::a9fe:a9fe]"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical(text), expected) << text;
  for (const std::string_view text : {"[",
                                      "]",
                                      "[]",
                                      "[::1",
                                      "::1]",
                                      "[::1]]",
                                      "[[::1]]",
                                      "[::1].",
                                      "[::1].test",
                                      "a[::1]",
                                      "[::1%eth0]",
                                      "[fe80::1%25eth0]",
                                      "[fe80::1%1]",
                                      "[127.0.0.1]",
                                      "[allowed.test]",
                                      "[v1.a]",
                                      "[::1]x",
                                      "[ ::1]",
                                      "[:::]",
                                      "[1:2:3:4:5:6:7]"})
    EXPECT_TRUE(refused(text)) << text;
  EXPECT_THAT(canonical("[::1"), HasSubstr("its bracket is not closed"));
  EXPECT_THAT(canonical("[127.0.0.1]"), HasSubstr("an IPv6 address without a zone"));
}

// Whatever spelling of an address is taken for a host is judged as what it is.
TEST(CanonicalHost, AddressesKeepTheirClass) {
  const std::pair<std::string_view, IpClass> cases[] = {
      {"[::ffff:127.0.0.1]", IpClass::kLoopback},
      {"[::127.0.0.1]", IpClass::kTranslated},
      {"[64:ff9b::a9fe:a9fe]", IpClass::kMetadata},
      {"[64:ff9b:1::a00:1]", IpClass::kTranslated},
      {"[2002:7f00:1::]", IpClass::kTranslated},
      {"[2001:0:1::1]", IpClass::kTranslated},
      {"[fec0::1]", IpClass::kPrivate},
      {"[fe80::1]", IpClass::kLinkLocal},
      {"[::]", IpClass::kUnspecified},
      {"0.0.0.0", IpClass::kUnspecified},
      {"0.1.2.3", IpClass::kReserved},
      {"240.0.0.1", IpClass::kReserved},
      {"255.255.255.255", IpClass::kReserved},
      {"224.0.0.1", IpClass::kMulticast},
      {"100.64.0.1", IpClass::kShared},
      {"198.18.0.1", IpClass::kBenchmark},
  };
  for (const auto& [text, expected] : cases) {
    const auto host = canonical_host(text);
    ASSERT_TRUE(host.has_value()) << text;
    ASSERT_TRUE(host->is_address()) << text;
    EXPECT_EQ(classify(host->address), expected) << text;
  }
}

TEST(CanonicalHost, OnceIsEnoughForWhateverIsTaken) {
  std::random_device seed;
  const unsigned chosen = seed();
  std::mt19937 random(chosen);
  const std::string_view pieces[] = {"a",
                                     "Z",
                                     "9",
                                     "-",
                                     "_",
                                     ".",
                                     "xn--",
                                     "XN--",
                                     "bcher-kva",
                                     "\xc3\xbc",
                                     "\xc3\x9f",
                                     "\xe3\x80\x82",
                                     "\xef\xbd\x81",
                                     "\xef\xbc\x91",
                                     "\xcc\x88",
                                     "\xe2\x80\x8d",
                                     "\xd7\x90",
                                     "\xe2\x91\xa0",
                                     "\xc2\xad",
                                     "[",
                                     "]",
                                     ":",
                                     "::",
                                     "127",
                                     "0x",
                                     "test",
                                     "\xe1\xba\x9e",
                                     "\xff"};
  int taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text;
    for (auto left = random() % 7 + 1; left > 0; --left)
      text += pieces[random() % std::size(pieces)];
    const auto host = canonical_host(text);
    if (!host) continue;
    ++taken;
    EXPECT_EQ(canonical_host(host->text()).value(), *host) << text << " seed " << chosen;
    for (const char c : host->name)
      EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  std::string_view("-_.:").find(c) != std::string_view::npos)
          << text << " seed " << chosen;
  }
  EXPECT_GT(taken, 200) << "seed " << chosen;
}

TEST(CanonicalHost, ANameIsBelowThoseItEndsIn) {
  const auto below = [](std::string_view host, std::string_view base) {
    return is_below(canonical_host(host).value(), canonical_host(base).value());
  };
  EXPECT_TRUE(below("a.allowed.test", "allowed.test"));
  EXPECT_TRUE(below("a.b.allowed.test", "allowed.test"));
  for (const std::string_view host :
       {"allowed.test", "xallowed.test", "notallowed.test", "test", "allowed.test.a.test"})
    EXPECT_FALSE(below(host, "allowed.test")) << host;
  EXPECT_FALSE(below("192.0.2.1", "192.0.2.1"));
  EXPECT_FALSE(below("[64::2:1]", "[::2:1]"));
}

TEST(CanonicalAuthority, ReadsHostsWithAndWithoutPort) {
  EXPECT_EQ(canonical_authority("Allowed.Test:443").value(),
            (Authority{canonical_host("allowed.test").value(), 443}));
  EXPECT_EQ(canonical_authority("allowed.test").value().port, std::nullopt);
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"allowed.test.:80", "allowed.test:80"},        {"192.0.2.1:1", "192.0.2.1:1"},
      {"[2001:DB8::1]:65535", "[2001:db8::1]:65535"}, {"[2001:db8::1]", "[2001:db8::1]"},
      {"[::ffff:192.0.2.1]:80", "192.0.2.1:80"},
  };
  for (const auto& [text, expected] : cases) {
    const auto authority = canonical_authority(text);
    ASSERT_TRUE(authority.has_value()) << text;
    EXPECT_EQ(authority->text(), expected);
    EXPECT_EQ(canonical_authority(authority->text()).value(), *authority);
  }
}

TEST(CanonicalAuthority, RefusesEverythingElse) {
  for (const std::string_view text : {"",
                                      ":",
                                      ":443",
                                      "allowed.test:",
                                      "allowed.test:443:80",
                                      "allowed.test:+443",
                                      "allowed.test:0443",
                                      "allowed.test:65536",
                                      "allowed.test:0",
                                      "allowed.test:-1",
                                      "allowed.test: 443",
                                      "allowed.test:443 ",
                                      "allowed.test:4a",
                                      "allowed.test:0x1bb",
                                      "allowed.test:https",
                                      "evil.test:443.allowed.test",
                                      "user@allowed.test:443",
                                      "user:443@allowed.test",
                                      "allowed.test:443/",
                                      "allowed.test:443#",
                                      "::1:80",
                                      "[::1",
                                      "[::1:80",
                                      "[::1]80",
                                      "[::1]:",
                                      "[::1]:0",
                                      "[::1]::80",
                                      "[::1]]:80",
                                      "127.1:80",
                                      "2130706433:80",
                                      "allowed.test:\xef\xbc\x94\xef\xbc\x94\xef\xbc\x93",
                                      "allowed.test\xef\xbc\x9a"
                                      "443",
                                      "allowed.test:99999999999999999999"}) {
    const auto authority = canonical_authority(text);
    ASSERT_FALSE(authority.has_value()) << text;
    EXPECT_THAT(authority.error().message(), HasSubstr("; allowed is HOST[:PORT] with a name"));
  }
  EXPECT_THAT(canonical_authority("allowed.test:+443").error().message(),
              StartsWith("\"allowed.test:+443\" is no host: \"+443\" is no port; allowed is"));
}

TEST(Port, IsADecimalNumber) {
  EXPECT_EQ(parse_port("1").value(), 1);
  EXPECT_EQ(parse_port("443").value(), 443);
  EXPECT_EQ(parse_port("65535").value(), 65535);
  for (const std::string_view text : {"", "0", "00", "0443", "+443", "-1", " 443", "443 ", "65536",
                                      "4294967739", "1e3", "0x50", "80.0", "https"}) {
    const auto port = parse_port(text);
    ASSERT_FALSE(port.has_value()) << text;
    EXPECT_THAT(port.error().message(),
                HasSubstr("is no port; allowed is a number from 1 to 65535"));
  }
}

}  // namespace
}  // namespace caisson::policy
