// libraries: policy base
// parser: src/policy/ip_address.cpp src/policy/ip_class.cpp
//
// Addresses and blocks: each line of the input, and all of it. The C library is the oracle.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/ip_address.h"
#include "policy/ip_class.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::policy;

// What the C library reads there, in our form.
std::optional<IpAddress> theirs(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  std::array<std::uint8_t, 16> six{};
  std::array<std::uint8_t, 4> four{};
  if (::inet_pton(AF_INET, std::string(text).c_str(), four.data()) == 1) return IpAddress::v4(four);
  if (::inet_pton(AF_INET6, std::string(text).c_str(), six.data()) == 1) return IpAddress::v6(six);
  return std::nullopt;
}

void check_address(std::string_view text) {
  const auto address = IpAddress::parse(text);
  VERIFY(address == theirs(text));
  if (!address) return;
  const std::string spelled = address->to_string();
  VERIFY(IpAddress::parse(spelled) == address && spelled.size() < INET6_ADDRSTRLEN);
  VERIFY(spelled.find_first_not_of("0123456789abcdef:.") == std::string::npos);
  VERIFY(!address->is_v6() || spelled.find('.') == std::string::npos);
  VERIFY(to_string(classify(*address)) != "unknown");
  // NAT64's well-known prefix changes nothing about what an IPv4 address is.
  const auto& bytes = address->bytes();
  if (!address->is_v6()) {
    std::array<std::uint8_t, 16> translated = {0x00, 0x64, 0xff, 0x9b};
    std::copy_n(bytes.begin(), 4, translated.begin() + 12);
    VERIFY(classify(IpAddress::v6(translated)) == classify(*address));
    translated[5] = 1;
    VERIFY(classify(IpAddress::v6(translated)) == IpClass::kTranslated);
  }
  // Of IPv6 the Internet has 2000::/3.
  if (address->is_v6() && classify(*address) == IpClass::kGlobal)
    VERIFY(bytes[0] >> 5 == 1 || spelled.starts_with("64:ff9b::"));
}

void check_block(std::string_view text) {
  const auto block = Cidr::parse(text);
  if (!block) {
    VERIFY(!block.error().message().empty() && !IpAddress::parse(text));
    return;
  }
  VERIFY(Cidr::parse(block->to_string()).value() == *block);
  VERIFY(block->contains(block->network()));
  VERIFY(block->is_single() == (Cidr::parse(block->network().to_string()).value() == *block));
  // The last address of the block is in it, and what differs in the block's last bit is not.
  std::array<std::uint8_t, 16> last = block->network().bytes();
  const unsigned all = block->network().is_v6() ? 128 : 32;
  for (unsigned bit = block->bits(); bit < all; ++bit)
    last[bit / 8] |= static_cast<std::uint8_t>(0x80 >> bit % 8);
  const auto made = [&] {
    return all == 128 ? IpAddress::v6(last) : IpAddress::v4({last[0], last[1], last[2], last[3]});
  };
  VERIFY(block->contains(made()) || made().is_v6() != block->network().is_v6());
  if (block->bits() == 0) return;
  last[(block->bits() - 1) / 8] ^= static_cast<std::uint8_t>(0x80 >> (block->bits() - 1) % 8);
  VERIFY(!block->contains(made()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  check_address(rest);
  check_block(rest);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    check_address(line);
    check_block(line);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return 0;
}
