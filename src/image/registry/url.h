// The few URLs that the registry client handles: https and http with a host, and where a redirect
// leads. Strict: what is no plain URL in ASCII without user information is refused. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxUrlSize = 16 << 10;

struct Url {
  bool secure = true;  // https
  std::string host;    // lower case, "[::1]" with its brackets
  std::uint16_t port = 443;
  std::string target = "/";  // path and query, without a fragment

  // "registry.example.com", with ":PORT" where it is not the scheme's own.
  std::string authority() const;
  std::string text() const;
  // For messages: without the query, which may hold signatures.
  std::string shown() const;
  // Whether a request there may carry what was meant for `other`.
  bool same_origin(const Url& other) const {
    return secure == other.secure && host == other.host && port == other.port;
  }
  bool operator==(const Url&) const = default;
};

Result<Url> parse_url(std::string_view text);
// Of a Location header in the answer to a request of `base`.
Result<Url> resolve_url(const Url& base, std::string_view location);

// "localhost", names below it, 127.0.0.0/8 and ::1, by their text alone.
bool is_loopback_host(std::string_view host);

// `text` with everything but letters, digits and "-._~" as %XX.
std::string percent_encode(std::string_view text);

}  // namespace caisson::image
