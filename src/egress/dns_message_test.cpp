#include "egress/dns_message.h"

#include <ares.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>

#include "egress/dns_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;              // NOLINT: pieces of messages
using namespace std::string_literals;  // NOLINT: NUL bytes
using policy::IpAddress;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DnsQuery good(std::string_view bytes) {
  ParsedDnsQuery parsed = parse_dns_query(bytes);
  EXPECT_TRUE(parsed.query.has_value()) << parsed.why;
  EXPECT_EQ(parsed.answer, "");
  return parsed.query.value_or(DnsQuery{});
}

// What is answered: a header alone, with this code.
void expect_refused(std::string_view bytes, DnsRcode rcode, const char* why) {
  const ParsedDnsQuery parsed = parse_dns_query(bytes);
  EXPECT_FALSE(parsed.query.has_value()) << why;
  EXPECT_THAT(parsed.why, HasSubstr(why));
  ASSERT_EQ(parsed.answer.size(), 12u) << why;
  const ReadAnswer answer = read_answer(parsed.answer);
  EXPECT_EQ(answer.id, 0x1234u);
  EXPECT_EQ(answer.rcode(), static_cast<unsigned>(rcode)) << why;
  EXPECT_NE(answer.flags & 0x8000u, 0u);
}

void expect_malformed(std::string_view bytes, const char* why) {
  expect_refused(bytes, DnsRcode::kFormErr, why);
}

void expect_dropped(std::string_view bytes) {
  const ParsedDnsQuery parsed = parse_dns_query(bytes);
  EXPECT_FALSE(parsed.query.has_value());
  EXPECT_EQ(parsed.answer, "");
  EXPECT_FALSE(parsed.why.empty());
}

