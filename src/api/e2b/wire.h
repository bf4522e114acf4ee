// The two forms of the data plane's messages: proto3's JSON mapping and its binary encoding. Pure.
//
// Messages are described by tables (messages.h) and handled as json::Value, so that handlers know
// neither form. Such a value is an object with the fields' lowerCamelCase names; a field that is
// absent is not in it. Within it numbers and enumerators are integers, bytes are the bytes
// themselves in a string, a timestamp is an integer of nanoseconds since 1970, a map is an object.
// Both forms are one another's equal: what one can say the other can.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace caisson::api::e2b {

enum class Encoding : std::uint8_t { kJson, kBinary };

enum class WireType : std::uint8_t {
  kString,
  kBytes,
  kBool,
  kUint32,
  kInt64,
  kSint32,
  kEnum,
  kMessage,
  kTimestamp,
  kStringMap,
};

struct WireMessage;
struct WireEnumerator {
  std::string_view name;
  std::uint32_t number;
};

struct WireField {
  std::string_view name;  // lowerCamelCase
  std::uint32_t number = 0;
  WireType type = WireType::kString;
  enum class Shape : std::uint8_t { kOne, kRepeated } shape = Shape::kOne;
  const WireMessage* message = nullptr;           // kMessage
  std::span<const WireEnumerator> enumerators{};  // kEnum
};

struct WireMessage {
  std::span<const WireField> fields;
};

// The most values in one message, so that small input does not become much memory.
inline constexpr std::size_t kMaxWireValues = 100'000;

// JSON takes names in lowerCamelCase and snake_case, base64 in either alphabet with or without
// padding, 64-bit numbers as numbers or strings, enumerators by name or number; null is absent.
// Fields that are not known are ignored in both forms. Error: invalid_argument, naming the field.
Result<json::Value> decode_message(const WireMessage& message, Encoding encoding,
                                   std::string_view bytes);
// `value` must be as the table says; fields that it does not have are left out.
std::string encode_message(const WireMessage& message, Encoding encoding, const json::Value& value);

// "2026-01-31T12:00:00.5Z": as few digits of 0, 3, 6, 9 as hold the fraction. Years 1 to 9999.
std::string rfc3339(std::int64_t nanoseconds);
// The same read back, in UTC ("Z") alone. nullopt: malformed.
std::optional<std::int64_t> parse_rfc3339(std::string_view text);

// What handlers ask of a decoded message: the value or its default.
std::string_view text_of(const json::Value& value, std::string_view name);
std::int64_t number_of(const json::Value& value, std::string_view name);
bool truth_of(const json::Value& value, std::string_view name);

}  // namespace caisson::api::e2b
