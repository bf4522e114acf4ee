// libraries: egress policy base
// parser: src/egress/request_head.cpp
//
// The egress proxy's parser: heads of requests and the bodies behind them.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "egress/request_head.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::egress;

// However a body is cut into pieces, the same bytes of it are passed on.
void check_body(const RequestHead& head, std::string_view body) {
  BodyFramer whole(head), pieces(head);
  const auto at_once = whole.take(body);
  if (at_once.has_value()) VERIFY(*at_once <= body.size());
  std::size_t passed = 0;
  for (const char& byte : body) {
    const auto used = pieces.take(std::string_view(&byte, 1));
    if (!used.has_value()) {
      VERIFY(!at_once.has_value());
      return;
    }
    passed += *used;
  }
  VERIFY(at_once.has_value() && *at_once == passed && whole.whole() == pieces.whole());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ParsedHead parsed = parse_request_head(bytes);
  VERIFY(!(parsed.head.has_value() && parsed.refusal.has_value()));
  if (parsed.refusal.has_value()) {
    VERIFY(parsed.refusal->status >= 400 && !parsed.refusal->sentence.empty());
    const std::string answer = response(*parsed.refusal);
    VERIFY(answer.starts_with("HTTP/1.1 " + std::to_string(parsed.refusal->status) + " "));
    VERIFY(answer.ends_with("\r\n\r\ncaisson: " + parsed.refusal->sentence + "\n"));
    return 0;
  }
  if (!parsed.head.has_value()) {
    VERIFY(bytes.size() < kMostHead);
    return 0;
  }
  const RequestHead& head = *parsed.head;
  VERIFY(parsed.used <= bytes.size() && parsed.used <= kMostHead);
  VERIFY(head.target.port != 0 && !head.target.host.name.empty());
  VERIFY(!(head.chunked && head.body_bytes != 0));
  VERIFY(head.tunnel == head.forward.empty());
  if (!head.tunnel) {
    // What is passed on is one whole request, which we would understand the same way.
    const std::string_view forward = head.forward;
    VERIFY(forward.find("\r\n\r\n") == forward.size() - 4);
    const std::size_t space = forward.find(' ');
    const std::string absolute = std::string(forward.substr(0, space + 1)) + "http://" +
                                 head.target.text() + std::string(forward.substr(space + 1));
    // It may be longer than a head may be, by the scheme and the target, and have more headers, by
    // the two that are always written.
    const ParsedHead again = parse_request_head(absolute);
    VERIFY(again.head.has_value() || again.refusal->status == 431);
    if (again.head.has_value()) {
      VERIFY(again.head->target == head.target && again.head->forward == head.forward);
      VERIFY(again.head->body_bytes == head.body_bytes && again.head->chunked == head.chunked);
    }
  }
  check_body(head, bytes.substr(parsed.used));
  return 0;
}
