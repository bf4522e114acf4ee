#include "egress/dns_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "egress/dns_for_test.h"

namespace caisson::egress {
namespace {

using namespace for_test;              // NOLINT: pieces of messages
using namespace std::string_literals;  // NOLINT: NUL bytes
using policy::Cidr;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr unsigned kA = 1, kPtr = 12, kAaaa = 28, kSrv = 33;

class Matched final : public DnsNames {
 public:
  explicit Matched(std::set<std::string> names) : names_(std::move(names)) {}
  NameVerdict verdict(const std::string& name) const override {
    return names_.contains(name) ? NameVerdict::kMatched : NameVerdict::kUnmatched;
  }

 private:
  std::set<std::string> names_;
};

class DnsReplies : public ::testing::Test {
 protected:
  DnsReply reply(const std::string& message) {
    return reply_to_dns(message, DnsTransport::kUdp, rules, names, *table);
  }
  DnsReply ask(std::string_view name, unsigned type) { return reply(query(name, type)); }
  void expect(std::string_view name, unsigned type, DnsOutcome outcome, DnsRcode rcode,
              std::size_t records) {
    const DnsReply got = ask(name, type);
    EXPECT_EQ(got.outcome, outcome) << name << " " << type << " " << to_string(got.outcome);
    EXPECT_EQ(got.type, DnsType{static_cast<std::uint16_t>(type)});
    const ReadAnswer answer = read_answer(got.answer);
    EXPECT_EQ(answer.rcode(), static_cast<unsigned>(rcode)) << name << " " << type;
    EXPECT_EQ(answer.answers.size(), records) << name << " " << type;
    EXPECT_THAT(answer.authorities, IsEmpty());
    EXPECT_THAT(answer.additional, IsEmpty());
  }
  void expect_no_data(std::string_view name, unsigned type) {
    expect(name, type, DnsOutcome::kNoData, DnsRcode::kNoError, 0);
  }
  void expect_no_such_name(std::string_view name, unsigned type = kA) {
    expect(name, type, DnsOutcome::kNoSuchName, DnsRcode::kNxDomain, 0);
  }