TEST(DnsQuery, IsRead) {
  const DnsQuery read = good(query("www.Example.com", 28));
  EXPECT_EQ(read.id, 0x1234);
  EXPECT_TRUE(read.recursion_desired);
  EXPECT_EQ(read.name, "\3www\7Example\3com\0"s);
  EXPECT_EQ(read.type, DnsType::kAaaa);
  EXPECT_FALSE(read.edns);
  EXPECT_EQ(read.udp_size, 512u);
  EXPECT_FALSE(good(QueryParts{.flags = 0}.bytes()).recursion_desired);
  // The root, and a type that nobody knows.
  EXPECT_EQ(good(query("", 65'280)).name, "\0"s);
  EXPECT_EQ(good(query("", 65'280)).type, DnsType{65'280});
}

TEST(DnsQuery, MayHaveAnOptWhoseOptionsAreIgnored) {
  const DnsQuery read = good(edns_query("a.example.com", 1, 4096, std::string(300, 'o')));
  EXPECT_TRUE(read.edns);
  EXPECT_EQ(read.udp_size, 4096u);
  // RFC 6891: less than 512 counts as 512.
  EXPECT_EQ(good(edns_query("a.example.com", 1, 100)).udp_size, 512u);
}

TEST(DnsQuery, IgnoresBitsThatMeanNothingInAQuery) {
  // Authoritative, recursion available, authentic data, checking disabled, a code.
  EXPECT_EQ(good(QueryParts{.flags = 0x05b3}.bytes()).type, DnsType::kA);
}

TEST(DnsQuery, HasOneQuestion) {
  expect_malformed(QueryParts{.questions = 0}.bytes(), "one question");
  expect_malformed(QueryParts{.questions = 2, .rest = wire("b") + two(1) + two(1)}.bytes(),
                   "one question");
  expect_malformed(QueryParts{.questions = 65'535}.bytes(), "one question");
}

TEST(DnsQuery, HasNoRecords) {
  const std::string record = wire("a") + two(1) + two(1) + two(0) + two(9) + two(4) + "abcd";
  expect_malformed(QueryParts{.answers = 1, .rest = record}.bytes(), "records");
  expect_malformed(QueryParts{.authorities = 1, .rest = record}.bytes(), "records");
  expect_malformed(QueryParts{.additional = 1, .rest = record}.bytes(), "another than OPT");
  // TSIG, an OPT of another owner than the root, two OPTs.
  const std::string tsig = "\0"s + two(250) + two(255) + std::string(4, '\0') + two(2) + "xx";
  expect_malformed(QueryParts{.additional = 1, .rest = tsig}.bytes(), "another than OPT");
  expect_malformed(QueryParts{.additional = 1, .rest = "\1a" + opt(1232)}.bytes(),
                   "another than OPT");
  expect_malformed(QueryParts{.additional = 2, .rest = opt(1232) + opt(1232)}.bytes(),
                   "more than one additional");
  expect_malformed(QueryParts{.additional = 2, .rest = opt(1232) + tsig}.bytes(),
                   "more than one additional");
}

TEST(DnsQuery, HasNothingBehindItsLastRecord) {
  expect_malformed(query("a.example.com", 1) + "x", "behind its last record");
  expect_malformed(edns_query("a.example.com", 1) + "x", "behind its last record");
  // An OPT that is not counted.
  expect_malformed(query("a.example.com", 1) + opt(1232), "behind its last record");
}

TEST(DnsQuery, AnOptHasItsWholeLength) {
  const std::string whole = edns_query("a.example.com", 1, 1232, "options");
  const std::size_t without = query("a.example.com", 1).size();
  for (std::size_t size = without; size < whole.size(); ++size)
    expect_malformed(whole.substr(0, size), "ends too early");
  EXPECT_TRUE(good(whole).edns);
}

TEST(DnsQuery, AnotherVersionOfEdnsIsSaidToBeUnknown) {
  const auto parsed =
      parse_dns_query(QueryParts{.additional = 1, .rest = opt(1232, "", 1)}.bytes());
  EXPECT_FALSE(parsed.query.has_value());
  const ReadAnswer answer = read_answer(parsed.answer);
  EXPECT_EQ(answer.rcode(), 0u);
  ASSERT_EQ(answer.additional.size(), 1u);
  EXPECT_EQ(answer.additional[0].type, 41u);
  EXPECT_EQ(answer.additional[0].ttl, 0x01000000u);  // BADVERS, version 0
}

TEST(DnsQuery, ItsNameIsUncompressedAndShort) {
  expect_malformed(QueryParts{.name = "\xc0\x0c"}.bytes(), "compressed");
  expect_malformed(QueryParts{.name = "\1a\xc0\x0c"}.bytes(), "compressed");
  expect_malformed(QueryParts{.name = "\x40" + std::string(64, 'a') + '\0'}.bytes(), "63 bytes");
  expect_malformed(QueryParts{.name = "\x80" + std::string(128, 'a') + '\0'}.bytes(), "63 bytes");

  const std::string label = "\x3f" + std::string(63, 'a');
  const std::string longest = label + label + label + "\x3d" + std::string(61, 'a') + '\0';
  ASSERT_EQ(longest.size(), kMostDnsName);
  EXPECT_EQ(good(QueryParts{.name = longest}.bytes()).name, longest);
  const std::string longer = label + label + label + "\x3e" + std::string(62, 'a') + '\0';
  expect_malformed(QueryParts{.name = longer}.bytes(), "more than 255 bytes");
  std::string many;
  for (int i = 0; i < 128; ++i) many += "\1a";
  expect_malformed(QueryParts{.name = many + '\0'}.bytes(), "more than 255 bytes");
}

TEST(DnsQuery, IsWhole) {
  const std::string whole = query("a.example.com", 1);
  for (std::size_t size = 12; size < whole.size(); ++size)
    expect_malformed(whole.substr(0, size), "ends too early");
  for (std::size_t size = 4; size < 12; ++size)
    expect_malformed(whole.substr(0, size), "shorter than a header");
  for (std::size_t size = 0; size < 4; ++size) expect_dropped(whole.substr(0, size));
}

TEST(DnsQuery, AnAnswerIsNotAnswered) {
  expect_dropped(QueryParts{.flags = 0x8100}.bytes());
  expect_dropped("\x12\x34\x80\x00"s);
  expect_dropped("\x12\x34\xff\xff garbage"s);
}

TEST(DnsQuery, OtherOpcodesAndClassesAreNotImplemented) {
  for (unsigned opcode = 1; opcode < 16; ++opcode) {
    const std::string bytes = QueryParts{.flags = opcode << 11}.bytes();
    expect_refused(bytes, DnsRcode::kNotImp, "opcode");
    EXPECT_EQ(read_answer(parse_dns_query(bytes).answer).flags >> 11 & 0xf, opcode);
  }
  for (const unsigned other : {0u, 3u, 4u, 254u, 255u, 0x8001u})
    expect_refused(QueryParts{.query_class = other}.bytes(), DnsRcode::kNotImp, "class");
}

TEST(DnsQuery, IsNotTruncatedAndNotLong) {
  expect_malformed(QueryParts{.flags = 0x0200}.bytes(), "truncated");
  const std::size_t room = kMostDnsQuery - edns_query("a.example.com", 1).size();
  EXPECT_TRUE(good(edns_query("a.example.com", 1, 1232, std::string(room, '\0'))).edns);
  expect_malformed(edns_query("a.example.com", 1, 1232, std::string(room + 1, '\0')),
                   "more than 4096 bytes");
}

TEST(DnsQuery, NothingOfARefusedQueryComesBack) {
  const std::string secret = "secretsecret";
  for (const std::string& bytes :
       {query(secret, 1) + secret, QueryParts{.questions = 2, .name = wire(secret)}.bytes(),
        QueryParts{.flags = 0x2800, .name = wire(secret)}.bytes(),
        QueryParts{.additional = 1, .rest = opt(1232, secret, 3)}.bytes()})
    EXPECT_EQ(parse_dns_query(bytes).answer.find("secret"), std::string::npos);
}

// ---- names --------------------------------------------------------------------------------------

TEST(DnsName, BecomesTextWhereTextSaysWhichNameItWas) {
  EXPECT_EQ(dns_host_text(wire("WWW.Example.com")), "WWW.Example.com");
  EXPECT_EQ(dns_host_text(wire("_sip._tcp.a-1.example.com")), "_sip._tcp.a-1.example.com");
  EXPECT_EQ(dns_host_text("\0"s), std::nullopt);
  EXPECT_EQ(dns_host_text("\3a.b\3com\0"s), std::nullopt);
  EXPECT_EQ(dns_host_text("\4evil\1\0\3com\0"s), std::nullopt);
  for (const char* label : {"a b", "a%", "a/", "a@b", "a\\", "*", "\xc3\xbc", "a:1", "[a"})
    EXPECT_EQ(dns_host_text(wire(label)), std::nullopt) << label;
}

TEST(DnsName, IsDisplayedWhateverItHolds) {
  EXPECT_EQ(dns_display_text(wire("WWW.Example.com"), 255), "WWW.Example.com");
  EXPECT_EQ(dns_display_text("\0"s, 255), ".");
  EXPECT_EQ(dns_display_text("\3a.b\4\0\n\\\xff\0"s, 255), "a\\046b.\\000\\010\\092\\255");
  EXPECT_EQ(dns_display_text("\1 \0"s, 255), "\\032");
  EXPECT_EQ(dns_display_text(wire("www.example.com"), 5), "www.e");
}

TEST(DnsName, GoesOntoTheWire) {
  EXPECT_EQ(dns_wire_name("www.example.com"), "\3www\7example\3com\0"s);
  EXPECT_EQ(dns_wire_name("localhost"), "\x09localhost\0"s);
  EXPECT_EQ(dns_wire_name(std::string(63, 'a'))->size(), 65u);
  const std::string four = std::string(63, 'a') + "." + std::string(63, 'a') + "." +
                           std::string(63, 'a') + "." + std::string(61, 'a');
  EXPECT_EQ(dns_wire_name(four)->size(), 255u);
  for (const std::string& wrong :
       {""s, "."s, "a."s, ".a"s, "a..b"s, std::string(64, 'a'), four + "a", four + ".a"})
    EXPECT_EQ(dns_wire_name(wrong), std::nullopt) << wrong;
}

TEST(DnsName, MayStandForAnAddress) {
  EXPECT_EQ(reverse_dns_address("9.0.18.198.in-addr.arpa"), IpAddress::parse("198.18.0.9"));
  const std::string v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.0.0.0.a.5.0.0.0.0.d.f";
  EXPECT_EQ(reverse_dns_address(v6 + ".ip6.arpa"), IpAddress::parse("fd00:5a:d::1"));
  for (const std::string& other : {""s,
                                   "in-addr.arpa"s,
                                   ".in-addr.arpa"s,
                                   "1.in-addr.arpa"s,
                                   "18.198.in-addr.arpa"s,
                                   "0.18.198.in-addr.arpa"s,
                                   "5.9.0.18.198.in-addr.arpa"s,
                                   "256.0.18.198.in-addr.arpa"s,
                                   "09.0.18.198.in-addr.arpa"s,
                                   "x.0.18.198.in-addr.arpa"s,
                                   "9.0.18.198.in-addr.arpa.x"s,
                                   "9.0..198.in-addr.arpa"s,
                                   "9.0.18.198.ip6.arpa"s,
                                   v6,
                                   v6 + ".in-addr.arpa",
                                   "0." + v6 + ".ip6.arpa",
                                   v6.substr(2) + ".ip6.arpa",
                                   "g" + v6.substr(1) + ".ip6.arpa",
                                   v6.substr(0, 1) + "-" + v6.substr(2) + ".ip6.arpa",
                                   "www.example.com"s})
    EXPECT_EQ(reverse_dns_address(other), std::nullopt) << other;
}

// ---- answers ------------------------------------------------------------------------------------

const std::vector<IpAddress> kBoth = {*IpAddress::parse("198.18.0.9"),
                                      *IpAddress::parse("fd00:5a:d::9")};

TEST(DnsAnswers, GiveTheAddressesOfTheQuerysFamily) {
  const DnsQuery a = good(query("wWw.eXample.com", 1));
  const ReadAnswer answer = read_answer(DnsAnswers(a, DnsTransport::kUdp).addresses(kBoth, 30));
  EXPECT_EQ(answer.id, 0x1234u);
  EXPECT_EQ(answer.flags, 0x8580u);  // an authoritative answer, recursion desired and available
  EXPECT_EQ(answer.question, wire("wWw.eXample.com") + two(1) + two(1));
  ASSERT_EQ(answer.answers.size(), 1u);
  EXPECT_EQ(answer.answers[0].owner, wire("wWw.eXample.com"));
  EXPECT_EQ(answer.answers[0].type, 1u);
  EXPECT_EQ(answer.answers[0].record_class, 1u);
  EXPECT_EQ(answer.answers[0].ttl, 30u);
  EXPECT_EQ(answer.answers[0].data, "\xc6\x12\x00\x09"s);
  EXPECT_THAT(answer.authorities, IsEmpty());
  EXPECT_THAT(answer.additional, IsEmpty());

  const DnsQuery aaaa = good(query("www.example.com", 28));
  const ReadAnswer other =
      read_answer(DnsAnswers(aaaa, DnsTransport::kTcp).addresses(kBoth, 0x7fffffff));
  ASSERT_EQ(other.answers.size(), 1u);
  EXPECT_EQ(other.answers[0].type, 28u);
  EXPECT_EQ(other.answers[0].ttl, 0x7fffffffu);
  EXPECT_EQ(other.answers[0].data, "\xfd\0\0\x5a\0\x0d\0\0\0\0\0\0\0\0\0\x09"s);
}

TEST(DnsAnswers, WithoutAnAddressOfTheFamilyThereIsNoRecord) {
  const DnsQuery a = good(query("www.example.com", 1));
  const auto answer = DnsAnswers(a, DnsTransport::kUdp).addresses(std::span(kBoth).last(1), 30);
  EXPECT_EQ(read_answer(answer).rcode(), 0u);
  EXPECT_THAT(read_answer(answer).answers, IsEmpty());
}

TEST(DnsAnswers, WithoutRecordsHaveNoSoa) {
  const DnsQuery a = good(query("www.example.com", 1));
  for (const DnsRcode rcode :
       {DnsRcode::kNoError, DnsRcode::kServFail, DnsRcode::kNxDomain, DnsRcode::kRefused}) {
    const ReadAnswer answer = read_answer(DnsAnswers(a, DnsTransport::kUdp).empty(rcode));
    EXPECT_EQ(answer.rcode(), static_cast<unsigned>(rcode));
    EXPECT_EQ(answer.question, wire("www.example.com") + two(1) + two(1));
    EXPECT_TRUE(answer.answers.empty() && answer.authorities.empty() && answer.additional.empty());
  }
}

TEST(DnsAnswers, HaveAnEmptyOptWhereTheQueryHasOne) {
  const DnsQuery a = good(edns_query("www.example.com", 1, 4096, "some options"));
  for (const std::string& bytes : {DnsAnswers(a, DnsTransport::kUdp).addresses(kBoth, 30),
                                   DnsAnswers(a, DnsTransport::kUdp).empty(DnsRcode::kRefused)}) {
    const ReadAnswer answer = read_answer(bytes);
    ASSERT_EQ(answer.additional.size(), 1u);
    EXPECT_EQ(answer.additional[0].owner, "\0"s);
    EXPECT_EQ(answer.additional[0].type, 41u);
    EXPECT_EQ(answer.additional[0].record_class, 1232u);
    EXPECT_EQ(answer.additional[0].ttl, 0u);
    EXPECT_EQ(answer.additional[0].data, "");
  }
}

TEST(DnsAnswers, WishRecursionBackOnlyWhereItWasWished) {
  const DnsQuery a = good(QueryParts{.flags = 0x0010}.bytes());
  EXPECT_EQ(read_answer(DnsAnswers(a, DnsTransport::kUdp).empty(DnsRcode::kNoError)).flags,
            0x8480u);
}

TEST(DnsAnswers, FitIntoWhatTheClientTakes) {
  const auto size_of_most = [](const std::string& bytes, DnsTransport transport,
                               std::size_t addresses) {
    const DnsQuery a = good(bytes);
    const std::vector<IpAddress> many(addresses, *IpAddress::parse("192.0.2.1"));
    const std::string answer = DnsAnswers(a, transport).addresses(many, 30);
    const ReadAnswer read = read_answer(answer);
    EXPECT_EQ(read.answers.size(), read.truncated() ? 0u : addresses);
    return read.truncated() ? 0 : answer.size();
  };
  // 33 bytes of header and question, 16 for each address, 11 for the OPT.
  const std::string plain = query("www.example.com", 1);
  EXPECT_EQ(size_of_most(plain, DnsTransport::kUdp, 29), 497u);
  EXPECT_EQ(size_of_most(plain, DnsTransport::kUdp, 30), 0u);
  EXPECT_EQ(size_of_most(plain, DnsTransport::kTcp, 4093), 65'521u);
  EXPECT_EQ(size_of_most(plain, DnsTransport::kTcp, 4094), 0u);
  const std::string edns = edns_query("www.example.com", 1, 4096);
  EXPECT_EQ(size_of_most(edns, DnsTransport::kUdp, 74), 1228u);
  EXPECT_EQ(size_of_most(edns, DnsTransport::kUdp, 75), 0u);
  const std::string small = edns_query("www.example.com", 1, 600);
  EXPECT_EQ(size_of_most(small, DnsTransport::kUdp, 34), 588u);
  EXPECT_EQ(size_of_most(small, DnsTransport::kUdp, 35), 0u);
}

// What a C library's resolver and many programs use understands them.
TEST(DnsAnswers, AreUnderstoodByCares) {
  const auto data = [](const std::string& bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  };
  const DnsQuery a = good(edns_query("www.example.com", 1));
  const std::string four = DnsAnswers(a, DnsTransport::kUdp).addresses(kBoth, 30);
  std::array<ares_addrttl, 4> addresses{};
  int count = addresses.size();
  ASSERT_EQ(ares_parse_a_reply(data(four), static_cast<int>(four.size()), nullptr, addresses.data(),
                               &count),
            ARES_SUCCESS);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(addresses[0].ttl, 30);
  EXPECT_EQ(ntohl(addresses[0].ipaddr.s_addr), 0xc6120009u);

  const DnsQuery aaaa = good(query("www.example.com", 28));
  const std::string six = DnsAnswers(aaaa, DnsTransport::kUdp).addresses(kBoth, 30);
  std::array<ares_addr6ttl, 4> addresses6{};
  count = addresses6.size();
  ASSERT_EQ(ares_parse_aaaa_reply(data(six), static_cast<int>(six.size()), nullptr,
                                  addresses6.data(), &count),
            ARES_SUCCESS);
  ASSERT_EQ(count, 1);

  const std::string none = DnsAnswers(aaaa, DnsTransport::kUdp).empty(DnsRcode::kNoError);
  EXPECT_EQ(
      ares_parse_aaaa_reply(data(none), static_cast<int>(none.size()), nullptr, nullptr, nullptr),
      ARES_ENODATA);

  const DnsQuery ptr = good(query("9.0.18.198.in-addr.arpa", 12));
  const std::string back =
      DnsAnswers(ptr, DnsTransport::kUdp).pointer(*dns_wire_name("www.example.com"), 30);
  hostent* host = nullptr;
  ASSERT_EQ(ares_parse_ptr_reply(data(back), static_cast<int>(back.size()), "\xc6\x12\0\x09", 4,
                                 AF_INET, &host),
            ARES_SUCCESS);
  EXPECT_STREQ(host->h_name, "www.example.com");
  ares_free_hostent(host);
}

// ---- TCP ----------------------------------------------------------------------------------------

TEST(DnsFrame, IsWaitedForAndTaken) {
  const std::string message = query("www.example.com", 1);
  const std::string bytes = dns_frame(message) + "next";
  for (std::size_t size = 0; size < message.size() + 2; ++size)
    EXPECT_EQ(next_dns_frame(std::string_view(bytes).substr(0, size)).state,
              DnsFrame::State::kNeedMore);
  const DnsFrame frame = next_dns_frame(bytes);
  EXPECT_EQ(frame.state, DnsFrame::State::kWhole);
  EXPECT_EQ(frame.message, message);
  EXPECT_EQ(frame.used, message.size() + 2);
}

TEST(DnsFrame, OfALengthThatNoQueryHasIsRefusedAtOnce) {
  for (const std::string& bytes : {"\xff\xffx"s, "\x10\x01"s, "\0\x0b"s, "\0\0"s})
    EXPECT_EQ(next_dns_frame(bytes).state, DnsFrame::State::kRefused);
  EXPECT_EQ(next_dns_frame("\x10\x00"s).state, DnsFrame::State::kNeedMore);
  EXPECT_EQ(next_dns_frame("\0\x0c"s).state, DnsFrame::State::kNeedMore);
}

}  // namespace
}  // namespace caisson::egress
