// JSON: a small value type, a bounded parser and a writer. The parser is Boost.JSON's, which only
// json.cpp sees. Objects keep the order of their members, and a key that occurs twice is an error,
// because two readers of such a text need not agree on its meaning. Plain values; nothing throws.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace caisson::json {

class Value;
struct Member;

class Value {
 public:
  using Array = std::vector<Value>;
  using Object = std::vector<Member>;

  enum class Kind { kNull, kBool, kInteger, kUnsigned, kDouble, kString, kArray, kObject };

  Value();
  Value(std::nullptr_t);
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  template <std::same_as<bool> T>
  Value(T value) : Value(Truth{value}) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Value(T value)
      : Value(Bits{static_cast<std::uint64_t>(value), std::in_range<std::int64_t>(value)}) {}
  Value(double value);
  Value(std::string value);
  Value(std::string_view value);
  Value(const char* value);
  Value(Array items);
  Value(Object members);

  static Value array();
  static Value object();

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }

  // Null where the value is of another kind.
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const std::int64_t* as_integer() const { return std::get_if<std::int64_t>(&data_); }
  const std::uint64_t* as_unsigned() const { return std::get_if<std::uint64_t>(&data_); }
  const double* as_double() const { return std::get_if<double>(&data_); }
  const std::string* as_string() const { return std::get_if<std::string>(&data_); }
  const Array* as_array() const { return std::get_if<Array>(&data_); }
  const Object* as_object() const { return std::get_if<Object>(&data_); }
  // The member of that name; null where this is no object or has none.
  const Value* find(std::string_view key) const;

  // For building: the value must be an array (push) or an object (set, which replaces).
  Value& push(Value item);
  Value& set(std::string_view key, Value value);

  bool operator==(const Value&) const;

 private:
  struct Truth {
    bool value;
  };
  // kUnsigned is only for what does not fit an int64_t, so that equal numbers compare equal.
  struct Bits {
    std::uint64_t bits;
    bool fits_signed;
  };
  explicit Value(Truth truth);
  explicit Value(Bits number);

  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      data_;
};

struct Member {
  std::string key;
  Value value;
  bool operator==(const Member&) const = default;
};

struct ParseLimits {
  std::size_t bytes = 1 << 20;
  std::size_t depth = 32;
  std::size_t values = 100'000;
};

// One JSON text (RFC 8259) and nothing behind it. The error says where ("line 3, column 7", or the
// path of the key that occurs twice) and what is allowed.
Result<Value> parse(std::string_view text, const ParseLimits& limits);
inline Result<Value> parse(std::string_view text) {
  return parse(text, ParseLimits());
}

enum class Layout { kCompact, kPretty };
// Always well-formed: bytes that are not UTF-8 become U+FFFD, and a number that is not finite null.
std::string serialize(const Value& value, Layout layout);
inline std::string serialize(const Value& value) {
  return serialize(value, Layout::kCompact);
}

}  // namespace caisson::json
