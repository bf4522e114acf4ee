// An IP address and a block of them, as a policy names them and as a connection is judged.
//
// Our own reader and not inet_pton's, because what is taken for an address must be the same
// everywhere, whatever C library a program is linked with; the tests hold it against inet_pton's.
// An address has one form only: an IPv4-mapped IPv6 address (::ffff:0:0/96) *is* its IPv4 address
// from the moment it is made, so that no later comparison can take the one for another than the
// other. Pure values, any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::policy {

class IpAddress {
 public:
  // 0.0.0.0
  IpAddress() = default;
  // In the order of the wire.
  static IpAddress v4(std::array<std::uint8_t, 4> bytes);
  // A mapped address becomes its IPv4 one.
  static IpAddress v6(std::array<std::uint8_t, 16> bytes);
  // Four decimal numbers without leading zeros, or the text of RFC 4291 (an IPv4 tail too) without
  // brackets and zone; nullopt for every other spelling.
  static std::optional<IpAddress> parse(std::string_view text);

  bool is_v6() const { return is_v6_; }
  // In the order of the wire; those of an IPv4 address are the first four, and the rest is zero.
  const std::array<std::uint8_t, 16>& bytes() const { return bytes_; }
  // The same with the bit at `index` the other way round, counted from the first one.
  IpAddress with_flipped(unsigned index) const;
  // The one spelling: dotted, or that of RFC 5952. parse() takes it back.
  std::string to_string() const;

  // IPv4 before IPv6, then by the bytes.
  std::strong_ordering operator<=>(const IpAddress&) const = default;
  bool operator==(const IpAddress&) const = default;

 private:
  bool is_v6_ = false;
  std::array<std::uint8_t, 16> bytes_{};
};

// A block of addresses of one family: ADDRESS/BITS.
class Cidr {
 public:
  // A bare address is the block of itself alone. A block in IPv4-mapped form is the IPv4 one.
  // Error: invalid_argument for what is no block, and for an address inside a block instead of its
  // first one, with the block that was probably meant.
  static Result<Cidr> parse(std::string_view text);
  // The same, but an address inside a block means the block: for those who write them so.
  static Result<Cidr> parse_around(std::string_view text);

  // The block of so many bits that the address is in.
  static Cidr around(const IpAddress& address, unsigned bits);

  // An IPv4 block holds IPv4 addresses alone, an IPv6 one IPv6 addresses alone.
  bool contains(const IpAddress& address) const;
  // Whether it is one address.
  bool is_single() const { return bits_ == (network_.is_v6() ? 128 : 32); }
  const IpAddress& network() const { return network_; }
  // How many leading bits are the block's: 0 to 32, or to 128.
  unsigned bits() const { return bits_; }
  // ADDRESS/BITS, also for one address; parse() takes it back.
  std::string to_string() const;
  bool operator==(const Cidr&) const = default;

 private:
  Cidr(const IpAddress& network, unsigned bits) : network_(network), bits_(bits) {}
  IpAddress network_;
  unsigned bits_;
};

}  // namespace caisson::policy
