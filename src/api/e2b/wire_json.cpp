#include "api/e2b/wire_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/encoding.h"

namespace caisson::api::e2b {

namespace {

using json::Value;

// Whether `key` is `name` in lowerCamelCase or in snake_case.
bool is_name(std::string_view key, std::string_view name) {
  if (key == name) return true;
  if (key.find('_') == std::string_view::npos) return false;
  std::string snake;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      snake += '_';
      snake += static_cast<char>(c - 'A' + 'a');
    } else {
      snake += c;
    }
  }
  return key == snake;
}

const WireField* find_field(const WireMessage& message, std::string_view key) {
  for (const WireField& field : message.fields)
    if (is_name(key, field.name)) return &field;
  return nullptr;
}

std::unexpected<Error> wrong(std::string_view path, std::string_view wanted) {
  return fail(Error::invalid(std::string(path) + ": " + std::string(wanted) + " is wanted"));
}

Result<std::int64_t> integer(const Value& value, std::string_view path, std::int64_t least,
                             std::int64_t most) {
  std::optional<std::int64_t> number;
  if (const std::int64_t* plain = value.as_integer()) {
    number = *plain;
  } else if (const std::string* text = value.as_string()) {
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), parsed);
    if (error == std::errc() && end == text->data() + text->size()) number = parsed;
  } else if (const double* real = value.as_double()) {
    // Some writers have no other numbers. Above 2^53 they are not exact.
    if (std::abs(*real) <= 9007199254740992.0 && *real == std::trunc(*real))
      number = static_cast<std::int64_t>(*real);
  }
  if (!number || *number < least || *number > most) {
    return wrong(path,
                 "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *number;
}

Result<std::string> bytes(const Value& value, std::string_view path) {
  const std::string* text = value.as_string();
  if (text == nullptr) return wrong(path, "base64 in a string");
  std::string standard = *text;
  for (char& c : standard) {
    if (c == '-') c = '+';
    if (c == '_') c = '/';
  }
  while (standard.size() % 4 != 0) standard += '=';
  std::optional<std::string> decoded = base64_decode(standard);
  if (!decoded) return wrong(path, "base64 in a string");
  return std::move(*decoded);
}

Result<Value> decode_object(const WireMessage& message, const Value& value,
                            const std::string& path);

Result<Value> decode_map(const Value& value, const std::string& path) {
  const Value::Object* object = value.as_object();
  if (object == nullptr) return wrong(path, "an object of strings");
  for (const json::Member& member : *object) {
    if (member.value.as_string() == nullptr) return wrong(path + "." + member.key, "a string");
  }
  // In the order of the binary form's: one message is one value, whichever form it came in.
  Value::Object members = *object;
  std::ranges::sort(members, {}, &json::Member::key);
  return Value(std::move(members));
}

Result<Value> decode_one(const WireField& field, const Value& value, const std::string& path) {
  switch (field.type) {
    case WireType::kString:
      if (value.as_string() == nullptr) return wrong(path, "a string");
      return value;
    case WireType::kBytes: {
      TRY_ASSIGN(std::string decoded, bytes(value, path));
      return Value(std::move(decoded));
    }
    case WireType::kBool:
      if (value.as_bool() == nullptr) return wrong(path, "true or false");
      return value;
    case WireType::kUint32: {
      TRY_ASSIGN(const std::int64_t number,
                 integer(value, path, 0, std::numeric_limits<std::uint32_t>::max()));
      return Value(number);
    }
    case WireType::kSint32: {
      TRY_ASSIGN(const std::int64_t number,
                 integer(value, path, std::numeric_limits<std::int32_t>::min(),
                         std::numeric_limits<std::int32_t>::max()));
      return Value(number);
    }
    case WireType::kInt64: {
      TRY_ASSIGN(const std::int64_t number,
                 integer(value, path, std::numeric_limits<std::int64_t>::min(),
                         std::numeric_limits<std::int64_t>::max()));
      return Value(number);
    }
    case WireType::kEnum: {
      if (const std::string* name = value.as_string()) {
        for (const WireEnumerator& one : field.enumerators)
          if (one.name == *name) return Value(one.number);
        return wrong(path, "the name of an enumerator");
      }
      TRY_ASSIGN(const std::int64_t number,
                 integer(value, path, 0, std::numeric_limits<std::int32_t>::max()));
      return Value(number);
    }
    case WireType::kMessage:
      return decode_object(*field.message, value, path);
    case WireType::kStringMap:
      return decode_map(value, path);
    case WireType::kTimestamp: {
      const std::string* text = value.as_string();
      const std::optional<std::int64_t> time =
          text != nullptr ? parse_rfc3339(*text) : std::nullopt;
      if (!time) return wrong(path, "a time such as \"2026-01-31T12:00:00Z\"");
      return Value(*time);
    }
  }
  return wrong(path, "another type");
}

Result<Value> decode_object(const WireMessage& message, const Value& value,
                            const std::string& path) {
  const Value::Object* object = value.as_object();
  if (object == nullptr) return wrong(path.empty() ? "the message" : path, "an object");
  Value result = Value::object();
  for (const json::Member& member : *object) {
    const WireField* field = find_field(message, member.key);
    if (field == nullptr || member.value.is_null()) continue;
    const std::string here =
        path.empty() ? std::string(field->name) : path + "." + std::string(field->name);
    if (result.find(field->name) != nullptr) return wrong(here, "one value and not two");
    if (field->shape == WireField::Shape::kOne) {
      TRY_ASSIGN(Value one, decode_one(*field, member.value, here));
      result.set(field->name, std::move(one));
      continue;
    }
    const Value::Array* array = member.value.as_array();
    if (array == nullptr) return wrong(here, "an array");
    Value::Array items;
    for (const Value& item : *array) {
      TRY_ASSIGN(Value one,
                 decode_one(*field, item, here + "[" + std::to_string(items.size()) + "]"));
      items.push_back(std::move(one));
    }
    result.set(field->name, Value(std::move(items)));
  }
  return result;
}

Value encode_object(const WireMessage& message, const Value& value);

Value encode_one(const WireField& field, const Value& value) {
  switch (field.type) {
    case WireType::kBytes:
      return Value(base64_encode(*value.as_string()));
    case WireType::kInt64:
      return Value(std::to_string(*value.as_integer()));
    case WireType::kEnum:
      for (const WireEnumerator& one : field.enumerators)
        if (one.number == *value.as_integer()) return Value(one.name);
      return value;
    case WireType::kMessage:
      return encode_object(*field.message, value);
    case WireType::kTimestamp:
      return Value(rfc3339(*value.as_integer()));
    default:
      return value;
  }
}

Value encode_object(const WireMessage& message, const Value& value) {
  Value::Object members;
  for (const WireField& field : message.fields) {
    const Value* found = value.find(field.name);
    if (found == nullptr) continue;
    if (field.shape == WireField::Shape::kOne) {
      members.push_back({std::string(field.name), encode_one(field, *found)});
      continue;
    }
    Value::Array items;
    items.reserve(found->as_array()->size());
    for (const Value& item : *found->as_array()) items.push_back(encode_one(field, item));
    members.push_back({std::string(field.name), Value(std::move(items))});
  }
  return Value(std::move(members));
}

}  // namespace

Result<Value> decode_json(const WireMessage& message, std::string_view text) {
  // No message is deeper than this; what is not known is ignored, but not without an end.
  const json::ParseLimits limits = {.bytes = text.size(), .depth = 16, .values = kMaxWireValues};
  TRY_ASSIGN(const Value value, json::parse(text, limits));
  return decode_object(message, value, "");
}

std::string encode_json(const WireMessage& message, const Value& value) {
  return json::serialize(encode_object(message, value));
}

}  // namespace caisson::api::e2b
