#include "api/body.h"

#include <algorithm>
#include <cmath>

#include "policy/complain.h"

namespace caisson::api {
namespace {

// What was found, for a message: scalars as they are, the rest by its kind.
std::string found(const json::Value& value) {
  switch (value.kind()) {
    case json::Value::Kind::kString:
      return policy::quote(*value.as_string());
    case json::Value::Kind::kArray:
      return "an array";
    case json::Value::Kind::kObject:
      return "an object";
    default:
      return json::serialize(value);
  }
}

std::string at(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

Result<std::string> text_of(const json::Value& value, const std::string& path,
                            std::size_t most_bytes) {
  const std::string* text = value.as_string();
  if (text == nullptr) return fail(policy::wrong(path, found(value), "a string"));
  if (text->size() > most_bytes) {
    return fail(policy::wrong(path, std::to_string(text->size()) + " bytes",
                              "at most " + std::to_string(most_bytes)));
  }
  return *text;
}

std::string number_range(std::int64_t least, std::int64_t most) {
  return "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
}

// A whole number, however it is written: 300 and 300.0 are one to a client whose numbers are all
// floating.
std::optional<std::int64_t> whole(const json::Value& value) {
  if (const std::int64_t* integer = value.as_integer()) return *integer;
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
  const double* number = value.as_double();
  if (number == nullptr || std::abs(*number) > kExact || std::trunc(*number) != *number) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*number);
}

}  // namespace

Result<json::Value> parse_object(std::string_view text, Body body) {
  if (text.empty() && body == Body::kOptional) return json::Value::object();
  if (text.empty()) return fail(Error::invalid("the body is empty; allowed is a JSON object"));
  auto value = json::parse(text);
  if (!value.has_value()) return fail(std::move(value).error().with("the body"));
  if (value->is_null() && body == Body::kOptional) return json::Value::object();
  if (value->as_object() == nullptr) {
    return fail(policy::wrong("the body", found(*value), "a JSON object"));
  }
  return value;
}

io::Async<Result<json::Value>> read_object(http::Exchange& exchange, Body body) {
  const std::optional<std::uint64_t> length = exchange.body_length();
  if (length.value_or(0) > kMostBody) {
    co_return fail({Code::kOutOfRange, "the body has " + std::to_string(*length) +
                                           " bytes; allowed are " + std::to_string(kMostBody)});
  }
  Result<std::string> text = co_await exchange.read_all(kMostBody);
  if (!text.has_value()) {
    if (text.error().code() != Code::kResourceExhausted) co_return fail(std::move(text).error());
    co_return fail({Code::kOutOfRange,
                    "the body is too long; allowed are " + std::to_string(kMostBody) + " bytes"});
  }
  Result<json::Value> object = parse_object(*text, body);
  // What a long call keeps of it is small; others are not to wait for its end.
  exchange.let_go();
  co_return object;
}

const json::Value* Object::find(std::string_view key) const {
  const json::Value* value = value_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Object::path_of(std::string_view key) const {
  return policy::key_below(path_, key);
}

Result<std::optional<std::string>> Object::text(std::string_view key,
                                                std::size_t most_bytes) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return text_of(*value, path_of(key), most_bytes);
}

Result<std::optional<bool>> Object::truth(std::string_view key) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool* truth = value->as_bool();
  if (truth == nullptr) return fail(policy::wrong(path_of(key), found(*value), "true or false"));
  return *truth;
}

Result<std::optional<std::int64_t>> Object::integer(std::string_view key, std::int64_t least,
                                                    std::int64_t most) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> number = whole(*value);
  if (!number.has_value() || *number < least || *number > most) {
    return fail(policy::wrong(path_of(key), found(*value), number_range(least, most)));
  }
  return number;
}

Result<std::optional<std::vector<std::string>>> Object::texts(std::string_view key,
                                                              std::size_t most,
                                                              std::size_t most_bytes) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const json::Value::Array* items = value->as_array();
  const std::string path = path_of(key);
  if (items == nullptr) return fail(policy::wrong(path, found(*value), "an array of strings"));
  if (items->size() > most) {
    return fail(policy::wrong(path, std::to_string(items->size()) + " items",
                              "at most " + std::to_string(most)));
  }
  std::vector<std::string> texts;
  for (std::size_t index = 0; index < items->size(); ++index) {
    TRY_ASSIGN(std::string text, text_of((*items)[index], at(path, index), most_bytes));
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<std::optional<std::map<std::string, std::string>>> Object::map(std::string_view key,
                                                                      MapLimits limits) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const json::Value::Object* members = value->as_object();
  const std::string path = path_of(key);
  if (members == nullptr) return fail(policy::wrong(path, found(*value), "an object of strings"));
  if (members->size() > limits.entries) {
    return fail(policy::wrong(path, std::to_string(members->size()) + " entries",
                              "at most " + std::to_string(limits.entries)));
  }
  std::map<std::string, std::string> map;
  for (const json::Member& member : *members) {
    if (member.key.size() > limits.key_bytes) {
      return fail(policy::wrong(path, "a key of " + std::to_string(member.key.size()) + " bytes",
                                "at most " + std::to_string(limits.key_bytes)));
    }
    TRY_ASSIGN(std::string text,
               text_of(member.value, policy::key_below(path, member.key), limits.value_bytes));
    map.emplace(member.key, std::move(text));
  }
  return map;
}

Result<std::optional<Object>> Object::object(std::string_view key) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->as_object() == nullptr) {
    return fail(policy::wrong(path_of(key), found(*value), "an object"));
  }
  return Object(*value, path_of(key));
}

Result<std::optional<std::vector<Object>>> Object::objects(std::string_view key,
                                                           std::size_t most) const {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const json::Value::Array* items = value->as_array();
  const std::string path = path_of(key);
  if (items == nullptr) return fail(policy::wrong(path, found(*value), "an array of objects"));
  if (items->size() > most) {
    return fail(policy::wrong(path, std::to_string(items->size()) + " items",
                              "at most " + std::to_string(most)));
  }
  std::vector<Object> objects;
  for (std::size_t index = 0; index < items->size(); ++index) {
    const json::Value& item = (*items)[index];
    if (item.as_object() == nullptr) {
      return fail(policy::wrong(at(path, index), found(item), "an object"));
    }
    objects.emplace_back(item, at(path, index));
  }
  return objects;
}

Status Object::only(std::initializer_list<std::string_view> keys) const {
  for (const json::Member& member : *value_->as_object()) {
    if (std::ranges::find(keys, std::string_view(member.key)) != keys.end()) continue;
    std::string allowed = policy::alternatives(keys.begin(), keys.size());
    return fail(policy::wrong(path_of(member.key), "an unknown key", allowed));
  }
  return {};
}

}  // namespace caisson::api
