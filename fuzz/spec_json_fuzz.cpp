// libraries: policy
// parser: src/policy/document.cpp src/policy/read_node.cpp src/policy/spec.cpp
// parser: src/policy/complain.cpp
#include "base/json.h"
#include "spec_round_trip.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  namespace json = caisson::json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  caisson::fuzz::check_document(text, caisson::policy::Format::kJson);
  if (const auto value = json::parse(text)) {
    for (const json::Layout layout : {json::Layout::kCompact, json::Layout::kPretty}) {
      const auto again = json::parse(json::serialize(*value, layout),
                                     {.bytes = 64 << 20, .depth = 32, .values = 100'000});
      VERIFY(again.has_value());
      VERIFY(*again == *value);
    }
  }
  return 0;
}
