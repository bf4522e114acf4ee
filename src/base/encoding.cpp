#include "base/encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace caisson {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

consteval std::array<std::int8_t, 256> reverse_alphabet() {
  std::array<std::int8_t, 256> table{};
  table.fill(-1);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return table;
}
constexpr std::array<std::int8_t, 256> kReverse = reverse_alphabet();

unsigned byte_at(std::string_view bytes, std::size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}

// The length of the well-formed sequence that starts at `i`, 0 where there is none.
std::size_t sequence_length(std::string_view bytes, std::size_t i) {
  const unsigned first = byte_at(bytes, i);
  if (first < 0x80) return 1;
  std::size_t length = 0;
  // The second byte's range rules out overlong forms, surrogates and code points above U+10FFFF.
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (bytes.size() - i < length) return 0;
  if (byte_at(bytes, i + 1) < low || byte_at(bytes, i + 1) > high) return 0;
  for (std::size_t k = 2; k < length; ++k) {
    if ((byte_at(bytes, i + k) & 0xc0u) != 0x80u) return 0;
  }
  return length;
}

}  // namespace

std::size_t utf8_prefix(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const std::size_t length = sequence_length(bytes, i);
    if (length == 0) break;
    i += length;
  }
  return i;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = bytes.size() - i;
    std::uint32_t group = byte_at(bytes, i) << 16;
    if (left > 1) group |= byte_at(bytes, i + 1) << 8;
    if (left > 2) group |= byte_at(bytes, i + 2);
    out += kAlphabet[group >> 18 & 63];
    out += kAlphabet[group >> 12 & 63];
    out += left > 1 ? kAlphabet[group >> 6 & 63] : '=';
    out += left > 2 ? kAlphabet[group & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::size_t padding = 0;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const bool last_group = i + 4 == text.size();
      if (c == '=' && last_group && k >= 2) {
        ++padding;
        group <<= 6;
        continue;
      }
      const int value = kReverse[static_cast<unsigned char>(c)];
      if (value < 0 || padding != 0) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    // Bits that the padding leaves over must be zero: one text for each value.
    if (padding == 1 && (group & 0xffu) != 0) return std::nullopt;
    if (padding == 2 && (group & 0xffffu) != 0) return std::nullopt;
    out += static_cast<char>(group >> 16 & 0xff);
    if (padding < 2) out += static_cast<char>(group >> 8 & 0xff);
    if (padding < 1) out += static_cast<char>(group & 0xff);
  }
  return out;
}

std::string base64url_encode(std::string_view bytes) {
  std::string text = base64_encode(bytes);
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  while (text.ends_with('=')) text.pop_back();
  return text;
}

std::optional<std::string> base64url_decode(std::string_view text) {
  if (text.find_first_of("+/=") != text.npos) return std::nullopt;
  std::string standard(text);
  std::ranges::replace(standard, '-', '+');
  std::ranges::replace(standard, '_', '/');
  while (standard.size() % 4 != 0) standard += '=';
  return base64_decode(standard);
}

std::string hex_encode(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace caisson
