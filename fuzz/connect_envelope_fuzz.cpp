// libraries: http io base
// parser: src/http/connect.cpp
//
// Envelopes of the Connect protocol, its time limit, and its errors.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/encoding.h"
#include "base/error.h"
#include "base/json.h"
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

// An error of ours, whatever its sentence: what a unary answer and a stream's last envelope say.
void check_error(Code code, std::string_view sentence) {
  const Error error(code, std::string(sentence));
  const auto unary = json::parse(error_json(error));
  VERIFY(unary.has_value() && *unary->find("code")->as_string() == to_string(code));
  VERIFY(!is_utf8(sentence) || *unary->find("message")->as_string() == sentence);
  const auto last = json::parse(end_stream_json(error));
  VERIFY(last.has_value() && *last->find("error") == *unary);
}

void check_errors(std::string_view bytes) {
  VERIFY(end_stream_json(std::nullopt) == "{}");
  constexpr int kFirst = static_cast<int>(Code::kCancelled);
  constexpr int kCount = static_cast<int>(Code::kUnauthenticated) - kFirst + 1;
  for (int number = 0; number < kCount; ++number) {
    const int status = rpc_status_of(static_cast<Code>(kFirst + number));
    VERIFY(status >= 400 && status < 600);
  }
  if (bytes.empty()) return;
  const int chosen = static_cast<unsigned char>(bytes[0]) % kCount;
  check_error(static_cast<Code>(kFirst + chosen), bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Read whole = read(bytes, size + 1);
  VERIFY(whole == read(bytes, 1));
  VERIFY(whole == read(bytes, 4));
  const auto timeout = parse_timeout(bytes);
  if (timeout.has_value()) VERIFY(timeout->has_value() && (*timeout)->count() >= 0);
  if (size <= 256) check_errors(bytes);
  return 0;
}
