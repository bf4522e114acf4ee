// What a registry's answer says beside the body that was asked for: how long to wait, which part it
// is, why there is none. A registry is hostile; what is malformed says nothing. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace caisson::image {

// Whoever asks for more is waited for no longer: what is reckoned with it stays in range.
inline constexpr std::chrono::hours kMostRetryAfter{24};

// How long a Retry-After asks to wait, at most kMostRetryAfter: seconds, or a date (against `now`,
// seconds since 1970). Nullopt where it is malformed.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now);
// "bytes FIRST-LAST/…": FIRST.
std::optional<std::uint64_t> parse_range_start(std::string_view content_range);
// The messages in a registry's error, for people; empty where there are none.
std::string error_messages(std::string_view body);

}  // namespace caisson::image
