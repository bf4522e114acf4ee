#include "api/e2b/wire_binary.h"

#include <functional>
#include <limits>
#include <map>

#include "base/encoding.h"

namespace caisson::api::e2b {

namespace {

using json::Value;

enum class Form : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr WireField kSecondsField = {"seconds", 1, WireType::kInt64};
constexpr WireField kNanosField = {"nanos", 2, WireType::kInt64};
constexpr WireField kTimestampFields[] = {kSecondsField, kNanosField};
constexpr WireMessage kTimestampMessage = {kTimestampFields};
constexpr WireField kEntryFields[] = {{"key", 1}, {"value", 2}};
constexpr WireMessage kEntryMessage = {kEntryFields};
constexpr std::int64_t kSecond = 1'000'000'000;

std::unexpected<Error> malformed() {
  return fail(Error::invalid("the message is not a well-formed protobuf message"));
}

std::unexpected<Error> wrong(std::string_view path, std::string_view wanted) {
  return fail(Error::invalid(std::string(path) + ": " + std::string(wanted) + " is wanted"));
}

// One field as it stands in the bytes.
struct Raw {
  std::uint64_t number = 0;
  Form form = Form::kVarint;
  std::uint64_t varint = 0;
  std::string_view bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  Result<Raw> next() {
    TRY_ASSIGN(const std::uint64_t key, varint());
    Raw raw{.number = key >> 3};
    if (raw.number == 0 || raw.number > (1u << 29) - 1) return malformed();
    switch (key & 7) {
      case 0: {
        TRY_ASSIGN(raw.varint, varint());
        return raw;
      }
      case 1:
        raw.form = Form::kFixed64;
        return take(raw, 8);
      case 2: {
        raw.form = Form::kBytes;
        TRY_ASSIGN(const std::uint64_t length, varint());
        return take(raw, length);
      }
      case 5:
        raw.form = Form::kFixed32;
        return take(raw, 4);
      default:
        return malformed();  // groups, which proto3 has no more
    }
  }

 private:
  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return malformed();
  }
  Result<Raw> take(Raw raw, std::uint64_t length) {
    if (length > rest_.size()) return malformed();
    raw.bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return raw;
  }

  std::string_view rest_;
};

class Decoder {
 public:
  Result<Value> decode(const WireMessage& message, std::string_view bytes,
                       const std::string& path) {
    // What comes piece by piece is put together beside the message: adding to a Value in place
    // would look at all that is there already.
    std::map<const WireField*, Value::Array> arrays;
    std::map<const WireField*, std::map<std::string, std::string, std::less<>>> maps;
    Value result = Value::object();
    Reader reader(bytes);
    while (!reader.done()) {
      TRY_ASSIGN(const Raw raw, reader.next());
      if (++values_ > kMaxWireValues) {
        return fail(Error::invalid("the message has more than " + std::to_string(kMaxWireValues) +
                                   " values"));
      }
      const WireField* field = find_field(message, raw.number);
      if (field == nullptr) continue;
      const std::string here =
          path.empty() ? std::string(field->name) : path + "." + std::string(field->name);
      if (field->type == WireType::kStringMap) {
        if (raw.form != Form::kBytes) return wrong(here, "a map");
        TRY_ASSIGN(const Value entry, decode(kEntryMessage, raw.bytes, here));
        maps[field][std::string(text_of(entry, "key"))] = text_of(entry, "value");
        continue;
      }
      TRY_ASSIGN(Value one, one_value(*field, raw, here));
      if (field->shape == WireField::Shape::kRepeated) {
        arrays[field].push_back(std::move(one));
      } else {
        result.set(field->name, std::move(one));
      }
    }
    for (auto& [field, items] : arrays) result.set(field->name, Value(std::move(items)));
    for (auto& [field, entries] : maps) {
      Value::Object members;
      for (auto& [key, value] : entries) members.push_back({key, Value(std::move(value))});
      result.set(field->name, Value(std::move(members)));
    }
    return result;
  }

 private:
  static const WireField* find_field(const WireMessage& message, std::uint64_t number) {
    for (const WireField& field : message.fields)
      if (field.number == number) return &field;
    return nullptr;
  }

