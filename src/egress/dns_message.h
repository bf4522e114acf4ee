// Reads the one kind of DNS message that the gateway's stub server understands, a query with one
// question, and writes its answers. Guards the wall: pure, bounded, fuzzed
// (fuzz/dns_query_fuzz.cpp).
//
// The reader is strict since nothing legitimate is lost by it: one question of class IN, its name
// uncompressed, no record but at most one OPT. Of a query nothing comes back but what the protocol
// needs to match the answer: id, opcode, the wish for recursion, and the question byte for byte (a
// client may have mixed the case of the name to recognise its answer). What stands in an OPT is
// ignored, and the answer's OPT is empty.
//
// Answers without records have no SOA. A resolver may keep a negative answer only by an SOA (RFC
// 2308, section 5), and none of ours may be kept: a live change of the policy can make the name
// answer a moment later, and the denial of one name must not be taken for that of all below it (RFC
// 8020).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "policy/ip_address.h"

namespace caisson::egress {

// Those that something depends on; any number is a type.
enum class DnsType : std::uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kNull = 10,
  kPtr = 12,
  kMx = 15,
  kTxt = 16,
  kAaaa = 28,
  kSrv = 33,
  kOpt = 41,
  kSvcb = 64,
  kHttps = 65,
  kAny = 255,
  kCaa = 257,
};

enum class DnsRcode : std::uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
};

enum class DnsTransport : std::uint8_t { kUdp, kTcp };

// A longer query is refused: room for a name, an OPT and much padding in it.
inline constexpr std::size_t kMostDnsQuery = 4096;
// What our answers may have over UDP, and what our OPT says.
inline constexpr std::size_t kMostDnsOverUdp = 1232;
inline constexpr std::size_t kMostDnsOverUdpWithoutEdns = 512;
inline constexpr std::size_t kMostDnsName = 255;  // on the wire

struct DnsQuery {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  std::string name;  // as on the wire, in the case that came, with the root's empty label
  DnsType type = DnsType::kA;
  bool edns = false;
  std::size_t udp_size = kMostDnsOverUdpWithoutEdns;  // that the client takes; from 512
};

// A query; else what answers it, and why. Neither: no answer at all (too short to have an id, or
// itself an answer, which two servers could throw at each other for ever).
struct ParsedDnsQuery {
  std::optional<DnsQuery> query;
  std::string answer;
  std::string_view why;
};
ParsedDnsQuery parse_dns_query(std::string_view message);

// "www.example.com" of a name on the wire. nullopt: a label holds something else than ASCII
// letters, digits, `-` and `_` (a dot, a NUL: text would not say which name it was), or it is the
// root.
std::optional<std::string> dns_host_text(std::string_view wire);
// The same for people, whatever the labels hold: visible ASCII as it is, the rest as \DDD; "." is
// the root. At most `most` bytes.
std::string dns_display_text(std::string_view wire, std::size_t most);
// nullopt: a label is empty or longer than 63 bytes, or the whole has more than 255.
std::optional<std::string> dns_wire_name(std::string_view host);
// The address that a name below in-addr.arpa or ip6.arpa stands for; nullopt: it is no such name,
// or not a whole one. `host` is in lower case.
std::optional<policy::IpAddress> reverse_dns_address(std::string_view host);

// What an SRV record says.
struct DnsService {
  std::uint16_t priority = 0, weight = 0, port = 0;
  std::string target;  // a canonical name
  bool operator==(const DnsService&) const = default;
};

// Answers to one query. All that do not fit into what the transport and the client take have no
// records and the mark that they are truncated, by which the client comes again over TCP.
class DnsAnswers {
 public:
  DnsAnswers(const DnsQuery& query, DnsTransport transport)
      : query_(query), transport_(transport) {}

  // One A or AAAA record for each address of the family that the query's type asks for; the others
  // are left out. The order stays. With none left it is the answer without records.
  std::string addresses(std::span<const policy::IpAddress> addresses, std::uint32_t ttl) const;
  // One SRV record (RFC 2782) for each.
  std::string services(std::span<const DnsService> services, std::uint32_t ttl) const;
  // One PTR record. `wire_target`: of dns_wire_name().
  std::string pointer(std::string_view wire_target, std::uint32_t ttl) const;
  // No record. With kNoError: the name exists and has none of this type.
  std::string empty(DnsRcode rcode) const;

 private:
  std::string write(DnsRcode rcode, std::span<const std::string> data, std::uint32_t ttl) const;
  std::size_t most_bytes() const;

  const DnsQuery& query_;
  DnsTransport transport_;
};

// A message in a TCP stream has its length before it.
struct DnsFrame {
  enum class State : std::uint8_t {
    kNeedMore,
    kWhole,
    kRefused,  // shorter than a header or longer than a query may be: the connection is to be
               // closed
  };
  State state = State::kNeedMore;
  std::string_view message;  // into the bytes that were given
  std::size_t used = 0;      // with the length
};
DnsFrame next_dns_frame(std::string_view bytes);
std::string dns_frame(std::string_view message);

}  // namespace caisson::egress
