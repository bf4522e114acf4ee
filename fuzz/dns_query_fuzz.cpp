// libraries: egress policy base
// parser: src/egress/dns_message.cpp src/egress/dns_answer.cpp
//
// The stub DNS server: the first byte chooses the policy and the transport, the rest is the message
// of a client.
#include <ares.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "egress/dns_answer.h"
#include "egress/dns_for_test.h"

namespace {

using namespace caisson::egress;  // NOLINT: a program of one file
namespace policy = caisson::policy;
using for_test::ReadAnswer;
using for_test::ReadRecord;
using policy::IpAddress;

class Everything final : public DnsNames {
 public:
  explicit Everything(NameVerdict verdict) : verdict_(verdict) {}
  NameVerdict verdict(const std::string&) const override { return verdict_; }

 private:
  NameVerdict verdict_;
};

IpAddress address_of(const ReadRecord& record) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(record.data.at(at)); };
  if (record.type == 1) {
    VERIFY(record.data.size() == 4);
    return IpAddress::v4({byte(0), byte(1), byte(2), byte(3)});
  }
  VERIFY(record.type == 28 && record.data.size() == 16);
  std::array<std::uint8_t, 16> bytes{};
  std::ranges::copy(record.data, bytes.begin());
  return IpAddress::v6(bytes);
}

// What another reader makes of the answer.
void check_with_cares(const DnsReply& reply) {
  const auto* data = reinterpret_cast<const unsigned char*>(reply.answer.data());
  const int size = static_cast<int>(reply.answer.size());
  const bool synthetic =
      reply.outcome == DnsOutcome::kSynthetic || reply.outcome == DnsOutcome::kLoopback;
  int count = 4;
  if (reply.type == DnsType::kA) {
    std::array<ares_addrttl, 4> addresses{};
    const int status = ares_parse_a_reply(data, size, nullptr, addresses.data(), &count);
    VERIFY(synthetic == (status == ARES_SUCCESS && count == 1));
  } else if (reply.type == DnsType::kAaaa) {
    std::array<ares_addr6ttl, 4> addresses{};
    const int status = ares_parse_aaaa_reply(data, size, nullptr, addresses.data(), &count);
    VERIFY(synthetic == (status == ARES_SUCCESS && count == 1));
  } else if (reply.outcome == DnsOutcome::kReverse) {
    hostent* host = nullptr;
    VERIFY(ares_parse_ptr_reply(data, size, "\0\0\0\0", 4, AF_INET, &host) == ARES_SUCCESS);
    VERIFY(std::string_view(host->h_name) == "known.example.com");
    ares_free_hostent(host);
  }
}

// `answer` is one whole message that holds nothing of the query but its question.
void check_answer(std::string_view message, const ReadAnswer& answer) {
  const auto byte = [&](std::size_t at) -> unsigned {
    return static_cast<unsigned char>(message[at]);
  };
  VERIFY(answer.id == (byte(0) << 8 | byte(1)));
  VERIFY((answer.flags & 0x8000) != 0 && answer.authorities.empty() &&
         answer.additional.size() <= 1);
  for (const ReadRecord& record : answer.additional)
    VERIFY(record.type == 41 && record.owner.size() == 1 && record.record_class == 1232 &&
           record.data.empty() && (record.ttl & 0x00ffffff) == 0);
  for (const ReadRecord& record : answer.answers) VERIFY(record.record_class == 1);
}

void check_records(const DnsReply& reply, const ReadAnswer& answer, const policy::DnsPolicy& rules,
                   const NameTable& table) {
  const bool synthetic = reply.outcome == DnsOutcome::kSynthetic;
  const bool has_record =
      synthetic || reply.outcome == DnsOutcome::kLoopback || reply.outcome == DnsOutcome::kReverse;
  VERIFY(answer.answers.size() == (has_record ? 1 : 0) && !answer.truncated());
  for (const ReadRecord& record : answer.answers) {
    VERIFY(DnsType{static_cast<std::uint16_t>(record.type)} == reply.type);
    VERIFY(record.ttl == rules.ttl);
    // The owner is the question's name, byte for byte.
    VERIFY(answer.question.starts_with(record.owner) &&
           answer.question.size() == record.owner.size() + 4);
    if (synthetic) VERIFY(table.name_of(address_of(record)) == reply.name);
  }
}

