// libraries: gateway egress secrets http io policy base
// parser: src/egress/gateway/h2_message.cpp
//
// Messages of HTTP/2 as those of HTTP/1.1: what is taken for one can be written as one of HTTP/1.1
// that its strict codec reads as the same, has one host, and comes back as the same fields. The
// first line of the input says what it is; each further one is a field, its name and its value at
// both sides of the first equals sign.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "egress/gateway/h2_message.h"
#include "http/codec.h"
#include "http/text.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

constexpr std::size_t kMostHead = 1 << 20;
constexpr std::size_t kMostHeaders = 4096;

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool is_of_one_connection(const http::Headers& headers) {
  return headers.has("Connection") || headers.has("Upgrade") || headers.has("Keep-Alive") ||
         headers.has("Proxy-Connection");
}

void check_request(const H2Fields& fields, H2Body body) {
  const auto head = request_of(fields, body);
  if (!head.has_value()) {
    VERIFY(!head.error().message().empty());
    return;
  }
  VERIFY(head->headers.all().front().first == "Host");
  VERIFY(!is_of_one_connection(head->headers));
  VERIFY(!head->headers.has("Transfer-Encoding") || body == H2Body::kFollows);
  const auto bytes = http::encode(*head);
  VERIFY(bytes.has_value());
  const auto hosts = std::ranges::count_if(head->headers.all(), [](const auto& header) {
    return http::same_name(header.first, "host");
  });
  http::HeadScanner scanner;
  const auto size = scanner.scan(*bytes, kMostHead);
  VERIFY(size.has_value() && *size == bytes->size());
  const auto again = http::parse_request_head(*bytes, kMostHeaders);
  if (hosts == 1 && again.has_value()) {
    VERIFY(again->head.method == head->method && again->head.target == head->target);
    VERIFY(again->head.headers.all() == head->headers.all());
    VERIFY(!again->upgrade || head->method == "CONNECT");
  }
  if (head->method == "CONNECT") return;
  const auto back = request_of(fields_of(*head), body);
  VERIFY(back.has_value() && back->target == head->target);
  VERIFY(back->headers.get("Host") == head->headers.get("Host"));
}

void check_response(const H2Fields& fields) {
  const auto head = response_of(fields);
  if (!head.has_value()) return;
  VERIFY(head->status >= 100 && head->status != 101 && !is_of_one_connection(head->headers));
  VERIFY(http::encode(*head).has_value());
  const auto back = response_of(fields_of(*head));
  VERIFY(back.has_value() && back->status == head->status);
}

void check_trailers(const H2Fields& fields) {
  const auto trailers = trailers_of(fields);
  if (!trailers.has_value()) return;
  for (const auto& [name, value] : trailers->all()) {
    VERIFY(http::is_token(name) && http::is_value(value));
    VERIFY(name != "host" && name != "content-length" && name != "transfer-encoding");
  }
  VERIFY(fields_of(*trailers).size() == trailers->all().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view kind = take_line(bytes);
  H2Fields fields;
  while (!bytes.empty()) {
    const std::string_view line = take_line(bytes);
    const std::size_t equals = std::min(line.find('='), line.size());
    fields.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  if (kind == "request") check_request(fields, H2Body::kNone);
  if (kind == "upload") check_request(fields, H2Body::kFollows);
  if (kind == "response") check_response(fields);
  if (kind == "trailers") check_trailers(fields);
  return 0;
}
