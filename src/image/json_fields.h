// Reading fields out of JSON that came from elsewhere: each function takes the path of the value
// ("manifests[2].platform") for its error, which says what was found and what is allowed. A key
// that is absent and one that is null are the same: Go's programs write either. Pure functions,
// internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace caisson::image {

struct Field {
  const json::Value* value = nullptr;  // null: absent
  std::string path;

  // The member `key`, absent where this is absent or null.
  Field at(std::string_view key) const;
  Field at(std::size_t index) const;
  bool present() const { return value != nullptr && !value->is_null(); }
};

// "PATH: found FOUND; allowed is ALLOWED".
Error wrong_field(const Field& field, std::string_view allowed);

// The whole text as an object.
Result<json::Value> parse_object(std::string_view text, std::string_view what, std::size_t limit);

// Absent: empty. Texts hold no NUL byte.
Result<std::string> text_of(const Field& field);
Result<std::string> required_text(const Field& field);
Result<std::vector<std::string>> texts_of(const Field& field);
Result<std::map<std::string, std::string>> text_map_of(const Field& field);
// Keys of a mapping whose values nobody looks at.
Result<std::vector<std::string>> keys_of(const Field& field);
Result<bool> truth_of(const Field& field);
Result<std::uint64_t> required_size(const Field& field);
// The items of a list; absent: none. Not more than `most`.
Result<std::vector<Field>> items_of(const Field& field, std::size_t most);
// "sha256:HEX" as HEX.
Result<std::string> required_digest(const Field& field);
Result<std::string> digest_text(std::string_view text, const std::string& path);

}  // namespace caisson::image
