// libraries: secrets policy base
// parser: src/egress/secrets/json_span.cpp
//
// Where strings stand in a JSON text: as the parser that builds values says. The first line has
// pointers with blanks between, the rest is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "egress/secrets/decoding.h"
#include "egress/secrets/json_span.h"
#include "policy/secret_check.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

using Words = std::vector<std::string>;

std::vector<Words> pointers_of(std::string_view line) {
  std::vector<Words> pointers;
  while (!line.empty() && pointers.size() < 8) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (auto words = policy::parse_json_pointer(line.substr(0, end)))
      pointers.push_back(std::move(*words));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return pointers;
}

// The string at a pointer; null: none.
const std::string* string_at(const json::Value& root, const Words& words) {
  const json::Value* value = &root;
  for (const std::string& word : words) {
    if (const json::Value::Array* items = value->as_array()) {
      value = nullptr;
      for (std::size_t i = 0; i < items->size(); ++i) {
        if (std::to_string(i) == word) value = &(*items)[i];
      }
    } else {
      value = value->find(word);
    }
    if (value == nullptr) return nullptr;
  }
  return value->as_string();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  const std::vector<Words> pointers = pointers_of(bytes.substr(0, line));
  const std::string_view text = bytes.substr(std::min(line + 1, bytes.size()));

  const auto spans = find_json_strings(text, pointers);
  const auto value =
      json::parse(text, {.bytes = 1 << 20, .depth = kMostJsonDepth, .values = 1 << 20});
  if (!spans) {
    VERIFY(!spans.error().message().empty() && !value);
    return 0;
  }
  if (!value) {
    // The one thing that is none of a scanner's business.
    VERIFY(value.error().message().contains("number") ||
           value.error().message().contains("exponent"));
    return 0;
  }
  std::vector<std::size_t> found(pointers.size());
  for (const JsonSpan& span : *spans) {
    VERIFY(span.begin <= span.end && span.end < text.size());
    VERIFY(text[span.begin - 1] == '"' && text[span.end] == '"');
    const std::string* const expected = string_at(*value, pointers[span.pointer]);
    VERIFY(expected != nullptr);
    const std::string_view raw = text.substr(span.begin, span.end - span.begin);
    VERIFY(decode(raw, Decoding::kJson).text == *expected);
    ++found[span.pointer];
  }
  for (std::size_t i = 0; i < pointers.size(); ++i)
    VERIFY(found[i] == (string_at(*value, pointers[i]) != nullptr ? 1u : 0u));
  return 0;
}
