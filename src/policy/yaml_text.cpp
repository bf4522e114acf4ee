#include "policy/yaml_text.h"

#include <algorithm>
#include <string>

namespace caisson::policy {
namespace {

// Whether every YAML reader takes the unquoted word as text. Amounts such as 512MiB and 0.5 are
// words too: what begins with a digit and is no amount of ours is quoted by the caller's choice of
// kText.
bool is_plain_word(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !(letter(text[0]) || text[0] == '/' || text[0] == '_')) return false;
  if (!std::all_of(text.begin(), text.end(), [&](char c) {
        return letter(c) || digit(c) || c == '/' || c == '_' || c == '.' || c == '-';
      })) {
    return false;
  }
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const std::string_view word :
       {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

void write_escape(unsigned long code, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const int digits = code <= 0xff ? 2 : code <= 0xffff ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += kHex[code >> (4 * i) & 15];
}

// `text` is UTF-8. ASCII without control characters stands as it is, everything else as an escape,
// because readers differ in which characters they take for line ends or drop.
void write_quoted(std::string_view text, std::string& out) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      if (first == '"' || first == '\\') out += '\\';
      if (first < 0x20 || first == 0x7f) {
        write_escape(first, out);
      } else {
        out += text[i];
      }
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    unsigned long code = first & (0x7fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3fu);
    }
    write_escape(code, out);
    i += length;
  }
  out += '"';
}

}  // namespace

void write_yaml_text(std::string_view text, std::string& out) {
  if (is_plain_word(text)) {
    out += text;
  } else {
    write_quoted(text, out);
  }
}

}  // namespace caisson::policy
