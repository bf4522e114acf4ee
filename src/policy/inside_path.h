// What may be a path inside a sandbox. Paths are checked, never repaired: what a user reads in a
// spec is what is mounted. The launch plan's reader applies the same rules again. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace caisson::policy {

inline constexpr std::size_t kMaxPath = 4096;
inline constexpr std::size_t kMaxComponent = 255;

// Empty where `path` is absolute, normalised (no ".", "..", empty component or trailing slash; "/"
// itself is normal), without NUL and of bearable length; else what is allowed instead.
std::string_view path_fault(std::string_view path);
// The same for a path at which something may be mounted or copied: neither "/" nor /proc, /dev,
// /sys or anything below them.
std::string_view target_fault(std::string_view path);

// Whether `path` lies below `directory`; both normalised.
bool is_below(std::string_view path, std::string_view directory);

// `path` without ".", empty components and trailing slashes, and with ".." resolved as text (what a
// leading ".." of a relative path stands for stays). "" becomes ".". For host paths of which only
// the text is known, and for suggestions.
std::string normalised(std::string_view path);

}  // namespace caisson::policy
