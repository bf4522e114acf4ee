// libraries: http io base
//
// Envelopes of the Connect protocol, and its time limit.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/connect.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::http;

constexpr std::size_t kMost = 300;

struct Read {
  std::string again;  // what came out, written again
  bool failed = false;
  Code code{};
  bool operator==(const Read&) const = default;
};

Read read(std::string_view bytes, std::size_t step) {
  EnvelopeReader reader(kMost);
  Read out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    reader.feed(bytes.substr(at, step));
    for (;;) {
      const auto message = reader.next();
      if (!message.has_value()) {
        VERIFY(!reader.next().has_value());
        out.failed = true;
        out.code = message.error().code();
        return out;
      }
      if (!message->has_value()) break;
      VERIFY((*message)->bytes.size() <= kMost);
      out.again += envelope((*message)->flags, (*message)->bytes);
    }
  }
  VERIFY(bytes.starts_with(out.again));
  VERIFY(reader.partial() == (out.again.size() < bytes.size()));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Read whole = read(bytes, size + 1);
  VERIFY(whole == read(bytes, 1));
  VERIFY(whole == read(bytes, 4));
  const auto timeout = parse_timeout(bytes);
  if (timeout.has_value()) VERIFY(timeout->has_value() && (*timeout)->count() >= 0);
  return 0;
}
