// libraries: egress policy base
// parser: src/egress/asked_connection.cpp
//
// What a program says to a proxy: whoever asks for a name asks for it in one spelling.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "egress/asked_connection.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using State = AskedConnection::State;

void check(const AskedConnection& asked, std::string_view bytes) {
  VERIFY(asked.used <= bytes.size());
  VERIFY((asked.state == State::kRefused) == !asked.sentence.empty());
  if (asked.state != State::kAsked) return;
  VERIFY(asked.to.port != 0);
  const auto again = policy::canonical_authority(asked.to.text());
  VERIFY(again.has_value() && again->host == asked.to.host && again->port == asked.to.port);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const AskedConnection asked = asked_connection(bytes);
  check(asked, bytes);
  if (asked.state != State::kGreeted) return 0;
  bytes.remove_prefix(asked.used);
  check(socks_request(bytes), bytes);
  return 0;
}
