// Where the strings at some JSON pointers stand in a JSON text, so that a value is put into them
// and every other byte stays as it was: what a server verifies or streams must not be written anew.
//
// Strict, since the server behind reads the same text with another parser: RFC 8259 and nothing
// behind it, UTF-8, no key twice in an object, no lone surrogate. Pure, bounded, fuzzed
// (fuzz/json_span_fuzz.cpp).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::egress {

inline constexpr std::size_t kMostJsonDepth = 64;

struct JsonSpan {
  std::size_t pointer = 0;         // its place among the pointers
  std::size_t begin = 0, end = 0;  // what is between the quotes
  bool operator==(const JsonSpan&) const = default;
};

// Each pointer is its words (policy::parse_json_pointer). In the text's order; what is at a pointer
// but no string, and what is not there, has no span. Error: invalid_argument, with the byte.
Result<std::vector<JsonSpan>> find_json_strings(std::string_view text,
                                                std::span<const std::vector<std::string>> pointers);

}  // namespace caisson::egress
