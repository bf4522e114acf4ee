// libraries: base
// parser: src/base/encoding.cpp src/base/time_text.cpp
//
// Encodings that clients and servers write: the input as base64 of both kinds, as bytes to encode,
// as UTF-8 and as a time. One text for each value: what is read is written as what was read.
#include "base/encoding.h"

#include "base/error.h"
#include "base/time_text.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

void check_base64(std::string_view bytes) {
  VERIFY(base64_decode(base64_encode(bytes)) == bytes);
  VERIFY(base64url_decode(base64url_encode(bytes)) == bytes);
  if (const auto read = base64_decode(bytes)) VERIFY(base64_encode(*read) == bytes);
  if (const auto read = base64url_decode(bytes)) VERIFY(base64url_encode(*read) == bytes);
  const std::string digits = hex_encode(bytes);
  VERIFY(digits.size() == bytes.size() * 2);
  VERIFY(digits.find_first_not_of("0123456789abcdef") == digits.npos);
}

void check_utf8(std::string_view bytes) {
  const std::size_t good = utf8_prefix(bytes);
  VERIFY(good <= bytes.size() && is_utf8(bytes.substr(0, good)));
  VERIFY(is_utf8(bytes) == (good == bytes.size()));
  // What stands before it changes nothing.
  VERIFY(utf8_prefix(std::string("\xf4\x8f\xbf\xbf") + std::string(bytes)) == good + 4);
}

void check_time(std::string_view text) {
  const auto time = parse_time(text);
  if (!time.has_value()) return;
  const std::string written = time_text(*time);
  const auto again = parse_time(written);
  // An offset can lead out of the years that are read.
  if (!again.has_value()) {
    VERIFY(written.starts_with("1969-12-31") || written.starts_with("2201-01-01"));
    return;
  }
  VERIFY(*again <= *time && *time - *again < std::chrono::microseconds(1));
  VERIFY(time_text(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_base64(bytes);
  check_utf8(bytes);
  check_time(bytes);
  return 0;
}
