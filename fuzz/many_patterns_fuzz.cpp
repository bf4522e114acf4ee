// libraries: secrets policy base
// parser: src/egress/secrets/many_patterns.cpp
//
// The search for many texts at once: what it sees is what a search for each of them sees. A line
// for each pattern, an empty line, the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "egress/secrets/many_patterns.h"

namespace {

using namespace caisson::egress;  // NOLINT: a program of one file

struct Input {
  std::vector<std::string_view> patterns;
  std::string_view text;
};

Input read(std::string_view bytes) {
  Input input;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (line.empty()) break;
    input.patterns.push_back(line);
  }
  input.text = bytes.substr(0, 512);
  return input;
}

// The leftmost, of those the longest, of those the first.
std::optional<PatternMatch> simple_find(const Input& input, std::size_t from) {
  for (std::size_t begin = from; begin < input.text.size(); ++begin) {
    std::optional<PatternMatch> best;
    for (std::size_t i = 0; i < input.patterns.size(); ++i) {
      const std::string_view pattern = input.patterns[i];
      if (!input.text.substr(begin).starts_with(pattern)) continue;
      if (!best || begin + pattern.size() > best->end)
        best = PatternMatch{i, begin, begin + pattern.size()};
    }
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Input input = read({reinterpret_cast<const char*>(data), size});
  const auto patterns = ManyPatterns::create(input.patterns);
  VERIFY(patterns.has_value() && patterns->count() == input.patterns.size());

  ManyPatterns::State state = ManyPatterns::kStart;
  for (std::size_t i = 0; i < input.text.size(); ++i) {
    state = patterns->next(state, static_cast<unsigned char>(input.text[i]));
    const std::string_view seen = input.text.substr(0, i + 1);
    std::size_t longest = 0, open = 0;
    for (const std::string_view pattern : input.patterns) {
      if (seen.ends_with(pattern)) longest = std::max(longest, pattern.size());
      for (std::size_t part = std::min(pattern.size() - 1, seen.size()); part > open; --part) {
        if (seen.ends_with(pattern.substr(0, part))) open = part;
      }
    }
    const auto ends = patterns->ends(state);
    VERIFY((ends ? patterns->size(*ends) : 0) == longest);
    VERIFY(!ends || seen.ends_with(input.patterns[*ends]));
    VERIFY(patterns->open(state) == open);
  }
  for (std::size_t from = 0; from <= input.text.size();) {
    const auto match = patterns->find(input.text, from);
    VERIFY(match == simple_find(input, from));
    from = match ? match->end : input.text.size() + 1;
  }
  return 0;
}
