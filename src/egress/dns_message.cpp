#include "egress/dns_message.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/guards.h"

namespace caisson::egress {
namespace {

using policy::IpAddress;

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMostLabel = 63;
constexpr std::size_t kOptSize = 11;
constexpr std::uint16_t kClassIn = 1;
constexpr unsigned kOpcodeQuery = 0;

constexpr std::uint16_t kResponse = 0x8000;
constexpr std::uint16_t kAuthoritative = 0x0400;
constexpr std::uint16_t kTruncated = 0x0200;
constexpr std::uint16_t kRecursionDesired = 0x0100;
// glibc takes an empty answer without this bit for a referral and asks on.
constexpr std::uint16_t kRecursionAvailable = 0x0080;
constexpr unsigned kOpcodeShift = 11;
// The upper byte of the extended code BADVERS (16), as it stands in an OPT.
constexpr unsigned char kBadVersionHigh = 1;
// The question's name stands right behind the header.
constexpr std::uint16_t kPointerToQuestion = 0xc000 | kHeader;

void put(std::string& out, std::uint16_t value) {
  out += static_cast<char>(value >> 8);
  out += static_cast<char>(value & 0xff);
}

void put_header(std::string& out, std::uint16_t id, std::uint16_t flags,
                const std::array<std::uint16_t, 4>& counts) {
  put(out, id);
  put(out, flags);
  for (const std::uint16_t count : counts) put(out, count);
}

void put_opt(std::string& out, unsigned char rcode_high) {
  out += '\0';  // the root
  put(out, static_cast<std::uint16_t>(DnsType::kOpt));
  put(out, kMostDnsOverUdp);
  out += static_cast<char>(rcode_high);
  out.append(3, '\0');  // version and flags
  put(out, 0);          // no options
}

class QueryParser {
 public:
  explicit QueryParser(std::string_view message) : message_(message), rest_(message) {}

  ParsedDnsQuery run() {
    ParsedDnsQuery parsed;
    if (!header(parsed) || !question(parsed) || !additional(parsed)) return parsed;
    parsed.query = std::move(query_);
    return parsed;
  }

 private:
  bool number(std::uint16_t& out) {
    if (rest_.size() < 2) return false;
    out = static_cast<std::uint16_t>(static_cast<unsigned char>(rest_[0]) << 8 |
                                     static_cast<unsigned char>(rest_[1]));
    rest_.remove_prefix(2);
    return true;
  }

  bool refuse(ParsedDnsQuery& parsed, DnsRcode rcode, std::string_view why,
              std::optional<unsigned char> opt_rcode = std::nullopt) const {
    const auto flags = static_cast<std::uint16_t>(
        kResponse | opcode_ << kOpcodeShift | (query_.recursion_desired ? kRecursionDesired : 0) |
        kRecursionAvailable | static_cast<unsigned>(rcode));
    put_header(parsed.answer, query_.id, flags,
               {0, 0, 0, static_cast<std::uint16_t>(opt_rcode.has_value() ? 1 : 0)});
    if (opt_rcode.has_value()) put_opt(parsed.answer, *opt_rcode);
    parsed.why = why;
    return false;
  }
  bool malformed(ParsedDnsQuery& parsed, std::string_view why) const {
    return refuse(parsed, DnsRcode::kFormErr, why);
  }
  static bool drop(ParsedDnsQuery& parsed, std::string_view why) {
    parsed.why = why;
    return false;
  }

  bool header(ParsedDnsQuery& parsed) {
    std::uint16_t flags = 0;
    if (!number(query_.id)) return drop(parsed, "it is too short to have an id");
    if (!number(flags)) return drop(parsed, "it is too short to tell a query from an answer");
    if ((flags & kResponse) != 0) return drop(parsed, "it is an answer");
    opcode_ = flags >> kOpcodeShift & 0xf;
    query_.recursion_desired = (flags & kRecursionDesired) != 0;
    if (message_.size() < kHeader) return malformed(parsed, "it is shorter than a header");
    if (message_.size() > kMostDnsQuery) return malformed(parsed, "it has more than 4096 bytes");
    if (opcode_ != kOpcodeQuery)
      return refuse(parsed, DnsRcode::kNotImp, "its opcode is another than QUERY");
    if ((flags & kTruncated) != 0) return malformed(parsed, "it is truncated");
    std::uint16_t questions = 0, answers = 0, authorities = 0;
    number(questions);
    number(answers);
    number(authorities);
    number(additional_);
    if (questions != 1) return malformed(parsed, "it must have one question");
    if ((answers != 0 || authorities != 0) && !guard_off(Guard::kDnsSections))
      return malformed(parsed, "it has records where a query has none");
    return true;
  }

