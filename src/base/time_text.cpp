#include "base/time_text.h"

#include <cstdint>
#include <cstdio>

namespace caisson {
namespace {

// Takes exactly `digits` digits from the front of `text`; -1 where there are none.
int take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return -1;
  int number = 0;
  for (std::size_t index = 0; index < digits; ++index) {
    if (text[index] < '0' || text[index] > '9') return -1;
    number = number * 10 + (text[index] - '0');
  }
  text.remove_prefix(digits);
  return number;
}

bool take(std::string_view& text, std::string_view either) {
  if (text.empty() || either.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// ".678" as nanoseconds; zero where there is no point; nullopt: malformed.
std::optional<std::chrono::nanoseconds> take_fraction(std::string_view& text) {
  if (!take(text, ".")) return std::chrono::nanoseconds(0);
  std::int64_t value = 0;
  std::size_t digits = 0;
  while (digits < 9) {
    const int digit = take_number(text, 1);
    if (digit < 0) break;
    value = value * 10 + digit;
    ++digits;
  }
  if (digits == 0) return std::nullopt;
  for (; digits < 9; ++digits) value *= 10;
  return std::chrono::nanoseconds(value);
}

std::optional<std::chrono::minutes> take_offset(std::string_view& text) {
  if (take(text, "Zz")) return std::chrono::minutes(0);
  const bool west = text.starts_with('-');
  if (!take(text, "+-")) return std::nullopt;
  const int hours = take_number(text, 2);
  if (hours < 0 || hours > 23 || !take(text, ":")) return std::nullopt;
  const int minutes = take_number(text, 2);
  if (minutes < 0 || minutes > 59) return std::nullopt;
  const std::chrono::minutes offset(hours * 60 + minutes);
  return west ? -offset : offset;
}

}  // namespace

std::string time_text(WallTime time) {
  const auto micros = std::chrono::floor<std::chrono::microseconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(micros);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(micros - day);
  char text[64];
  const int size = std::snprintf(
      text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return std::string(text, static_cast<std::size_t>(size));
}

std::optional<WallTime> parse_time(std::string_view text) {
  const int year = take_number(text, 4);
  if (year < 1970 || year > 2200 || !take(text, "-")) return std::nullopt;
  const int month = take_number(text, 2);
  if (month < 0 || !take(text, "-")) return std::nullopt;
  const int day = take_number(text, 2);
  if (day < 0 || !take(text, "Tt ")) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  const int hour = take_number(text, 2);
  if (!date.ok() || hour < 0 || hour > 23 || !take(text, ":")) return std::nullopt;
  const int minute = take_number(text, 2);
  if (minute < 0 || minute > 59 || !take(text, ":")) return std::nullopt;
  const int second = take_number(text, 2);
  if (second < 0 || second > 60) return std::nullopt;  // 60: a leap second
  const std::optional<std::chrono::nanoseconds> fraction = take_fraction(text);
  if (!fraction.has_value()) return std::nullopt;
  const std::optional<std::chrono::minutes> offset = take_offset(text);
  if (!offset.has_value() || !text.empty()) return std::nullopt;
  return std::chrono::time_point_cast<WallTime::duration>(
      std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
      std::chrono::seconds(second) + *fraction - *offset);
}

}  // namespace caisson