  policy::DnsPolicy rules;
  Matched names{{"api.example.com", "db.internal", "printer", "x.local"}};
  std::unique_ptr<NameTable> table = NameTable::create(NameTableLimits::defaults()).value();
};

TEST_F(DnsReplies, ANameHasItsSyntheticAddressesInBothFamilies) {
  const ReadAnswer four = read_answer(ask("api.example.com", kA).answer);
  ASSERT_EQ(four.answers.size(), 1u);
  EXPECT_EQ(four.answers[0].data, "\xc6\x12\0\1"s);
  EXPECT_EQ(four.answers[0].ttl, 30u);
  const ReadAnswer six = read_answer(ask("api.example.com", kAaaa).answer);
  ASSERT_EQ(six.answers.size(), 1u);
  EXPECT_EQ(six.answers[0].data, "\xfd\0\0\x5a\0\x0d\0\0\0\0\0\0\0\0\0\1"s);
  EXPECT_EQ(table->size(), 1u);
}

TEST_F(DnsReplies, ADeniedNameIsAnsweredLikeAnAllowedOne) {
  expect("denied.example.org", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
  expect("denied.example.org", kAaaa, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, TheAnswerKeepsTheCaseThatTheQueryMixed) {
  const DnsReply mixed = ask("aPi.exAMple.cOm", kA);
  EXPECT_EQ(mixed.name, "api.example.com");
  const ReadAnswer answer = read_answer(mixed.answer);
  EXPECT_EQ(answer.question, wire("aPi.exAMple.cOm") + two(kA) + two(1));
  EXPECT_EQ(answer.answers.at(0).owner, wire("aPi.exAMple.cOm"));
  EXPECT_EQ(answer.answers.at(0).data,
            read_answer(ask("api.example.com", kA).answer).answers.at(0).data);
  EXPECT_EQ(table->size(), 1u);
}

TEST_F(DnsReplies, OtherTypesHaveNoRecords) {
  // NS, CNAME, SOA, NULL, PTR, HINFO, MX, TXT, SRV, NAPTR, DS, DNSKEY, TLSA, SVCB, HTTPS, AXFR,
  // ANY, URI, CAA, one of nobody's.
  for (const unsigned type : {2u,  5u,  6u,  10u, 12u, 13u,  15u,  16u,  33u,  35u,
                              43u, 48u, 52u, 64u, 65u, 252u, 255u, 256u, 257u, 65280u}) {
    expect_no_data("api.example.com", type);
    expect_no_data("denied.example.org", type);
  }
  EXPECT_EQ(table->size(), 0u);
}

TEST_F(DnsReplies, AServiceThatThePolicyNamesIsToBeLookedUp) {
  rules.services = {"_db._tcp.example.com", "_ldap._tcp.corp.internal"};
  for (const char* name :
       {"_db._tcp.example.com", "_DB._tcp.Example.com", "_ldap._tcp.corp.internal"}) {
    const DnsReply reply = ask(name, kSrv);
    EXPECT_EQ(reply.outcome, DnsOutcome::kServices) << name;
    EXPECT_EQ(reply.answer, "") << name;
    ASSERT_TRUE(reply.waiting.has_value()) << name;
  }
  EXPECT_FALSE(ask("_db._tcp.example.com", 16).waiting.has_value());
  EXPECT_FALSE(ask("_db._tcp.example.com", kA).waiting.has_value());
}

TEST_F(DnsReplies, AServiceThatThePolicyDoesNotNameIsNot) {
  rules.services = {"_db._tcp.example.com"};
  for (const char* name : {"example.com", "_tcp.example.com", "secret._db._tcp.example.com",
                           "_x._tcp.example.com", "_db._tcp.example.com.example.com"}) {
    EXPECT_FALSE(ask(name, kSrv).waiting.has_value()) << name;
    expect_no_data(name, kSrv);
  }
}

TEST_F(DnsReplies, ServicesLeadToAllowedNamesAlone) {
  rules.services = {"_db._tcp.example.com"};
  const DnsReply reply = ask("_db._TCP.example.com", kSrv);
  const auto answer = [&](const KnownServices& known) {
    return read_answer(services_answer(*reply.waiting, DnsTransport::kUdp, known, rules, names));
  };
  const ReadAnswer two_of = answer({{{1, 2, 3, "api.example.com"},
                                     {0, 0, 53, "evil.example.org"},
                                     {0x102, 0, 0xffff, "db.internal"}}});
  EXPECT_EQ(two_of.question, wire("_db._TCP.example.com") + two(kSrv) + two(1));
  ASSERT_EQ(two_of.answers.size(), 2u);
  EXPECT_EQ(two_of.answers[0].data, two(1) + two(2) + two(3) + wire("api.example.com"));
  EXPECT_EQ(two_of.answers[1].data, two(0x102) + two(0) + two(0xffff) + wire("db.internal"));
  EXPECT_EQ(two_of.answers[0].ttl, 30u);
  EXPECT_EQ(two_of.answers[0].type, kSrv);
  const ReadAnswer none = answer(std::vector<DnsService>());
  EXPECT_EQ(none.rcode(), static_cast<unsigned>(DnsRcode::kNoError));
  EXPECT_THAT(none.answers, IsEmpty());
  EXPECT_EQ(answer(std::nullopt).rcode(), static_cast<unsigned>(DnsRcode::kServFail));
  rules.services.clear();
  EXPECT_THAT(answer({{{1, 2, 3, "api.example.com"}}}).answers, IsEmpty());
}

TEST_F(DnsReplies, ServicesThatDoNotFitComeOverTcp) {
  rules.services = {"_db._tcp.example.com"};
  const DnsReply reply = ask("_db._tcp.example.com", kSrv);
  const std::vector<DnsService> many(32, {0, 0, 1, "api.example.com"});
  const auto answer = [&](DnsTransport transport) {
    return read_answer(services_answer(*reply.waiting, transport, many, rules, names));
  };
  EXPECT_TRUE(answer(DnsTransport::kUdp).truncated());
  EXPECT_EQ(answer(DnsTransport::kTcp).answers.size(), many.size());
}

TEST_F(DnsReplies, TheReverseNameOfASyntheticAddressIsItsName) {
  ask("api.example.com", kA);
  for (const char* name :
       {"1.0.18.198.in-addr.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.D.0.0.0.A.5.0.0.0.0.D.F.ip6.ARPA"}) {
    expect(name, kPtr, DnsOutcome::kReverse, DnsRcode::kNoError, 1);
    EXPECT_EQ(read_answer(ask(name, kPtr).answer).answers.at(0).data, wire("api.example.com"));
    expect_no_data(name, kA);
    expect_no_data(name, 16);
  }
}

TEST_F(DnsReplies, OtherReverseNamesDoNotExist) {
  ask("api.example.com", kA);
  for (const char* name : {"2.0.18.198.in-addr.arpa", "0.0.18.198.in-addr.arpa",
                           "8.8.8.8.in-addr.arpa", "1.0.0.127.in-addr.arpa", "in-addr.arpa",
                           "18.198.in-addr.arpa", "x.1.0.18.198.in-addr.arpa", "ip6.arpa"})
    expect_no_such_name(name, kPtr);
}

TEST_F(DnsReplies, LocalhostIsTheSandboxItself) {
  for (const char* name : {"localhost", "LOCALHOST", "a.b.localhost"}) {
    expect(name, kA, DnsOutcome::kLoopback, DnsRcode::kNoError, 1);
    EXPECT_EQ(read_answer(ask(name, kA).answer).answers.at(0).data, "\x7f\0\0\1"s);
    EXPECT_EQ(read_answer(ask(name, kAaaa).answer).answers.at(0).data,
              std::string(15, '\0') + '\1');
    expect_no_data(name, 65);
  }
  EXPECT_EQ(table->size(), 0u);
  expect("notlocalhost.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, NamesOfNoPublicDnsDoNotExist) {
  for (const char* name :
       {"router", "metadata.google.internal", "nas.local", "x.y.home.arpa", "a.lan", "a.corp",
        "a.home", "a.intranet", "a.private", "a.localdomain", "a.onion", "a.invalid", "a.alt"}) {
    expect_no_such_name(name, kA);
    expect_no_such_name(name, 65);
  }
  EXPECT_EQ(table->size(), 0u);
}

TEST_F(DnsReplies, UnlessARuleNamesThem) {
  for (const char* name : {"db.internal", "printer", "X.Local"}) {
    expect(name, kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
    expect_no_data(name, 16);
  }
}

TEST_F(DnsReplies, ANameWithASearchDomainBehindItMakesTheResolverGoOn) {
  expect_no_such_name("api.example.com.svc.internal", kA);
  expect_no_such_name("api.example.com.localdomain", kAaaa);
  expect("api.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, AnAddressIsNoName) {
  expect_no_such_name("127.0.0.1", kA);
  expect_no_such_name("8.8.8.8", kAaaa);
}

TEST_F(DnsReplies, WhatIsNoHostsNameIsRefused) {
  struct Case {
    std::string wire_name;
    const char* shown;
  };
  const Case cases[] = {
      {"\0"s, "."},
      {"\4evil\1\0\7example\3com\0"s, "evil.\\000.example.com"},
      {"\x10"
       "evil.example.co\0\3com\0"s,
       "evil\\046example\\046co\\000.com"},
      {"\4a b\n\3com\0"s, "a\\032b\\010.com"},
      {"\1*\3com\0"s, "*.com"},
      {wire("127.1"), "127.1"},
      {wire("0x7f.1"), "0x7f.1"},
      {wire("2130706433"), "2130706433"},
      {wire("xn--a.example.com"), "xn--a.example.com"},
      {wire("b\xc3\xbc.example.com"), "b\\195\\188.example.com"},
  };
  for (const Case& one : cases) {
    const DnsReply got = reply(QueryParts{.name = one.wire_name}.bytes());
    EXPECT_EQ(got.outcome, DnsOutcome::kNotAName) << one.shown;
    EXPECT_EQ(got.name, one.shown);
    EXPECT_EQ(read_answer(got.answer).rcode(), 5u) << one.shown;
    EXPECT_EQ(read_answer(got.answer).question, one.wire_name + two(kA) + two(1));
  }
  EXPECT_EQ(table->size(), 0u);
}

TEST_F(DnsReplies, UnmatchedNamesMayHaveNoRecords) {
  rules.unmatched = policy::UnmatchedName::kNodata;
  expect_no_data("denied.example.org", kA);
  expect_no_data("denied.example.org", kAaaa);
  expect_no_such_name("router", kA);
  expect("api.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, UnmatchedNamesMayBeRefused) {
  rules.unmatched = policy::UnmatchedName::kRefused;
  expect("denied.example.org", kA, DnsOutcome::kRefused, DnsRcode::kRefused, 0);
  expect("denied.example.org", 16, DnsOutcome::kRefused, DnsRcode::kRefused, 0);
  expect("localhost", kA, DnsOutcome::kLoopback, DnsRcode::kNoError, 1);
  expect("api.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, TheTimeToLiveIsThePolicys) {
  rules.ttl = 5;
  EXPECT_EQ(read_answer(ask("api.example.com", kA).answer).answers.at(0).ttl, 5u);
  EXPECT_EQ(read_answer(ask("localhost", kA).answer).answers.at(0).ttl, 5u);
  EXPECT_EQ(read_answer(ask("1.0.18.198.in-addr.arpa", kPtr).answer).answers.at(0).ttl, 5u);
}

TEST_F(DnsReplies, ATableFullOfOpenConnectionsFailsForOtherNames) {
  table = NameTable::create({*Cidr::parse("198.18.0.0/15"), *Cidr::parse("fd00::/64"), 2}).value();
  std::vector<NameTable::Pin> pins;
  for (const char* name : {"a.example.com", "b.example.com"})
    pins.push_back(table->pin(table->addresses_of(name).value().v4).value());
  expect("c.example.com", kA, DnsOutcome::kTableFull, DnsRcode::kServFail, 0);
  expect("a.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
  expect_no_data("c.example.com", 16);
  pins.clear();
  expect("c.example.com", kA, DnsOutcome::kSynthetic, DnsRcode::kNoError, 1);
}

TEST_F(DnsReplies, AMalformedQueryIsAnsweredWithAnErrorOrNotAtAll) {
  const DnsReply refused = reply(QueryParts{.questions = 2}.bytes());
  EXPECT_EQ(refused.outcome, DnsOutcome::kMalformed);
  EXPECT_EQ(read_answer(refused.answer).rcode(), 1u);
  EXPECT_EQ(refused.type, std::nullopt);
  EXPECT_EQ(refused.why, "it must have one question");
  const DnsReply dropped = reply("x");
  EXPECT_EQ(dropped.answer, "");
  EXPECT_EQ(dropped.outcome, DnsOutcome::kMalformed);
  EXPECT_THAT(std::string(dropped.why), HasSubstr("too short"));
}

TEST_F(DnsReplies, NothingButTheQuestionComesBack) {
  const DnsReply got = reply(edns_query("api.example.com", kA, 4096, "cookiecookie"));
  const ReadAnswer answer = read_answer(got.answer);
  EXPECT_EQ(answer.additional.at(0).data, "");
  EXPECT_EQ(got.answer.find("cookie"), std::string::npos);
}

TEST_F(DnsReplies, TenThousandNamesStayWithinTheTable) {
  std::mt19937 random(3);
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "x" + std::to_string(random()) + ".example.org";
    ASSERT_EQ(ask(name, i % 2 == 0 ? kA : kAaaa).outcome, DnsOutcome::kSynthetic);
  }
  EXPECT_EQ(table->size(), 4096u);
}

TEST_F(DnsReplies, EveryOutcomeHasAWord) {
  std::set<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(DnsOutcome::kMalformed); ++i)
    words.insert(to_string(static_cast<DnsOutcome>(i)));
  EXPECT_EQ(words.size(), 10u);
}

// A decision with other addresses is written like ours: the seam for names with real ones.
TEST_F(DnsReplies, AnAnswerHoldsTheAddressesOfItsDecision) {
  const DnsQuery asked = parse_dns_query(query("api.example.com", kA)).query.value();
  const DnsDecision decision{.outcome = DnsOutcome::kSynthetic,
                             .name = "api.example.com",
                             .addresses = {*policy::IpAddress::parse("192.0.2.1"),
                                           *policy::IpAddress::parse("2001:db8::1"),
                                           *policy::IpAddress::parse("192.0.2.2")},
                             .reverse_name = {}};
  const ReadAnswer answer = read_answer(dns_answer(asked, DnsTransport::kUdp, decision, 60));
  ASSERT_EQ(answer.answers.size(), 2u);
  EXPECT_EQ(answer.answers[1].data, "\xc0\0\2\2"s);
}

}  // namespace
}  // namespace caisson::egress
