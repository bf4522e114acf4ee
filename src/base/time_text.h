// Times as clients write and read them: RFC 3339. Pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace caisson {

using WallTime = std::chrono::system_clock::time_point;

// "2026-01-02T03:04:05.678000Z": microseconds, rounded down, so that a sandbox is never older than
// the time that it is listed with.
std::string time_text(WallTime time);
// With any offset and up to nine digits of a second; years 1970 to 2200. nullopt: malformed.
std::optional<WallTime> parse_time(std::string_view text);

}  // namespace caisson
