// The body of a request: one JSON object, read field by field.
//
// Each reader gives nullopt for a field that is absent or null, and for one that is not as it must
// be an invalid_argument "path: found …; allowed is …". Bounds are the caller's to name: nothing of
// a client is kept without one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "http/server.h"
#include "io/async.h"

namespace caisson::api {

// The longest JSON body that an API takes.
inline constexpr std::size_t kMostBody = 1 << 20;

// The whole body as a JSON object. Errors: out_of_range where it is too long, invalid_argument
// where it is no object. With kOptional no body at all is an empty object. The exchange holds
// nothing of it afterwards.
enum class Body : std::uint8_t { kRequired, kOptional };
io::Async<Result<json::Value>> read_object(http::Exchange& exchange, Body body);
// The same of a text that is here already.
Result<json::Value> parse_object(std::string_view text, Body body);

// One object of a body. Borrows it.
class Object {
 public:
  // `path` is put before the keys in messages; empty for the body itself.
  explicit Object(const json::Value& value, std::string path = "")
      : value_(&value), path_(std::move(path)) {}

  Result<std::optional<std::string>> text(std::string_view key, std::size_t most_bytes) const;
  Result<std::optional<bool>> truth(std::string_view key) const;
  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t least,
                                              std::int64_t most) const;
  Result<std::optional<std::vector<std::string>>> texts(std::string_view key, std::size_t most,
                                                        std::size_t most_bytes) const;
  // An object whose values are texts.
  struct MapLimits {
    std::size_t entries, key_bytes, value_bytes;
  };
  Result<std::optional<std::map<std::string, std::string>>> map(std::string_view key,
                                                                MapLimits limits) const;
  Result<std::optional<Object>> object(std::string_view key) const;
  // The objects of an array.
  Result<std::optional<std::vector<Object>>> objects(std::string_view key, std::size_t most) const;
  // Null where it is absent or null.
  const json::Value* find(std::string_view key) const;
  const json::Value& value() const { return *value_; }

  // The path of a field, for messages of who judges it further.
  std::string path_of(std::string_view key) const;
  // Error: a key that is not one of these.
  Status only(std::initializer_list<std::string_view> keys) const;

 private:
  const json::Value* value_;
  std::string path_;
};

}  // namespace caisson::api
