// libraries: http io base
// parser: src/http/body_decoder.cpp
//
// Bodies of the HTTP/1.1 codec alone. The first byte of the input says how the body is framed: "c"
// chunked, "u" until the close, a digit so many bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "http_body_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using caisson::http::Framing;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const char first = bytes.front();
  Framing framing{.kind = Framing::Kind::kNone};
  if (first == 'c') framing.kind = Framing::Kind::kChunked;
  if (first == 'u') framing.kind = Framing::Kind::kUntilClose;
  if (first >= '0' && first <= '9')
    framing = {.kind = Framing::Kind::kLength, .length = static_cast<std::uint64_t>(first - '0')};
  check_body(framing, bytes.substr(1));
  return 0;
}
