#include "policy/units.h"

#include <array>
#include <span>

#include "policy/complain.h"

namespace caisson::policy {
namespace {

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};

constexpr std::uint64_t kKilo = 1000;
constexpr std::uint64_t kMega = kKilo * 1000;
constexpr std::uint64_t kGiga = kMega * 1000;
constexpr std::uint64_t kTera = kGiga * 1000;
constexpr std::uint64_t kPeta = kTera * 1000;

// The order in which the written forms are tried.
constexpr std::array<Suffix, 20> kSizes = {{
    {"PiB", 1ull << 50}, {"TiB", 1ull << 40},
    {"GiB", 1ull << 30}, {"MiB", 1ull << 20},
    {"KiB", 1ull << 10}, {"PB", kPeta},
    {"TB", kTera},       {"GB", kGiga},
    {"MB", kMega},       {"kB", kKilo},
    {"KB", kKilo},       {"P", kPeta},
    {"T", kTera},        {"G", kGiga},
    {"M", kMega},        {"k", kKilo},
    {"K", kKilo},        {"B", 1},
    {"bytes", 1},        {"", 1},
}};
constexpr std::array<Suffix, 5> kCounts = {
    {{"G", kGiga}, {"M", kMega}, {"k", kKilo}, {"K", kKilo}, {"", 1}}};
constexpr std::array<Suffix, 1> kCpus = {{{"", 1000}}};
constexpr std::array<Suffix, 5> kDurations = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

std::span<const Suffix> suffixes(LimitUnit unit) {
  switch (unit) {
    case LimitUnit::kCpus:
      return kCpus;
    case LimitUnit::kBytes:
    case LimitUnit::kByteRate:
      return kSizes;
    case LimitUnit::kCount:
    case LimitUnit::kCountRate:
      return kCounts;
    case LimitUnit::kDuration:
      return kDurations;
  }
  return {};
}

constexpr std::string_view kPerSecond = "/s";

bool is_rate(LimitUnit unit) {
  return unit == LimitUnit::kByteRate || unit == LimitUnit::kCountRate;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::unexpected<Error> refuse(std::string found, std::string_view allowed) {
  return fail(Error::invalid("found " + found + "; allowed is " + std::string(allowed)));
}

Result<std::uint64_t> parse_amount(LimitUnit unit, std::string_view text) {
  const auto bad = [&](std::string_view why) {
    std::string found = quote(text);
    if (!why.empty()) found.append(" (").append(why).append(")");
    return refuse(std::move(found), describe(unit));
  };
  if (text.empty()) return bad("");
  if (text[0] == '-') return bad("a negative amount");
  std::size_t i = 0;
  while (i < text.size() && is_digit(text[i])) ++i;
  const std::string_view whole = text.substr(0, i);
  std::string_view fraction;
  if (i < text.size() && text[i] == '.') {
    const std::size_t begin = ++i;
    while (i < text.size() && is_digit(text[i])) ++i;
    fraction = text.substr(begin, i - begin);
    if (fraction.empty()) return bad("no digit after the point");
    // Trailing zeros carry nothing.
    while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
    if (fraction.size() > 9) return bad("more than nine decimals");
  }
  if (whole.empty()) return bad("an amount begins with a digit");
  std::string_view suffix = text.substr(i);
  if (is_rate(unit) && suffix.ends_with(kPerSecond)) suffix.remove_suffix(kPerSecond.size());
  const Suffix* match = nullptr;
  for (const Suffix& s : suffixes(unit)) {
    if (s.text == suffix) match = &s;
  }
  if (match == nullptr) {
    return bad(suffix.empty() ? std::string("no unit") : "no unit " + quote(suffix));
  }

  std::string digits(whole);
  digits += fraction;
  unsigned __int128 value = 0;
  constexpr auto kTop = static_cast<unsigned __int128>(UINT64_MAX) * 1'000'000'000u;
  for (const char c : digits) {
    value = value * 10 + static_cast<unsigned>(c - '0');
    if (value > kTop) return bad("too large");
  }
  unsigned __int128 divisor = 1;
  for (std::size_t k = 0; k < fraction.size(); ++k) divisor *= 10;
  // At most 2^64 · 10^9 · 10^15, which is below 2^128 only after the whole part is bounded: divide
  // first by what both have in common.
  unsigned __int128 factor = match->factor;
  while (divisor > 1 && factor % 10 == 0) {
    divisor /= 10;
    factor /= 10;
  }
  if (value != 0 && factor > ~static_cast<unsigned __int128>(0) / value) return bad("too large");
  value *= factor;
  if (value % divisor != 0) {
    return bad(unit == LimitUnit::kCpus ? "finer than a thousandth" : "not a whole amount");
  }
  value /= divisor;
  if (value > UINT64_MAX) return bad("too large");
  if (value == 0) {
    return refuse(quote(text) + " (zero)",
                  "an amount above zero; write unlimited where no limit is meant");
  }
  return static_cast<std::uint64_t>(value);
}

std::string format_amount(LimitUnit unit, std::uint64_t value) {
  if (unit == LimitUnit::kCpus) {
    std::string out = std::to_string(value / 1000);
    std::string decimals = std::to_string(1000 + value % 1000).substr(1);
    while (!decimals.empty() && decimals.back() == '0') decimals.pop_back();
    if (!decimals.empty()) out.append(".").append(decimals);
    return out;
  }
  // The form with the fewest digits, of several the first: 2GB rather than 1953125KiB.
  std::string digits = std::to_string(value);
  std::string_view unit_text = unit == LimitUnit::kDuration ? "ms" : "";
  for (const Suffix& s : suffixes(unit)) {
    if (s.factor == 1 || value % s.factor != 0) continue;
    std::string fewer = std::to_string(value / s.factor);
    if (fewer.size() >= digits.size()) continue;
    digits = std::move(fewer);
    unit_text = s.text;
  }
  digits.append(unit_text);
  return is_rate(unit) ? digits.append(kPerSecond) : digits;
}

}  // namespace

std::string_view describe(LimitUnit unit) {
  switch (unit) {
    case LimitUnit::kCpus:
      return "a number of processors such as 1, 0.5 or 2.25, or unlimited";
    case LimitUnit::kBytes:
      return "a size such as 512MiB, 1GB, 64k or 65536 (bytes), or unlimited";
    case LimitUnit::kCount:
      return "a count such as 256, 100k or 1M, or unlimited";
    case LimitUnit::kDuration:
      return "a duration with its unit, such as 500ms, 30s, 2m or 1h, or unlimited";
    case LimitUnit::kByteRate:
      return "bytes a second such as 10MiB/s, 1GB/s or 65536, or unlimited";
    case LimitUnit::kCountRate:
      return "operations a second such as 500/s, 10k or 100, or unlimited";
  }
  return "";
}

Result<std::uint64_t> parse_size(std::string_view text) {
  return parse_amount(LimitUnit::kBytes, text);
}
Result<std::uint64_t> parse_count(std::string_view text) {
  return parse_amount(LimitUnit::kCount, text);
}
Result<std::uint64_t> parse_cpus(std::string_view text) {
  return parse_amount(LimitUnit::kCpus, text);
}
Result<std::uint64_t> parse_duration(std::string_view text) {
  return parse_amount(LimitUnit::kDuration, text);
}

Result<LimitValue> parse_limit(LimitUnit unit, std::string_view text) {
  if (text == "unlimited") return LimitValue();
  TRY_ASSIGN(const std::uint64_t value, parse_amount(unit, text));
  return LimitValue(value);
}

std::string format_limit(LimitUnit unit, LimitValue value) {
  return value.has_value() ? format_amount(unit, *value) : "unlimited";
}

}  // namespace caisson::policy
