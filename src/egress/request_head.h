// The head of a request to the proxy, and the framing of its body: the proxy's parser of hostile
// bytes. Pure, bounded, fuzzed (fuzz/request_head_fuzz.cpp).
//
// Strict where leniency lets two servers see two different requests: lines end with CR LF, there is
// no folding, no space before a colon, one Host that names the same target, one Content-Length or
// `Transfer-Encoding: chunked` but never both, and exactly the one body that the head announces is
// passed on. What is passed on is written anew from what was understood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "egress/allow_list.h"

namespace caisson::egress {

inline constexpr std::size_t kMostHead = 16 * 1024;
inline constexpr std::size_t kMostHeaders = 128;

// What answers a request that is not let through.
struct Answer {
  int status = 400;
  std::string sentence;
};

struct RequestHead {
  Destination target;
  bool tunnel = false;  // CONNECT
  // Of a plain request: what goes to the server, with an origin-form target and without what is
  // meant for the proxy alone.
  std::string forward;
  std::uint64_t body_bytes = 0;
  bool chunked = false;
};

// One of: more bytes are needed (none), a head and how many bytes it had, or why not.
struct ParsedHead {
  std::optional<RequestHead> head;
  std::optional<Answer> refusal;
  std::size_t used = 0;
};
ParsedHead parse_request_head(std::string_view bytes);

// A response of the proxy's own, after which it closes the connection.
std::string response(const Answer& answer);

// Follows a request's body: how many of the bytes that come belong to it.
class BodyFramer {
 public:
  explicit BodyFramer(const RequestHead& head)
      : left_(head.body_bytes),
        state_(head.chunked ? State::kSize : State::kData),
        chunked_(head.chunked) {}

  // How many of these bytes belong to the body; fewer than there are where it ends among them.
  // Error: the chunks are malformed, or have trailers or extensions.
  Result<std::size_t> take(std::string_view bytes);
  bool whole() const { return chunked_ ? state_ == State::kEnd : left_ == 0; }

 private:
  enum class State : std::uint8_t {
    kSize,
    kSizeLineFeed,
    kData,
    kDataReturn,
    kDataLineFeed,
    kLastReturn,
    kLastLineFeed,
    kEnd,
  };
  Status take_framing(char c);

  std::uint64_t left_ = 0;
  State state_;
  bool chunked_;
  unsigned digits_ = 0;
};

}  // namespace caisson::egress
