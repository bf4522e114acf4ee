#include "policy/complain.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/encoding.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxQuoted = 80;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
char folded(char c) {
  return c == '-' ? '_' : lower(c);
}

// Insertions, deletions and replacements that make `b` of `a`, case and dashes set aside.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (folded(a[i]) == folded(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

bool begins_with(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(),
                    [](char a, char b) { return folded(a) == folded(b); });
}

bool is_plain_word(std::string_view key) {
  return !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), [](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

Error wrong(std::string_view key, std::string_view found, std::string_view allowed) {
  std::string message(key);
  message += ": found ";
  message += found;
  message += "; allowed is ";
  message += allowed;
  return Error::invalid(std::move(message));
}

std::string quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  bool cut = false;
  while (!text.empty() && !cut) {
    std::string piece;
    // One character at a time, so that none is cut in its middle.
    std::size_t length = 1;
    while (length < 4 && length < text.size() && !is_utf8(text.substr(0, length))) ++length;
    const std::string_view character = text.substr(0, length);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool c1_control =
        character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
    if (!is_utf8(character) || first < 0x20 || first == 0x7f || c1_control) {
      length = c1_control ? 2 : 1;
      for (std::size_t i = 0; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        piece += "\\x";
        piece += kHex[byte >> 4];
        piece += kHex[byte & 15];
      }
    } else {
      if (first == '"' || first == '\\') piece += '\\';
      piece += character;
    }
    if (out.size() + piece.size() > kMaxQuoted) {
      cut = true;
    } else {
      out += piece;
      text.remove_prefix(length);
    }
  }
  out += cut ? "…\"" : "\"";
  return out;
}

std::string key_below(std::string_view path, std::string_view key) {
  std::string out(path);
  if (is_plain_word(key)) {
    if (!out.empty()) out += '.';
    out += key;
  } else {
    out += '[';
    out += quote(key);
    out += ']';
  }
  return out;
}

std::string_view nearest(std::string_view word, const std::string_view* known, std::size_t count) {
  std::string_view best;
  if (word.size() > 40) return best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : std::vector(known, known + count)) {
    std::size_t d = distance(word, candidate);
    // An abbreviation ("mem") or a longer form ("cpu_milli" for cpu…) is as near as one slip.
    if (word.size() >= 2 && (begins_with(candidate, word) || begins_with(word, candidate))) {
      d = std::min<std::size_t>(d, 1);
    }
    // Nothing of the word is left where every letter would change.
    if (d >= std::max(word.size(), candidate.size())) continue;
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string alternatives(const std::string_view* words, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += i + 1 == count ? " or " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace caisson::policy