  Result<Value> one_value(const WireField& field, const Raw& raw, const std::string& path) {
    const bool lengthy = field.type == WireType::kString || field.type == WireType::kBytes ||
                         field.type == WireType::kMessage || field.type == WireType::kTimestamp;
    if (raw.form != (lengthy ? Form::kBytes : Form::kVarint)) {
      return wrong(path, lengthy ? "a field with a length" : "a number");
    }
    switch (field.type) {
      case WireType::kString:
        if (!is_utf8(raw.bytes)) return wrong(path, "UTF-8");
        return Value(raw.bytes);
      case WireType::kBytes:
        return Value(raw.bytes);
      case WireType::kMessage:
        return decode(*field.message, raw.bytes, path);
      case WireType::kTimestamp: {
        TRY_ASSIGN(const Value parts, decode(kTimestampMessage, raw.bytes, path));
        const std::int64_t seconds = number_of(parts, "seconds");
        const std::int64_t nanos = number_of(parts, "nanos");
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / kSecond - 1;
        if (seconds < -kMost || seconds > kMost || nanos < 0 || nanos >= kSecond) {
          return wrong(path, "a timestamp");
        }
        return Value(seconds * kSecond + nanos);
      }
      case WireType::kBool:
        return Value(raw.varint != 0);
      case WireType::kUint32:
      case WireType::kEnum:
        return Value(static_cast<std::uint32_t>(raw.varint));
      case WireType::kSint32: {
        const auto zigzag = static_cast<std::uint32_t>(raw.varint);
        return Value(static_cast<std::int32_t>((zigzag >> 1) ^ (0u - (zigzag & 1))));
      }
      case WireType::kInt64:
        return Value(static_cast<std::int64_t>(raw.varint));
      case WireType::kStringMap:
        break;
    }
    return malformed();
  }

  std::size_t values_ = 0;
};

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void put_key(std::string& out, const WireField& field, Form form) {
  put_varint(out, (static_cast<std::uint64_t>(field.number) << 3) | std::to_underlying(form));
}

void put_number(std::string& out, const WireField& field, std::uint64_t value) {
  put_key(out, field, Form::kVarint);
  put_varint(out, value);
}

void put_bytes(std::string& out, const WireField& field, std::string_view bytes) {
  put_key(out, field, Form::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_one(std::string& out, const WireField& field, const Value& value) {
  switch (field.type) {
    case WireType::kString:
    case WireType::kBytes:
      put_bytes(out, field, *value.as_string());
      break;
    case WireType::kBool:
      put_number(out, field, *value.as_bool() ? 1 : 0);
      break;
    case WireType::kUint32:
    case WireType::kEnum:
    case WireType::kInt64:
      put_number(out, field, static_cast<std::uint64_t>(*value.as_integer()));
      break;
    case WireType::kSint32: {
      const auto number = static_cast<std::int32_t>(*value.as_integer());
      put_number(out, field,
                 (static_cast<std::uint32_t>(number) << 1) ^ (number < 0 ? 0xffffffffu : 0u));
      break;
    }
    case WireType::kMessage:
      put_bytes(out, field, encode_binary(*field.message, value));
      break;
    case WireType::kTimestamp: {
      std::int64_t seconds = *value.as_integer() / kSecond;
      std::int64_t nanos = *value.as_integer() % kSecond;
      if (nanos < 0) {
        nanos += kSecond;
        --seconds;
      }
      std::string parts;
      put_number(parts, kSecondsField, static_cast<std::uint64_t>(seconds));
      put_number(parts, kNanosField, static_cast<std::uint64_t>(nanos));
      put_bytes(out, field, parts);
      break;
    }
    case WireType::kStringMap:
      for (const json::Member& member : *value.as_object()) {
        std::string entry;
        put_bytes(entry, kEntryFields[0], member.key);
        put_bytes(entry, kEntryFields[1], *member.value.as_string());
        put_bytes(out, field, entry);
      }
      break;
  }
}

}  // namespace

Result<Value> decode_binary(const WireMessage& message, std::string_view bytes) {
  return Decoder().decode(message, bytes, "");
}

std::string encode_binary(const WireMessage& message, const Value& value) {
  std::string out;
  for (const WireField& field : message.fields) {
    const Value* found = value.find(field.name);
    if (found == nullptr) continue;
    if (field.shape == WireField::Shape::kOne) {
      put_one(out, field, *found);
    } else {
      for (const Value& item : *found->as_array()) put_one(out, field, item);
    }
  }
  return out;
}

}  // namespace caisson::api::e2b
