// libraries: http io base
// parser: src/http/codec.cpp src/http/message.cpp src/http/text.h
//
// The client's side of the HTTP/1.1 codec: an answer of whatever listens inside a sandbox. The
// first line of the input is the method of the request.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "http_body_check.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::http;

constexpr std::size_t kMostHead = 2048;
constexpr std::size_t kMostHeaders = 16;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t line = bytes.find('\n');
  if (line == std::string_view::npos) return 0;
  const std::string_view method = bytes.substr(0, line);
  bytes.remove_prefix(line + 1);

  HeadScanner scanner;
  const auto end = scanner.scan(bytes, kMostHead);
  if (!end.has_value() || !end->has_value()) return 0;
  const auto response = parse_response_head(bytes.substr(0, **end), method, kMostHeaders);
  if (!response.has_value()) {
    VERIFY(!response.error().sentence.empty());
    return 0;
  }
  const int status = response->head.status;
  VERIFY(status >= 100 && status <= 999);
  if (method == "HEAD" || status < 200) VERIFY(response->body.kind == Framing::Kind::kNone);
  if (response->body.kind == Framing::Kind::kUntilClose) VERIFY(!response->keep_alive);
  const auto again_bytes = encode(response->head);
  VERIFY(again_bytes.has_value());
  const auto again = parse_response_head(*again_bytes, method, kMostHeaders);
  VERIFY(again.has_value() && again->head.status == status);
  VERIFY(again->head.headers.all() == response->head.headers.all());
  VERIFY(again->body.kind == response->body.kind && again->body.length == response->body.length);
  check_body(response->body, bytes.substr(**end));
  return 0;
}
