// The name of an archive's entry, made safe: a list of components below the image's root. Names are
// bytes, as Linux has them; what is refused is what could leave the root or cannot exist. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxEntryName = 4095;      // PATH_MAX without its zero
inline constexpr std::size_t kMaxEntryComponent = 255;  // NAME_MAX
inline constexpr std::size_t kMaxEntryDepth = 256;

struct EntryName {
  // Components joined by '/', without "." or empty ones; empty for the root itself.
  std::string path;
  bool absolute = false;  // it began with '/', which was taken away

  bool is_root() const { return path.empty(); }
  std::string_view parent() const;
  std::string_view last() const;
};

// Error: invalid, quoting the name, for "..", a component or name that is too long, more than
// kMaxEntryDepth components, or a zero byte.
Result<EntryName> parse_entry_name(std::string_view name);

}  // namespace caisson::image
