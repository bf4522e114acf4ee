// The words of a Dockerfile: variables, quotes and escapes, as Docker documents them.
//
//   Variables variables = {{"VERSION", "12"}};
//   expand("/opt/${VERSION:-9}", '\\', lookup(variables))   // "/opt/12"
//
// Outside of quotes the escape character takes the next character as it is; in single quotes
// nothing has a meaning; in double quotes the escape character is one before `"`, `$` and itself.
// Quotes are removed. `$NAME` and `${NAME}` are the variable's value, empty where it is not set;
// `${NAME:-WORD}`, `${NAME-WORD}`, `${NAME:+WORD}`, `${NAME+WORD}`, `${NAME:?WORD}` and
// `${NAME?WORD}` mean what they mean to a shell. Pure functions; what they make is bounded.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::build {

inline constexpr std::size_t kMaxExpanded = 256 * 1024;
inline constexpr std::size_t kMaxExpandDepth = 16;

using Variables = std::map<std::string, std::string>;
// The value of a variable; nullopt: not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

Lookup lookup(const Variables& variables);

// kText: a here-document's content, where quotes have no meaning and the escape character only
// stands before `$`, a backquote and itself.
enum class Quoting { kWord, kText };

// One word. Error: invalid (a quote or brace that is not closed, a form of `${…}` that is not
// supported, a `:?` that found nothing), exhausted.
Result<std::string> expand(std::string_view text, char escape, const Lookup& variables,
                           Quoting quoting = Quoting::kWord);

// Splits at white space outside of quotes; quotes and escapes stay in the words. Error: invalid for
// a quote that is not closed.
Result<std::vector<std::string>> split_quoted(std::string_view text, char escape);
// Splits at white space, whatever is quoted.
std::vector<std::string> split_blank(std::string_view text);

// Without blanks and tabs at its ends.
std::string_view trim(std::string_view text);
bool is_variable_name(std::string_view name);

}  // namespace caisson::build
