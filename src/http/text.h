// What is allowed in the words of HTTP, and how they are compared. Pure, without allocation.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

namespace caisson::http {

inline char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Names of headers and most words of their values know no case.
inline bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

inline bool is_letter_or_digit(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z');
}

inline bool is_token(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || kOthers.find(c) != std::string_view::npos;
  });
}

// Printable ASCII without the space.
inline bool is_visible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// No control character but the tab. Bytes above 0x7f are allowed and mean nothing to us.
inline bool is_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

inline std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// The first line of a text whose lines all end with CR LF; it is taken from the text.
inline std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
  return line;
}

// A header's line, NAME: VALUE. nullopt: malformed (also: blanks before the colon, a line that
// continues the one before it).
struct HeaderLine {
  std::string_view name, value;
};
inline std::optional<HeaderLine> parse_header_line(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return std::nullopt;
  const HeaderLine header{line.substr(0, colon), trimmed(line.substr(colon + 1))};
  if (!is_value(header.value)) return std::nullopt;
  return header;
}

}  // namespace caisson::http
