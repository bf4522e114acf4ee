#include "db/text.h"

#include <algorithm>

#include "base/encoding.h"

namespace caisson::db {
namespace {

constexpr std::size_t kMaxQuoted = 64;
constexpr std::size_t kMaxLabel = 128;

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::string quoted(std::string_view text) {
  // What is no UTF-8 ends it.
  const std::string_view kept = cut(text, kMaxQuoted);
  std::string out = "\"";
  for (const char c : kept) out += is_control(c) ? '?' : c;
  out += kept.size() < text.size() ? "…\"" : "\"";
  return out;
}

Status check_label(std::string_view what, std::string_view text) {
  if (text.size() <= kMaxLabel && is_utf8(text) && std::ranges::none_of(text, is_control)) {
    return {};
  }
  return fail(
      Error::invalid(std::string(what) + ": found " + quoted(text) +
                     "; allowed are at most 128 bytes of UTF-8 without control characters"));
}

std::string_view cut(std::string_view text, std::size_t limit) {
  return text.substr(0, utf8_prefix(text.substr(0, limit)));
}

}  // namespace caisson::db
