// JSON: a text that is accepted serialises to one that gives the same value.
// libraries: base
#include <cstdlib>

#include "base/json.h"

using namespace caisson;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<json::Value> value = json::parse(text);
  if (!value.has_value()) {
    if (value.error().message().empty()) std::abort();
    return 0;
  }
  for (json::Layout layout : {json::Layout::kCompact, json::Layout::kPretty}) {
    // Written out, a text may grow past the parser's usual bound.
    Result<json::Value> again = json::parse(json::serialize(*value, layout), {.bytes = 64u << 20});
    if (!again.has_value() || *again != *value) std::abort();
  }
  return 0;
}
