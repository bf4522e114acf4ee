// libraries: http io base
// parser: src/http/codec.cpp src/http/message.cpp src/http/text.h
//
// The server's side of the HTTP/1.1 codec: a request's head and the body behind it.
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

Parsed<std::optional<std::size_t>> scan_bytewise(std::string_view bytes) {
  HeadScanner scanner;
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    auto found = scanner.scan(bytes.substr(0, size), kMostHead);
    if (!found.has_value() || found->has_value()) return found;
  }
  return std::nullopt;
}

// What was accepted is written again as something that means the same.
void check_again(const ParsedRequest& request) {
  const auto bytes = encode(request.head);
  VERIFY(bytes.has_value());
  const auto again = parse_request_head(*bytes, kMostHeaders);
  VERIFY(again.has_value());
  VERIFY(again->head.method == request.head.method && again->head.target == request.head.target);
  VERIFY(again->head.headers.all() == request.head.headers.all());
  VERIFY(again->body.kind == request.body.kind && again->body.length == request.body.length);
  VERIFY(again->keep_alive == request.keep_alive && again->upgrade == request.upgrade);

  for (const auto& [name, value] : request.head.headers.all()) {
    Headers one({{name, "old"}, {name, "older"}});
    VERIFY(one.set(name, value).all().size() == 1 && one.get(name) == value);
  }

  Headers passed_on = request.head.headers;
  remove_hop_by_hop(passed_on);
  VERIFY(!passed_on.has("connection") && !passed_on.has("upgrade"));
  VERIFY(passed_on.joined("content-length") == request.head.headers.joined("content-length"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  HeadScanner scanner;
  const auto end = scanner.scan(bytes, kMostHead);
  const auto bytewise = scan_bytewise(bytes);
  VERIFY(end.has_value() == bytewise.has_value());
  if (!end.has_value()) {
    VERIFY(end.error().status >= 400 && !end.error().sentence.empty());
    return 0;
  }
  VERIFY(*end == *bytewise);
  if (!end->has_value()) return 0;
  VERIFY(**end <= size && **end <= kMostHead && bytes.substr(0, **end).ends_with("\r\n\r\n"));

  const auto request = parse_request_head(bytes.substr(0, **end), kMostHeaders);
  if (!request.has_value()) {
    VERIFY(request.error().status >= 400 && !request.error().sentence.empty());
    return 0;
  }
  VERIFY(request->head.headers.all().size() <= kMostHeaders);
  check_again(*request);
  const auto target = parse_target(request->head.target);
  if (target.has_value()) {
    VERIFY(target->path.starts_with('/'));
    for (const auto& [name, value] : target->query) VERIFY(target->query_value(name).has_value());
    if (target->query.empty()) VERIFY(!target->query_value("").has_value());
  }
  check_body(request->body, bytes.substr(**end));
  return 0;
}
