// Names of images: `NAME` or `NAME:TAG`, as in "base", "team/python:3.12".
//
// A name is one or more components joined by '/', each made of lower-case letters, digits, '.', '_'
// and '-', beginning and ending with a letter or digit; a tag is letters, digits, '_', '.' and '-',
// not beginning with '.' or '-'. Without a tag it is "latest". `host` is no image but the view of
// the host's own /usr, so the store refuses it. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxNameSize = 128;
inline constexpr std::size_t kMaxTagSize = 64;
inline constexpr std::string_view kHostImage = "host";

struct Reference {
  std::string name;
  std::string tag = "latest";

  // "name:tag".
  std::string text() const { return name + ":" + tag; }
  // As a file name: one component, no two references share it.
  std::string file_name() const;
  bool operator==(const Reference&) const = default;
};

// Error: invalid, naming what was found and what is allowed.
Result<Reference> parse_reference(std::string_view text);
// The inverse of Reference::file_name().
Result<Reference> parse_reference_file_name(std::string_view file_name);

// `bytes` fit for a message: everything but printable ASCII as \xNN, at most `limit` characters.
std::string printable(std::string_view bytes, std::size_t limit = 200);

}  // namespace caisson::image
