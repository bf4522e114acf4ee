#include "image/json_fields.h"

#include <limits>

#include "base/sha256.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

std::string describe(const json::Value* value) {
  using Kind = json::Value::Kind;
  if (value == nullptr) return "nothing";
  switch (value->kind()) {
    case Kind::kNull:
      return "nothing";
    case Kind::kBool:
      return *value->as_bool() ? "true" : "false";
    case Kind::kInteger:
      return "the number " + std::to_string(*value->as_integer());
    case Kind::kUnsigned:
      return "the number " + std::to_string(*value->as_unsigned());
    case Kind::kDouble:
      return "a number with a fraction";
    case Kind::kString:
      return "'" + printable(*value->as_string(), 80) + "'";
    case Kind::kArray:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

bool good_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos;
}

}  // namespace

Field Field::at(std::string_view key) const {
  Field field;
  field.path = path.empty() ? printable(key, 80) : path + "." + printable(key, 80);
  if (present()) field.value = value->find(key);
  return field;
}

Field Field::at(std::size_t index) const {
  Field field;
  field.path = path + "[" + std::to_string(index) + "]";
  const json::Value::Array* items = present() ? value->as_array() : nullptr;
  if (items != nullptr && index < items->size()) field.value = &(*items)[index];
  return field;
}

Error wrong_field(const Field& field, std::string_view allowed) {
  return Error::invalid(field.path + ": found " + describe(field.value) + "; allowed is " +
                        std::string(allowed));
}

Result<json::Value> parse_object(std::string_view text, std::string_view what, std::size_t limit) {
  auto value = json::parse(text, {.bytes = limit, .depth = 32, .values = 200'000});
  if (!value.has_value()) return fail(std::move(value).error().with(what));
  if (value->as_object() == nullptr) {
    return fail(Error::invalid(std::string(what) + ": found " + describe(&*value) +
                               "; allowed is a JSON object"));
  }
  return value;
}

Result<std::string> text_of(const Field& field) {
  if (!field.present()) return std::string();
  const std::string* text = field.value->as_string();
  if (text == nullptr || !good_text(*text)) {
    return fail(wrong_field(field, "a text without NUL bytes"));
  }
  return *text;
}

Result<std::string> required_text(const Field& field) {
  TRY_ASSIGN(std::string text, text_of(field));
  if (text.empty()) return fail(wrong_field(field, "a text that is not empty"));
  return text;
}

Result<std::vector<std::string>> texts_of(const Field& field) {
  TRY_ASSIGN(std::vector<Field> items, items_of(field, std::numeric_limits<std::size_t>::max()));
  std::vector<std::string> texts;
  for (const Field& item : items) {
    if (!item.present()) return fail(wrong_field(item, "a text"));
    TRY_ASSIGN(std::string text, text_of(item));
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<std::map<std::string, std::string>> text_map_of(const Field& field) {
  std::map<std::string, std::string> map;
  if (!field.present()) return map;
  const json::Value::Object* members = field.value->as_object();
  if (members == nullptr) return fail(wrong_field(field, "an object of texts"));
  for (const json::Member& member : *members) {
    // Not by at(), which looks through all keys for each.
    const Field item = {&member.value, field.path + "." + printable(member.key, 80)};
    TRY_ASSIGN(std::string text, text_of(item));
    if (!good_text(member.key)) return fail(wrong_field(field, "keys without NUL bytes"));
    map.emplace(member.key, std::move(text));
  }
  return map;
}

Result<std::vector<std::string>> keys_of(const Field& field) {
  std::vector<std::string> keys;
  if (!field.present()) return keys;
  const json::Value::Object* members = field.value->as_object();
  if (members == nullptr) return fail(wrong_field(field, "an object"));
  for (const json::Member& member : *members) {
    if (!good_text(member.key)) return fail(wrong_field(field, "keys without NUL bytes"));
    keys.push_back(member.key);
  }
  return keys;
}

Result<bool> truth_of(const Field& field) {
  if (!field.present()) return false;
  const bool* truth = field.value->as_bool();
  if (truth == nullptr) return fail(wrong_field(field, "true or false"));
  return *truth;
}

Result<std::uint64_t> required_size(const Field& field) {
  const std::int64_t* number = field.present() ? field.value->as_integer() : nullptr;
  if (number == nullptr || *number < 0) {
    return fail(wrong_field(field, "a number of bytes, 0 or more"));
  }
  return static_cast<std::uint64_t>(*number);
}

Result<std::vector<Field>> items_of(const Field& field, std::size_t most) {
  std::vector<Field> items;
  if (!field.present()) return items;
  const json::Value::Array* values = field.value->as_array();
  if (values == nullptr) return fail(wrong_field(field, "a list"));
  if (values->size() > most) {
    return fail(Error::invalid(field.path + ": found " + std::to_string(values->size()) +
                               " items; allowed is " + std::to_string(most) + " at most"));
  }
  for (std::size_t i = 0; i < values->size(); ++i) items.push_back(field.at(i));
  return items;
}

Result<std::string> digest_text(std::string_view text, const std::string& path) {
  constexpr std::string_view kPrefix = "sha256:";
  if (text.starts_with("sha512:") || text.starts_with("sha384:")) {
    return fail(Error(Code::kUnimplemented, path + ": found '" + printable(text, 20) +
                                                "'; allowed is a digest by SHA-256 "
                                                "(\"sha256:HEX\")"));
  }
  if (!text.starts_with(kPrefix) || !is_sha256(text.substr(kPrefix.size()))) {
    return fail(Error::invalid(path + ": found '" + printable(text, 80) +
                               "'; allowed is \"sha256:\" and 64 hexadecimal digits"));
  }
  return std::string(text.substr(kPrefix.size()));
}

Result<std::string> required_digest(const Field& field) {
  TRY_ASSIGN(std::string text, required_text(field));
  return digest_text(text, field.path);
}

}  // namespace caisson::image
