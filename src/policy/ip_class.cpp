#include "policy/ip_class.h"

#include <algorithm>
#include <array>

#include "base/guards.h"

namespace caisson::policy {
namespace {

using Bytes = std::array<std::uint8_t, 16>;

// The block of the leading `bits` of `bytes`.
struct Entry {
  Bytes bytes;
  unsigned bits;
  IpClass ip_class;
};

// The first entry that holds an address decides, so what lies in another block stands before it.
constexpr Entry kFour[] = {
    {{0, 0, 0, 0}, 32, IpClass::kUnspecified},
    {{0}, 8, IpClass::kReserved},  // "this network"
    {{10}, 8, IpClass::kPrivate},
    {{100, 100, 100, 200}, 32, IpClass::kMetadata},
    {{100, 64}, 10, IpClass::kShared},
    {{127}, 8, IpClass::kLoopback},
    {{168, 63, 129, 16}, 32, IpClass::kMetadata},  // a wire server, in the Internet's own range
    {{169, 254, 0, 23}, 32, IpClass::kMetadata},
    {{169, 254, 42, 42}, 32, IpClass::kMetadata},
    {{169, 254, 169}, 24, IpClass::kMetadata},  // and the name and time servers beside it
    {{169, 254, 170}, 24, IpClass::kMetadata},  // credentials of containers
    {{169, 254}, 16, IpClass::kLinkLocal},
    {{172, 16}, 12, IpClass::kPrivate},
    {{192, 0, 0, 192}, 32, IpClass::kMetadata},
    {{192, 0, 0}, 24, IpClass::kReserved},  // protocol assignments
    {{192, 0, 2}, 24, IpClass::kDocumentation},
    {{192, 88, 99}, 24, IpClass::kTranslated},  // relays of 6to4
    {{192, 168}, 16, IpClass::kPrivate},
    {{198, 18}, 15, IpClass::kBenchmark},
    {{198, 51, 100}, 24, IpClass::kDocumentation},
    {{203, 0, 113}, 24, IpClass::kDocumentation},
    {{224}, 4, IpClass::kMulticast},
    {{240}, 4, IpClass::kReserved},  // 255.255.255.255 among it
};

constexpr Entry kSix[] = {
    {{}, 128, IpClass::kUnspecified},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, IpClass::kLoopback},
    {{}, 96, IpClass::kTranslated},                                    // "compatible" with IPv4
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, IpClass::kTranslated},  // RFC 2765
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, IpClass::kTranslated},  // NAT64 of a network's own
    {{0x20, 0x01, 0x00, 0x00}, 32, IpClass::kTranslated},              // Teredo
    {{0x20, 0x01, 0x00, 0x02, 0x00, 0x00}, 48, IpClass::kBenchmark},
    {{0x20, 0x01, 0x00}, 23, IpClass::kReserved},  // protocol assignments
    {{0x20, 0x01, 0x0d, 0xb8}, 32, IpClass::kDocumentation},
    {{0x20, 0x02}, 16, IpClass::kTranslated},  // 6to4
    {{0x3f, 0xff, 0x00}, 20, IpClass::kDocumentation},
    {{0x20}, 3, IpClass::kGlobal},
    {{0xfd, 0x00, 0x0e, 0xc2}, 32, IpClass::kMetadata},
    {{0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128, IpClass::kMetadata},
    {{0xfc}, 7, IpClass::kPrivate},
    {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa9, 0xfe, 0xa9, 0xfe}, 128, IpClass::kMetadata},
    {{0xfe, 0x80}, 10, IpClass::kLinkLocal},
    {{0xfe, 0xc0}, 10, IpClass::kPrivate},  // site-local
    {{0xff}, 8, IpClass::kMulticast},
};

// What these would be taken for without their guards.
constexpr Entry kMapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, IpClass::kGlobal};
constexpr Entry kOwnNat64 = {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, IpClass::kGlobal};
constexpr Entry kSiteLocal = {{0xfe, 0xc0}, 10, IpClass::kGlobal};
constexpr Entry kNat64 = {{0x00, 0x64, 0xff, 0x9b}, 96, IpClass::kTranslated};

bool within(const Bytes& address, const Entry& entry) {
  const std::size_t whole = entry.bits / 8;
  if (!std::equal(address.begin(), address.begin() + whole, entry.bytes.begin())) return false;
  if (entry.bits % 8 == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff00u >> (entry.bits % 8));
  return ((address[whole] ^ entry.bytes[whole]) & mask) == 0;
}

template <std::size_t size>
IpClass look_up(const Bytes& address, const Entry (&table)[size], IpClass otherwise) {
  const Entry* const found =
      std::find_if(table, table + size, [&](const Entry& entry) { return within(address, entry); });
  return found == table + size ? otherwise : found->ip_class;
}

}  // namespace

IpClass classify(const IpAddress& address) {
  const Bytes& bytes = address.bytes();
  if (!address.is_v6()) return look_up(bytes, kFour, IpClass::kGlobal);
  if (guard_off(Guard::kV4Mapped) && within(bytes, kMapped)) return kMapped.ip_class;
  if (guard_off(Guard::kNat64) && (within(bytes, kNat64) || within(bytes, kOwnNat64)))
    return kOwnNat64.ip_class;
  if (within(bytes, kNat64))
    return classify(IpAddress::v4({bytes[12], bytes[13], bytes[14], bytes[15]}));
  // Of IPv6 2000::/3 is given out and nothing else.
  const IpClass found = look_up(bytes, kSix, IpClass::kReserved);
  if (guard_off(Guard::kIpTranslated) &&
      (found == IpClass::kTranslated || within(bytes, kSiteLocal)))
    return kSiteLocal.ip_class;
  return found;
}

std::string_view to_string(IpClass ip_class) {
  switch (ip_class) {
    case IpClass::kGlobal:
      return "global";
    case IpClass::kUnspecified:
      return "unspecified";
    case IpClass::kLoopback:
      return "loopback";
    case IpClass::kPrivate:
      return "private";
    case IpClass::kShared:
      return "shared";
    case IpClass::kLinkLocal:
      return "link-local";
    case IpClass::kMetadata:
      return "metadata";
    case IpClass::kMulticast:
      return "multicast";
    case IpClass::kReserved:
      return "reserved";
    case IpClass::kDocumentation:
      return "documentation";
    case IpClass::kBenchmark:
      return "benchmark";
    case IpClass::kTranslated:
      return "translated";
  }
  return "unknown";
}

}  // namespace caisson::policy
