// The target of a request, in its one spelling, and the patterns that a policy has for paths.
//
// A filter that matches another path than the server behind it takes is no filter. So the path that
// is matched is the path that is sent, and what servers are known to read in different ways (an
// encoded slash, a backslash, `..;x`, an escape within an escape, …) is refused and not guessed at:
// the answer to it is 400. Pure; the time of every function here is bounded by the sizes below.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::policy {

// Of a target, as it came and in its canonical spelling.
inline constexpr std::size_t kMaxTarget = 16 * 1024;
// Of a pattern, as written and with its alternatives written out.
inline constexpr std::size_t kMaxPathPattern = 1024;

struct Target {
  // Begins with a slash (or is "*"); bytes of RFC 3986's pchar and slashes alone; no segment is
  // empty (but the last, of a path that ends with a slash), "." or "..".
  std::string path;
  // Empty, or with its question mark; as it came.
  std::string query;

  // What is sent.
  std::string text() const { return path + query; }
  bool operator==(const Target&) const = default;
};

// `origin_form` is "/PATH[?QUERY]", or "*" (which only OPTIONS may have: the caller's matter; no
// pattern matches it). Escapes of unreserved characters are decoded, other escapes get upper-case
// digits, bytes that RFC 3986 has no place for get escapes, "." and ".." are resolved, slashes in
// a row become one. Error: invalid_argument, with what cannot be read in one way only.
Result<Target> canonical_target(std::string_view origin_form);

// A pattern for whole paths, e.g. /repos/acme/**, /users/*/keys, /v1/{models,files}.
class PathPattern {
 public:
  // Absolute, at most kMaxPathPattern bytes. In a segment `*` is any number of characters, but a
  // segment that is `*` alone is not empty; `{a,b}` is one of the words, which may hold `*`; a
  // segment that is `**` is any number of segments, also none, so that /a/** matches /a, /a/ and
  // /a/b/c. Everything else is itself, in any spelling that canonical_target() takes for the same.
  // Error: invalid_argument, also for what no canonical path could match.
  static Result<PathPattern> parse(std::string_view text);

  // `canonical_path` is Target::path. Letter case counts.
  bool matches(std::string_view canonical_path) const;
  // As it was written.
  const std::string& text() const { return text_; }
  bool operator==(const PathPattern&) const = default;

 private:
  struct Segment {
    bool is_any_number = false;             // `**`
    std::vector<std::string> alternatives;  // canonical but for `*`; at least one
    bool operator==(const Segment&) const = default;
  };
  PathPattern() = default;
  static Result<Segment> parse_segment(std::string_view text, std::string_view whole);

  std::string text_;
  std::vector<Segment> segments_;
};

}  // namespace caisson::policy