  bool question(ParsedDnsQuery& parsed) {
    std::size_t size = 0;
    while (true) {
      if (size >= rest_.size()) return malformed(parsed, "its name ends too early");
      const std::size_t label = static_cast<unsigned char>(rest_[size]);
      if (label > kMostLabel)
        return malformed(parsed, "a label of its name is compressed or has more than 63 bytes");
      size += 1 + label;
      if (size > kMostDnsName) return malformed(parsed, "its name has more than 255 bytes");
      if (label == 0) break;
    }
    query_.name = std::string(rest_.substr(0, size));
    rest_.remove_prefix(size);
    std::uint16_t type = 0, query_class = 0;
    if (!number(type) || !number(query_class))
      return malformed(parsed, "its question ends too early");
    if (query_class != kClassIn)
      return refuse(parsed, DnsRcode::kNotImp, "its class is another than IN");
    query_.type = DnsType{type};
    return true;
  }

  // At most an OPT, whose options are not looked at.
  bool additional(ParsedDnsQuery& parsed) {
    if (guard_off(Guard::kDnsSections)) return true;
    if (additional_ > 1) return malformed(parsed, "it has more than one additional record");
    if (additional_ == 1 && !opt(parsed)) return false;
    return rest_.empty() || malformed(parsed, "something stands behind its last record");
  }

  bool opt(ParsedDnsQuery& parsed) {
    if (rest_.size() < kOptSize) return malformed(parsed, "its additional record ends too early");
    const bool root = rest_[0] == '\0';
    rest_.remove_prefix(1);
    std::uint16_t type = 0, size = 0, code_and_version = 0, flags = 0, options = 0;
    number(type);
    number(size);
    number(code_and_version);
    number(flags);
    number(options);
    if (!root || DnsType{type} != DnsType::kOpt)
      return malformed(parsed, "its additional record is another than OPT");
    if (options > rest_.size()) return malformed(parsed, "its OPT ends too early");
    rest_.remove_prefix(options);
    if ((code_and_version & 0xff) != 0)
      return refuse(parsed, DnsRcode::kNoError, "its EDNS is of another version than 0",
                    kBadVersionHigh);
    query_.edns = true;
    query_.udp_size = std::max<std::size_t>(size, kMostDnsOverUdpWithoutEdns);
    return true;
  }

  std::string_view message_, rest_;
  unsigned opcode_ = 0;
  std::uint16_t additional_ = 0;
  DnsQuery query_;
};

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

// The next label of a name on the wire; empty at the root. `wire` is one that the parser let
// through.
std::string_view take_label(std::string_view& wire) {
  const std::size_t size = wire.empty() ? 0 : static_cast<unsigned char>(wire.front());
  VERIFY(size <= kMostLabel && size < std::max<std::size_t>(wire.size(), 1));
  const std::string_view label = wire.substr(std::min<std::size_t>(1, wire.size()), size);
  wire.remove_prefix(std::min(wire.size(), size + 1));
  return label;
}

void append_display(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte > 0x20 && byte < 0x7f && c != '.' && c != '\\') {
    out += c;
    return;
  }
  out += '\\';
  for (const unsigned place : {100u, 10u, 1u}) out += static_cast<char>('0' + byte / place % 10);
}

// Four numbers of one or three digits, the last first.
std::optional<IpAddress> reverse_v4(std::string_view labels) {
  std::array<std::uint8_t, 4> bytes{};
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t dot = i + 1 < bytes.size() ? labels.find('.') : labels.size();
    if (dot == std::string_view::npos) return std::nullopt;
    text.insert(0, std::string(labels.substr(0, dot)) + (text.empty() ? "" : "."));
    labels.remove_prefix(std::min(labels.size(), dot + 1));
  }
  const auto address = IpAddress::parse(text);
  return address.has_value() && !address->is_v6() ? address : std::nullopt;
}

// 32 hexadecimal digits, the last first.
std::optional<IpAddress> reverse_v6(std::string_view labels) {
  std::array<std::uint8_t, 16> bytes{};
  constexpr std::size_t kDigits = 32;
  constexpr std::string_view kHex = "0123456789abcdef";
  if (labels.size() != 2 * kDigits - 1) return std::nullopt;
  for (std::size_t i = 0; i < kDigits; ++i) {
    const std::size_t digit = kHex.find(labels[2 * i]);
    if (digit == std::string_view::npos) return std::nullopt;
    if (i + 1 < kDigits && labels[2 * i + 1] != '.') return std::nullopt;
    bytes[(kDigits - 1 - i) / 2] |= static_cast<std::uint8_t>(digit << (i % 2 == 0 ? 0 : 4));
  }
  return IpAddress::v6(bytes);
}

}  // namespace

ParsedDnsQuery parse_dns_query(std::string_view message) {
  return QueryParser(message).run();
}

std::optional<std::string> dns_host_text(std::string_view wire) {
  std::string text;
  for (std::string_view label = take_label(wire); !label.empty(); label = take_label(wire)) {
    if (!std::all_of(label.begin(), label.end(), is_host_character)) return std::nullopt;
    if (!text.empty()) text += '.';
    text += label;
  }
  if (text.empty()) return std::nullopt;
  return text;
}

std::string dns_display_text(std::string_view wire, std::size_t most) {
  std::string text;
  for (std::string_view label = take_label(wire); !label.empty(); label = take_label(wire)) {
    if (!text.empty()) text += '.';
    for (const char c : label) append_display(text, c);
  }
  if (text.empty()) text = ".";
  text.resize(std::min(text.size(), most));
  return text;
}

