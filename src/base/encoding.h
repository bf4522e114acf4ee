// Text checks and encodings that several layers need: whether bytes are UTF-8, base64 for the bytes
// that are not, and hexadecimal digits. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace caisson {

// The length of the longest prefix that is well-formed UTF-8 (no surrogates, no overlong forms,
// nothing above U+10FFFF); equal to bytes.size() where all of it is.
std::size_t utf8_prefix(std::string_view bytes);
inline bool is_utf8(std::string_view bytes) {
  return utf8_prefix(bytes) == bytes.size();
}

// The standard alphabet with padding.
std::string base64_encode(std::string_view bytes);
// nullopt unless `text` is exactly what base64_encode() gives for some bytes.
std::optional<std::string> base64_decode(std::string_view text);

// The same in the alphabet of URLs without padding (RFC 4648, section 5).
std::string base64url_encode(std::string_view bytes);
std::optional<std::string> base64url_decode(std::string_view text);

// Two lower-case hexadecimal digits a byte.
std::string hex_encode(std::string_view bytes);

}  // namespace caisson
