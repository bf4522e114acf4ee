#include "cli/table.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace caisson::cli {
namespace {

std::string two_digits(std::int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

// Characters rather than bytes: those of UTF-8 that do not continue one.
std::size_t width_of(std::string_view cell) {
  return static_cast<std::size_t>(std::ranges::count_if(
      cell, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string TextTable::text() const {
  std::vector<std::size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string out;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string duration_text(std::int64_t milliseconds) {
  milliseconds = std::max<std::int64_t>(milliseconds, 0);
  if (milliseconds < 1000) return std::to_string(milliseconds) + "ms";
  const std::int64_t seconds = milliseconds / 1000;
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m" + two_digits(seconds % 60) + "s";
  if (seconds < 86400)
    return std::to_string(seconds / 3600) + "h" + two_digits(seconds / 60 % 60) + "m";
  return std::to_string(seconds / 86400) + "d" + two_digits(seconds / 3600 % 24) + "h";
}

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  std::uint64_t tenths = bytes * 10;
  while (tenths >= 10240 && unit + 1 < kUnits.size()) {
    tenths = (tenths + 512) / 1024;
    ++unit;
  }
  std::string out = std::to_string(tenths / 10);
  if (unit > 0 && tenths < 1000) out += "." + std::to_string(tenths % 10);
  return out + " " + std::string(kUnits[unit]);
}

}  // namespace caisson::cli