void check_frame(std::string_view message) {
  const std::string bytes = dns_frame(message.substr(0, UINT16_MAX)) + "more";
  const DnsFrame frame = next_dns_frame(bytes);
  const bool takes = message.size() >= 12 && message.size() <= kMostDnsQuery;
  VERIFY((frame.state == DnsFrame::State::kWhole) == takes);
  if (takes) VERIFY(frame.message == message && frame.used == message.size() + 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned choice = data[0];
  const std::string_view message(reinterpret_cast<const char*>(data + 1), size - 1);
  const DnsTransport transport = (choice & 1) != 0 ? DnsTransport::kTcp : DnsTransport::kUdp;
  const Everything names((choice & 2) != 0 ? NameVerdict::kMatched : NameVerdict::kUnmatched);
  const policy::DnsPolicy rules{.unmatched = static_cast<policy::UnmatchedName>((choice >> 3) % 3),
                                .ttl = 30,
                                .services = {"_db._tcp.example.com"}};
  // One name is there already; where it is held, no other finds room.
  const NameTableLimits ranges = NameTableLimits::defaults();
  const auto table = NameTable::create({ranges.v4, ranges.v6, 1}).value();
  const auto known = table->addresses_of("known.example.com").value();
  std::optional<NameTable::Pin> pin;
  if ((choice & 0x80) != 0) pin = table->pin(known.v4);

  const DnsReply reply = reply_to_dns(message, transport, rules, names, *table);
  check_frame(message);
  VERIFY((to_string(reply.outcome) == "malformed") == (reply.outcome == DnsOutcome::kMalformed));
  VERIFY((reply.outcome == DnsOutcome::kMalformed) != reply.type.has_value());
  if (reply.waiting) {
    VERIFY(reply.outcome == DnsOutcome::kServices && reply.name == rules.services[0]);
    const KnownServices found = {{{1, 2, 3, "known.example.com"}}};
    const std::string bytes = services_answer(*reply.waiting, transport, found, rules, names);
    const ReadAnswer answer = for_test::read_answer(bytes);
    check_answer(message, answer);
    ares_srv_reply* read = nullptr;
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    const int status = ares_parse_srv_reply(data, static_cast<int>(bytes.size()), &read);
    VERIFY((status == ARES_SUCCESS) == ((choice & 2) != 0));
    if (read != nullptr)
      VERIFY(read->port == 3 && std::string_view(read->host) == "known.example.com");
    ares_free_data(read);
    return 0;
  }
  if (reply.answer.empty()) {
    VERIFY(message.size() < 4 || (static_cast<unsigned char>(message[2]) & 0x80) != 0);
    VERIFY(reply.outcome == DnsOutcome::kMalformed && !reply.why.empty());
    return 0;
  }
  const ReadAnswer answer = for_test::read_answer(reply.answer);
  check_answer(message, answer);
  if (reply.outcome == DnsOutcome::kMalformed) {
    VERIFY(answer.question.empty() && answer.answers.empty() && !reply.why.empty());
    return 0;
  }
  VERIFY(message.substr(12).starts_with(answer.question) && answer.question.size() >= 5);
  VERIFY(reply.name.size() <= 255 &&
         std::ranges::all_of(reply.name, [](char c) { return c > 0x20 && c < 0x7f; }));
  check_records(reply, answer, rules, *table);
  check_with_cares(reply);
  // Asked again it says the same.
  VERIFY(reply_to_dns(message, transport, rules, names, *table).answer == reply.answer);
  return 0;
}
