// libraries: base
// parser: src/base/json.cpp src/base/json.h
//
// JSON: a text that is accepted serialises to one that gives the same value, and so does the value
// that is built from its parts; within small limits it is the same or refused.
#include <cstdlib>

#include "base/json.h"

using namespace caisson;

namespace {

// The same value, put together as our own code does it.
json::Value built(const json::Value& value) {
  if (const auto* items = value.as_array()) {
    json::Value array = json::Value::array();
    for (const json::Value& item : *items) array.push(built(item));
    return array;
  }
  if (const auto* members = value.as_object()) {
    json::Value object = json::Value::object();
    for (const auto& [key, member] : *members) {
      object.set(key, nullptr);
      if (!object.find(key)->is_null()) std::abort();
      object.set(key, built(member));
    }
    return object;
  }
  json::Value copy;
  copy = value;
  return copy;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<json::Value> value = json::parse(text);
  if (!value.has_value()) {
    if (value.error().message().empty()) std::abort();
    return 0;
  }
  if (json::serialize(*value) != json::serialize(*value, json::Layout::kCompact)) std::abort();
  if (built(*value) != *value) std::abort();
  const auto bounded = json::parse(text, {.bytes = 100, .depth = 3, .values = 12});
  if (bounded.has_value() ? *bounded != *value : bounded.error().message().empty()) std::abort();
  for (json::Layout layout : {json::Layout::kCompact, json::Layout::kPretty}) {
    // Written out, a text may grow past the parser's usual bound.
    Result<json::Value> again = json::parse(json::serialize(*value, layout), {.bytes = 64u << 20});
    if (!again.has_value() || *again != *value) std::abort();
  }
  return 0;
}
