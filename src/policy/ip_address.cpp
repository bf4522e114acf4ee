#include "policy/ip_address.h"

#include <algorithm>
#include <charconv>

#include "base/guards.h"
#include "policy/complain.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kWords = 8;
using Words = std::array<std::uint16_t, kWords>;

constexpr std::string_view kAllowedBlock =
    "an IPv4 address (192.0.2.1), an IPv6 address without brackets and zone (2001:db8::1), or "
    "the first address of a block with the number of its leading bits (192.0.2.0/24)";

// The number that is all of `text`, in digits of `base` alone; nullopt where it is above `most`.
std::optional<unsigned> number(std::string_view text, int base, std::size_t most_digits,
                               unsigned most) {
  unsigned value = 0;
  if (text.empty() || text.size() > most_digits) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::optional<unsigned> decimal(std::string_view text, std::size_t most_digits, unsigned most) {
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return number(text, 10, most_digits, most);
}

// What stands before the next `separator`, which is taken off too; all of the rest without one.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t at = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return part;
}

std::optional<std::array<std::uint8_t, 4>> parse_v4(std::string_view text) {
  if (std::count(text.begin(), text.end(), '.') != 3) return std::nullopt;
  std::array<std::uint8_t, 4> bytes{};
  for (std::uint8_t& byte : bytes) {
    const auto value = decimal(next_part(text, '.'), 3, 255);
    if (!value) return std::nullopt;
    byte = static_cast<std::uint8_t>(*value);
  }
  return bytes;
}

// The words of one side of "::", or of the whole; false where they are more than the room or
// malformed. An IPv4 address may be the last part of the text, where `tail` says so.
bool parse_words(std::string_view text, bool tail, Words& words, std::size_t& count) {
  count = 0;
  while (!text.empty()) {
    const bool last = text.find(':') == std::string_view::npos;
    const std::string_view part = next_part(text, ':');
    if (!last && text.empty()) return false;  // a colon at the end
    if (last && tail && part.find('.') != std::string_view::npos) {
      const auto four = parse_v4(part);
      if (!four || count + 2 > kWords) return false;
      words[count++] = static_cast<std::uint16_t>((*four)[0] << 8 | (*four)[1]);
      words[count++] = static_cast<std::uint16_t>((*four)[2] << 8 | (*four)[3]);
      continue;
    }
    const auto value = number(part, 16, 4, 0xffff);
    if (!value || count == kWords) return false;
    words[count++] = static_cast<std::uint16_t>(*value);
  }
  return true;
}

std::optional<std::array<std::uint8_t, 16>> parse_v6(std::string_view text) {
  Words words{}, after{};
  std::size_t count = 0, count_after = 0;
  const std::size_t gap = text.find("::");
  if (gap == std::string_view::npos) {
    if (!parse_words(text, true, words, count) || count != kWords) return std::nullopt;
  } else {
    // The gap stands for one word at least. A second gap leaves an empty word.
    if (!parse_words(text.substr(0, gap), false, words, count) ||
        !parse_words(text.substr(gap + 2), true, after, count_after) ||
        count + count_after >= kWords)
      return std::nullopt;
    std::copy_n(after.begin(), count_after, words.end() - static_cast<std::ptrdiff_t>(count_after));
  }
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < kWords; ++i) {
    bytes[2 * i] = static_cast<std::uint8_t>(words[i] >> 8);
    bytes[2 * i + 1] = static_cast<std::uint8_t>(words[i]);
  }
  return bytes;
}

// The longest run of two zero words or more, the first of equal ones; an empty one at the end.
struct Run {
  std::size_t begin = kWords;
  std::size_t length = 0;
};
Run zero_run(const Words& words) {
  Run best;
  for (std::size_t begin = 0; begin < kWords;) {
    std::size_t end = begin;
    while (end < kWords && words[end] == 0) ++end;
    if (end - begin >= 2 && end - begin > best.length) best = {begin, end - begin};
    begin = end + 1;
  }
  return best;
}

constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// The address with every bit behind the first `bits` cleared.
IpAddress first_of(const IpAddress& address, unsigned bits) {
  std::array<std::uint8_t, 16> bytes = address.bytes();
  for (unsigned i = 0; i < bytes.size(); ++i) {
    const unsigned kept = bits > 8 * i ? std::min(8u, bits - 8 * i) : 0;
    bytes[i] &= static_cast<std::uint8_t>(0xff00u >> kept);
  }
  if (address.is_v6()) return IpAddress::v6(bytes);
  return IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
}

Error no_block(std::string_view text, std::string_view reason) {
  return Error::invalid(quote(text) + " " + std::string(reason) + "; allowed is " +
                        std::string(kAllowedBlock));
}

}  // namespace

IpAddress IpAddress::v4(std::array<std::uint8_t, 4> bytes) {
  IpAddress address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

IpAddress IpAddress::v6(std::array<std::uint8_t, 16> bytes) {
  if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin()) && !guard_off(Guard::kV4Mapped))
    return v4({bytes[12], bytes[13], bytes[14], bytes[15]});
  IpAddress address;
  address.is_v6_ = true;
  address.bytes_ = bytes;
  return address;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (text.find(':') == std::string_view::npos) {
    const auto four = parse_v4(text);
    return four ? std::optional(v4(*four)) : std::nullopt;
  }
  const auto six = parse_v6(text);
  return six ? std::optional(v6(*six)) : std::nullopt;
}

std::string IpAddress::to_string() const {
  std::string text;
  if (!is_v6_) {
    for (std::size_t i = 0; i < 4; ++i) text += (i == 0 ? "" : ".") + std::to_string(bytes_[i]);
    return text;
  }
  Words words{};
  for (std::size_t i = 0; i < kWords; ++i)
    words[i] = static_cast<std::uint16_t>(bytes_[2 * i] << 8 | bytes_[2 * i + 1]);
  const Run gap = zero_run(words);
  for (std::size_t i = 0; i < kWords; ++i) {
    if (i == gap.begin) {
      text += "::";
      i += gap.length - 1;
      continue;
    }
    if (i != 0 && !text.ends_with(':')) text += ':';
    char digits[4];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, words[i], 16);
    text.append(digits, end);
  }
  return text;
}

Result<Cidr> Cidr::parse(std::string_view text) {
  TRY_ASSIGN(const Cidr block, parse_around(text));
  const auto address = IpAddress::parse(text.substr(0, text.find('/')));
  if (block.network_ != *address)
    return fail(Error::invalid(quote(text) + " is an address inside a block; the block is " +
                               block.to_string() + ", the address alone " + address->to_string()));
  return block;
}

Result<Cidr> Cidr::parse_around(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  if (!address) return fail(no_block(text, "is no address and no block of addresses"));
  const unsigned all = address->is_v6() ? 128 : 32;
  if (slash == std::string_view::npos) return Cidr(*address, all);
  // 96 bits of the text are the form, where IPv4 was written as IPv6.
  const bool mapped = !address->is_v6() && text.find(':') < slash;
  const unsigned form = mapped ? 96 : 0;
  const auto bits = decimal(text.substr(slash + 1), 3, all + form);
  if (!bits || *bits < form)
    return fail(no_block(text, "has behind its slash no number from " + std::to_string(form) +
                                   " to " + std::to_string(all + form)));
  return around(*address, *bits - form);
}

Cidr Cidr::around(const IpAddress& address, unsigned bits) {
  return {first_of(address, bits), bits};
}

IpAddress IpAddress::with_flipped(unsigned index) const {
  IpAddress other = *this;
  other.bytes_[index / 8] ^= static_cast<std::uint8_t>(0x80u >> (index % 8));
  return other;
}

bool Cidr::contains(const IpAddress& address) const {
  return address.is_v6() == network_.is_v6() && first_of(address, bits_) == network_;
}

std::string Cidr::to_string() const {
  return network_.to_string() + "/" + std::to_string(bits_);
}

}  // namespace caisson::policy
