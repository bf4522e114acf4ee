// Paths as clients of the data plane name them, made absolute. Pure.
//
// A path may be absolute, relative to the working directory that commands get too, or begin with
// "~". What comes out is absolute and normal: no empty segment, no "." and no "..", which are
// resolved by name and not by what links inside the sandbox mean. It decides nothing about access:
// the guest opens it with the rights of whoever asks.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::api::e2b {

inline constexpr std::size_t kMaxPath = 4095;
inline constexpr std::size_t kMaxName = 255;

// What a relative path is relative to.
struct PathBase {
  std::string home;     // absolute
  std::string workdir;  // empty: the home
};

// Whether resolving it needs to know PathBase::home where there is no working directory.
bool needs_home(std::string_view given, std::string_view workdir);

// An empty path is the base itself. Error: invalid_argument for a zero byte, another user's
// "~name", and what is longer than the kernel takes.
Result<std::string> resolve_path(std::string_view given, const PathBase& base);

// The last segment; "/" of the root itself.
std::string_view base_name(std::string_view path);

}  // namespace caisson::api::e2b