std::optional<std::string> dns_wire_name(std::string_view host) {
  std::string wire;
  while (true) {
    const std::size_t dot = std::min(host.find('.'), host.size());
    if (dot == 0 || dot > kMostLabel) return std::nullopt;
    wire += static_cast<char>(dot);
    wire += host.substr(0, dot);
    if (dot == host.size()) break;
    host.remove_prefix(dot + 1);
  }
  wire += '\0';
  if (wire.size() > kMostDnsName) return std::nullopt;
  return wire;
}

std::optional<IpAddress> reverse_dns_address(std::string_view host) {
  constexpr std::string_view kV4 = ".in-addr.arpa", kV6 = ".ip6.arpa";
  if (host.ends_with(kV4)) return reverse_v4(host.substr(0, host.size() - kV4.size()));
  if (host.ends_with(kV6)) return reverse_v6(host.substr(0, host.size() - kV6.size()));
  return std::nullopt;
}

std::string DnsAnswers::addresses(std::span<const IpAddress> addresses, std::uint32_t ttl) const {
  std::vector<std::string> data;
  for (const IpAddress& address : addresses) {
    if (query_.type != (address.is_v6() ? DnsType::kAaaa : DnsType::kA)) continue;
    const auto& bytes = address.bytes();
    data.emplace_back(bytes.begin(), bytes.begin() + (address.is_v6() ? 16 : 4));
  }
  return write(DnsRcode::kNoError, data, ttl);
}

std::string DnsAnswers::services(std::span<const DnsService> services, std::uint32_t ttl) const {
  std::vector<std::string> data;
  for (const DnsService& service : services) {
    std::string& one = data.emplace_back();
    for (const std::uint16_t number : {service.priority, service.weight, service.port})
      put(one, number);
    const auto target = dns_wire_name(service.target);
    VERIFY(target.has_value());  // a canonical name
    one += *target;
  }
  return write(DnsRcode::kNoError, data, ttl);
}

std::string DnsAnswers::pointer(std::string_view wire_target, std::uint32_t ttl) const {
  const std::string data(wire_target);
  return write(DnsRcode::kNoError, std::span(&data, 1), ttl);
}

std::string DnsAnswers::empty(DnsRcode rcode) const {
  return write(rcode, {}, 0);
}

std::size_t DnsAnswers::most_bytes() const {
  if (transport_ == DnsTransport::kTcp) return UINT16_MAX;
  return query_.edns ? std::min(query_.udp_size, kMostDnsOverUdp) : kMostDnsOverUdpWithoutEdns;
}

std::string DnsAnswers::write(DnsRcode rcode, std::span<const std::string> data,
                              std::uint32_t ttl) const {
  constexpr std::size_t kRecordWithoutData = 12;
  std::size_t size =
      kHeader + query_.name.size() + 2 * sizeof(std::uint16_t) + (query_.edns ? kOptSize : 0);
  for (const std::string& one : data) size += kRecordWithoutData + one.size();
  const bool truncated = size > most_bytes();
  if (truncated) data = {};

  std::string out;
  const auto flags =
      static_cast<std::uint16_t>(kResponse | kAuthoritative | (truncated ? kTruncated : 0) |
                                 (query_.recursion_desired ? kRecursionDesired : 0) |
                                 kRecursionAvailable | static_cast<unsigned>(rcode));
  put_header(out, query_.id, flags,
             {1, static_cast<std::uint16_t>(data.size()), 0,
              static_cast<std::uint16_t>(query_.edns ? 1 : 0)});
  out += query_.name;
  put(out, static_cast<std::uint16_t>(query_.type));
  put(out, kClassIn);
  for (const std::string& one : data) {
    put(out, kPointerToQuestion);
    put(out, static_cast<std::uint16_t>(query_.type));
    put(out, kClassIn);
    put(out, static_cast<std::uint16_t>(ttl >> 16));
    put(out, static_cast<std::uint16_t>(ttl & 0xffff));
    put(out, static_cast<std::uint16_t>(one.size()));
    out += one;
  }
  if (query_.edns) put_opt(out, 0);
  return out;
}

DnsFrame next_dns_frame(std::string_view bytes) {
  DnsFrame frame;
  if (bytes.size() < 2) return frame;
  const std::size_t size =
      std::size_t{static_cast<unsigned char>(bytes[0])} << 8 | static_cast<unsigned char>(bytes[1]);
  if (size < kHeader || size > kMostDnsQuery) {
    frame.state = DnsFrame::State::kRefused;
  } else if (bytes.size() >= 2 + size) {
    frame = {DnsFrame::State::kWhole, bytes.substr(2, size), 2 + size};
  }
  return frame;
}

std::string dns_frame(std::string_view message) {
  VERIFY(message.size() <= UINT16_MAX);
  std::string frame;
  put(frame, static_cast<std::uint16_t>(message.size()));
  frame += message;
  return frame;
}

}  // namespace caisson::egress
