// The Connect protocol's messages over HTTP: envelopes of streams, errors, time limits.
//
// Pure. Source: the Connect protocol specification. A stream's body is a row of envelopes: one byte
// of flags, four of length (big-endian), the message; the last has flag 0x02 and says how the
// stream ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::http {

inline constexpr std::uint8_t kEndStream = 0x02;
inline constexpr std::uint8_t kCompressed = 0x01;  // we neither send nor take compressed messages

std::string envelope(std::uint8_t flags, std::string_view message);

// Takes bytes as they come and hands out whole messages; never holds more than one and what was
// fed.
class EnvelopeReader {
 public:
  explicit EnvelopeReader(std::size_t most) : most_(most) {}
  void feed(std::string_view bytes);
  struct Message {
    std::uint8_t flags;
    std::string bytes;
  };
  // nullopt: more bytes are needed. Error (final): longer than `most`, flags that are not known.
  Result<std::optional<Message>> next();
  // Whether a message has begun: the end of the body here cuts it off.
  bool partial() const { return buffered() > 0; }
  // Bytes of what was not handed out yet.
  std::size_t buffered() const { return buffer_.size() - taken_; }

 private:
  std::size_t most_;
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes at the buffer's front that were handed out
};

// The HTTP status of a unary error.
int rpc_status_of(Code code);
// {"code":"not_found","message":"…"}
std::string error_json(const Error& error);
// The message of the last envelope: {} or {"error":{…}}.
std::string end_stream_json(const std::optional<Error>& error);
// Connect-Timeout-Ms: at most ten digits. nullopt: absent. Error: malformed.
Result<std::optional<std::chrono::milliseconds>> parse_timeout(
    std::optional<std::string_view> value);

}  // namespace caisson::http
