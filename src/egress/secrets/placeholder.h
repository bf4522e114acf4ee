// What stands for a secret inside a sandbox, and which values a secret may have.
//
// A placeholder looks enough like the value that programs which check the form of their tokens
// take it, and has nothing of the value but, where the shape lets it, its length: then the length
// of a message does not change when the gateway puts the value in. Made of RFC 3986's unreserved
// characters, so that no client escapes it in a URL, a form, JSON or a header. Pure: random bytes
// come from the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <caisson/secrets.h>

#include "base/error.h"

namespace caisson::egress {

// Shorter values would be found by chance in what servers answer, and guessed.
inline constexpr std::size_t kLeastSecret = 8;
inline constexpr std::size_t kMostSecret = 4096;

// 8 to 4096 bytes without control characters (which would end a header). Error: invalid_argument;
// it says nothing of the value but its length and where the character is.
Status check_secret_value(std::string_view value);
// The same of a value that answers may have (SecretInjection::scrub): 1 to 4096 bytes.
Status check_open_value(std::string_view value);
// What is allowed of this rule's.
Status check_value_of(const policy::SecretRule& rule, std::string_view value);

// So many random bytes; base/secret.h's random_bytes in programs.
using RandomBytes = std::function<std::string(std::size_t)>;

// At least 128 random bits, but for the id of an AWS access key, whose form has room for 80. As
// long as the value, where that leaves room for them:
//   length     letters and digits
//   prefix     the prefix, then letters and digits
//   jwt        three parts; HS256, an end in the year 2100, and nothing else that means something
//   aws        AKIA and 16 characters for a value of 20, 40 letters and digits for one of 40
//   none       32 letters and digits
// Error: invalid_argument, from check_secret_value(), and for a value that is no AWS key's.
Result<std::string> make_placeholder(const policy::SecretShape& shape, std::string_view value,
                                     const RandomBytes& random);

// What stands for this rule's value; nobody gets that of one that is injected. Of credentials that
// sign, whatever the values are: an access key's id, AKIA (of temporary ones ASIA) and 16
// characters, where the value has as many, and letters and digits as long as the value, 16 at
// least, where it has not; else make_placeholder()'s of the shape length. Error: that of
// check_value_of(), and make_placeholder()'s.
Result<std::string> placeholder_of(const policy::SecretRule& rule, std::string_view value,
                                   const RandomBytes& random);

inline constexpr std::size_t kLeastPlaceholder = 16;
// Whether the text could be a placeholder: 16 to 4160 unreserved characters.
bool is_placeholder(std::string_view text);

}  // namespace caisson::egress
