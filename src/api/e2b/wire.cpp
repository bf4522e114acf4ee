#include "api/e2b/wire.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "api/e2b/wire_binary.h"
#include "api/e2b/wire_json.h"

namespace caisson::api::e2b {

Result<json::Value> decode_message(const WireMessage& message, Encoding encoding,
                                   std::string_view bytes) {
  return encoding == Encoding::kJson ? decode_json(message, bytes) : decode_binary(message, bytes);
}

std::string encode_message(const WireMessage& message, Encoding encoding,
                           const json::Value& value) {
  return encoding == Encoding::kJson ? encode_json(message, value) : encode_binary(message, value);
}

std::string rfc3339(std::int64_t nanoseconds) {
  using namespace std::chrono;
  const sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(nanoseconds)};
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  std::array<char, 40> text = {};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d",
                static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  std::string result = text.data();
  const std::int64_t fraction = clock.subseconds().count();
  if (fraction != 0) {
    std::string digits = std::to_string(fraction);
    digits.insert(0, 9 - digits.size(), '0');
    while (digits.ends_with("000")) digits.resize(digits.size() - 3);
    result += "." + digits;
  }
  return result + "Z";
}

std::optional<std::int64_t> parse_rfc3339(std::string_view text) {
  using namespace std::chrono;
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() <= kForm.size() || text.back() != 'Z') return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == 'd' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (std::size_t i = at; i < at + digits; ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  const year_month_day date(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                            day(static_cast<unsigned>(number(8, 2))));
  // What 64 bits of nanoseconds hold, in whole years.
  if (!date.ok() || date.year() < year(1678) || date.year() > year(2261)) return std::nullopt;
  if (number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59) return std::nullopt;
  std::int64_t fraction = 0;
  std::string_view rest = text.substr(kForm.size(), text.size() - kForm.size() - 1);
  if (!rest.empty()) {
    rest.remove_prefix(1);
    if (text[kForm.size()] != '.' || rest.empty() || rest.size() > 9) return std::nullopt;
    if (!std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; }))
      return std::nullopt;
    for (std::size_t i = 0; i < 9; ++i) {
      const int digit = i < rest.size() ? rest[i] - '0' : 0;
      fraction = fraction * 10 + digit;
    }
  }
  const auto time = sys_days(date).time_since_epoch() + hours(number(11, 2)) +
                    minutes(number(14, 2)) + seconds(number(17, 2));
  return duration_cast<nanoseconds>(time).count() + fraction;
}

std::string_view text_of(const json::Value& value, std::string_view name) {
  const json::Value* found = value.find(name);
  const std::string* text = found != nullptr ? found->as_string() : nullptr;
  return text != nullptr ? std::string_view(*text) : std::string_view();
}

std::int64_t number_of(const json::Value& value, std::string_view name) {
  const json::Value* found = value.find(name);
  const std::int64_t* number = found != nullptr ? found->as_integer() : nullptr;
  return number != nullptr ? *number : 0;
}

bool truth_of(const json::Value& value, std::string_view name) {
  const json::Value* found = value.find(name);
  const bool* truth = found != nullptr ? found->as_bool() : nullptr;
  return truth != nullptr && *truth;
}

}  // namespace caisson::api::e2b
