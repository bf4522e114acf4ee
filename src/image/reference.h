// Names of images: `NAME[:TAG][@sha256:HEX]`, as in "base", "team/python:3.12",
// "registry.example.com:5000/team/tool:1.2".
//
// A name is one or more components joined by '/', each made of lower-case letters, digits, '.', '_'
// and '-', beginning and ending with a letter or digit. Where there are several components and the
// first has a '.' or a ':' or is "localhost", it is a registry's host and port; any other name is
// short and means an image of the local store, or of the default registry when it is pulled. A tag
// is letters, digits, '_', '.' and '-', not beginning with '.' or '-'. Without a tag and without a
// digest it is "latest"; a name with a digest alone has no tag. `host` is no image but the view of
// the host's own /usr, so the store refuses it. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxNameSize = 128;
inline constexpr std::size_t kMaxTagSize = 128;
// Of Reference::file_name(): what a directory takes, less what names under way put around it.
inline constexpr std::size_t kMaxReferenceFileName = 240;
inline constexpr std::string_view kHostImage = "host";

struct Reference {
  std::string name;  // with the registry's host and port, where it has one
  std::string tag = "latest";
  std::string digest = {};  // 64 hexadecimal digits of the manifest; empty: whatever the tag means

  // "registry.example.com:5000"; empty for a short name.
  std::string_view registry() const;
  // The name without the registry: "team/tool".
  std::string_view repository() const;
  // What a registry's manifest is asked for by: "sha256:HEX", else the tag.
  std::string selector() const;
  // "name:tag", "name@sha256:HEX" or "name:tag@sha256:HEX".
  std::string text() const;
  // As a file name: one component, no two references share it.
  std::string file_name() const;
  bool operator==(const Reference&) const = default;
};

// Error: invalid, naming what was found and what is allowed.
Result<Reference> parse_reference(std::string_view text);
// The inverse of Reference::file_name().
Result<Reference> parse_reference_file_name(std::string_view file_name);
// HOST or HOST:PORT, as a reference or a setting names a registry.
bool is_registry_name(std::string_view text);

// `bytes` fit for a message: everything but printable ASCII as \xNN, at most `limit` characters.
std::string printable(std::string_view bytes, std::size_t limit = 200);

}  // namespace caisson::image
