#include "guest/process_stat.h"

#include <charconv>

namespace caisson::guest {
namespace {

// The number at the start of `text`, and the blank behind it taken off.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return value;
}

void skip_field(std::string_view& text) {
  const std::size_t blank = text.find(' ');
  text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view line) {
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
      line.size() < close + 4)
    return std::nullopt;
  ProcessStat stat;
  stat.name = line.substr(open + 1, close - open - 1);
  std::string_view rest = line.substr(close + 4);  // behind ") S "
  const auto parent = take_number(rest);
  if (!parent || *parent > UINT32_MAX) return std::nullopt;
  stat.parent = static_cast<std::uint32_t>(*parent);
  constexpr int kBetween = 9;  // from the process group to the major faults of children
  for (int i = 0; i < kBetween; ++i) skip_field(rest);
  constexpr int kTimes = 4;  // user, system, and both of children
  for (int i = 0; i < kTimes; ++i) {
    const auto ticks = take_number(rest);
    if (!ticks) return std::nullopt;
    stat.ticks += *ticks;
  }
  return stat;
}

}  // namespace caisson::guest
