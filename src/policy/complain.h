// The one form of every refusal of this folder: which key, what was found there, what is allowed.
// What was found may be hostile: it is quoted, its control characters are escaped, and it is cut.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::policy {

// "KEY: found FOUND; allowed is ALLOWED" as an invalid_argument.
Error wrong(std::string_view key, std::string_view found, std::string_view allowed);

// The text in double quotes, fit for a terminal and at most about 80 bytes long.
std::string quote(std::string_view text);

// The path of `key` below `path`: "limits.memory", or env["odd key"] where the key is no plain
// word.
std::string key_below(std::string_view path, std::string_view key);

// The known word that somebody who wrote `word` most likely meant; empty where none is near.
std::string_view nearest(std::string_view word, const std::string_view* known, std::size_t count);

// "a, b or c".
std::string alternatives(const std::string_view* words, std::size_t count);

// Whether an enumerator that a program gave is one; `names` has them all.
template <typename Enum, std::size_t N>
Status check_enum(std::string_view key, Enum value, const std::array<std::string_view, N>& names) {
  const auto index = static_cast<std::size_t>(value);
  if (index < N) return {};
  return fail(wrong(key, "the number " + std::to_string(index), alternatives(names.data(), N)));
}

}  // namespace caisson::policy
