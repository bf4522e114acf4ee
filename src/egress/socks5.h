// The numbers of SOCKS5 that both of its sides here use: RFC 1928, and RFC 1929 for user names.
#pragma once

#include <cstdint>

namespace caisson::egress::socks5 {

inline constexpr std::uint8_t kVersion = 5;
inline constexpr std::uint8_t kLoginVersion = 1;

inline constexpr std::uint8_t kNoLogin = 0x00, kLogin = 0x02, kNoMethod = 0xff;

inline constexpr std::uint8_t kConnect = 0x01;

inline constexpr std::uint8_t kIpv4 = 0x01, kName = 0x03, kIpv6 = 0x04;
inline constexpr std::size_t kIpv4Bytes = 4, kIpv6Bytes = 16, kPortBytes = 2;

enum class Reply : std::uint8_t {
  kDone = 0,
  kFailure = 1,
  kNotAllowed = 2,
  kNetworkUnreachable = 3,
  kHostUnreachable = 4,
  kRefused = 5,
  kExpired = 6,
  kNoSuchCommand = 7,
  kNoSuchAddress = 8,
};

}  // namespace caisson::egress::socks5
