// libraries: egress policy base
// parser: src/egress/first_bytes.cpp
//
// How a connection's first bytes are sorted, held against the parsers that read on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "egress/client_hello.h"
#include "egress/first_bytes.h"
#include "egress/request_head.h"

namespace {

using namespace caisson::egress;  // NOLINT: a program of one file

// The answer comes once and stays.
FirstBytes check_prefixes(std::string_view bytes) {
  FirstBytes last = FirstBytes::kNeedMore;
  for (std::size_t size = 0; size <= std::min(bytes.size(), 2 * kMostFirstBytes); ++size) {
    const FirstBytes now = first_bytes(bytes.substr(0, size));
    VERIFY(last == FirstBytes::kNeedMore || now == last);
    if (now == FirstBytes::kNeedMore) VERIFY(size < kMostFirstBytes);
    last = now;
  }
  VERIFY(first_bytes(bytes) == last);
  return last;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const FirstBytes protocol = check_prefixes(bytes);

  // Neither a hello nor a request that we would read is taken for something else. Methods are free
  // words, so one that is SSH's greeting could be both.
  ClientHelloReader reader;
  const auto state = reader.feed(bytes);
  using State = ClientHelloReader::State;
  if (state == State::kFound || state == State::kRefused) VERIFY(protocol == FirstBytes::kTls);
  if (state == State::kNotTls) VERIFY(protocol != FirstBytes::kTls);
  if (parse_request_head(bytes).head.has_value() && !bytes.starts_with("SSH-"))
    VERIFY(protocol == FirstBytes::kHttp1);
  if (protocol == FirstBytes::kHttp2PriorKnowledge) VERIFY(bytes.starts_with("PRI * HTTP/2.0\r\n"));
  if (protocol == FirstBytes::kSsh) VERIFY(bytes.starts_with("SSH-"));
  if (protocol == FirstBytes::kHttp1) VERIFY(bytes.find(' ') <= kMostMethodBytes);
  return 0;
}
