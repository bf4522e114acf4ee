// The kernel's tables in /proc and in control group files are lines of words.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace caisson::wall {

// The parts between separators, empty ones left out. They live as long as `text`.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace caisson::wall
