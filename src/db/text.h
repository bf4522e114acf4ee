// Texts from outside, as this folder's errors show them and its rows take them. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::db {

// The text in double quotes, without control characters, and cut where it is long.
std::string quoted(std::string_view text);

// A name that people give for people: UTF-8 without control characters, at most 128 bytes, perhaps
// empty. Error: invalid_argument, naming `what`.
Status check_label(std::string_view what, std::string_view text);

// The longest beginning of `text` that has at most `limit` bytes and cuts no character.
std::string_view cut(std::string_view text, std::size_t limit);

}  // namespace caisson::db
