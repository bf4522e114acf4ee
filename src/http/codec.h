// The HTTP/1.1 codec: bytes to messages and back, without any input or output.
//
// What it accepts is part of the wall: two readers of the same bytes must not see different
// messages, so whatever a lenient reader might take in another way is refused (RFC 9112 with every
// MUST and no tolerance: lines end with CR LF, nothing is folded, a body has one framing). The
// server and the client use the same rules. Pure; nothing is kept but what a call was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/message.h"

namespace caisson::http {

// Why bytes are no message of ours: what a server answers, and a sentence for its body.
struct Refusal {
  int status = 400;
  std::string sentence;
};
template <typename T>
using Parsed = std::expected<T, Refusal>;

// Finds the end of a head in bytes that grow, looking at each byte once.
class HeadScanner {
 public:
  // How long the head in front of `bytes` is, with its empty line; nullopt: it has not ended.
  // `bytes` begins each time with what the call before had. Refused: a line that ends in another
  // way, a zero byte, an empty first line, more than `most` bytes (431).
  Parsed<std::optional<std::size_t>> scan(std::string_view bytes, std::size_t most);

 private:
  std::size_t seen_ = 0, line_start_ = 0;
};

// How a body ends.
struct Framing {
  enum class Kind : std::uint8_t { kNone, kLength, kChunked, kUntilClose } kind = Kind::kNone;
  std::uint64_t length = 0;  // of kLength
};

struct ParsedRequest {
  RequestHead head;
  Framing body;
  bool keep_alive = true;         // as far as the client is concerned
  bool expects_continue = false;  // waits for "100 Continue" before it sends the body
  bool upgrade = false;           // asks for another protocol, or for a tunnel (CONNECT)
};
// `head` is what HeadScanner found. Refused: 400, 417 (another expectation), 431 (too many
// headers), 501 (another transfer coding), 505 (another version).
Parsed<ParsedRequest> parse_request_head(std::string_view head, std::size_t most_headers);

struct ParsedResponse {
  ResponseHead head;
  Framing body;
  bool keep_alive = true;
};
// `method`: of the request that it answers, which decides about its body. A refusal's status means
// nothing here. An interim answer (1xx) has no body and is not the last one, but for 101.
Parsed<ParsedResponse> parse_response_head(std::string_view head, std::string_view method,
                                           std::size_t most_headers);

// Takes a body apart.
class BodyDecoder {
 public:
  BodyDecoder() = default;
  explicit BodyDecoder(Framing framing);

  // Takes bytes from the front of `input` and gives the next piece of the body, a part of `input`
  // of at most `most` bytes (at least 1). Empty: the body has ended (done()), or all of `input`
  // was taken and more is needed. Refused: malformed chunks; it stays so.
  Parsed<std::string_view> take(std::string_view& input, std::size_t most);
  bool done() const { return state_ == State::kDone; }
  // The connection has ended here; whether the body is whole with that.
  bool end_of_input();
  // How many bytes of the body surely follow.
  std::uint64_t left() const { return done() ? 0 : left_; }
  const Framing& framing() const { return framing_; }

 private:
  enum class State : std::uint8_t {
    kData,
    kChunkSize,
    kChunkExtension,
    kChunkLineEnd,
    kChunkData,
    kChunkEnd,
    kChunkEndLine,
    kTrailer,
    kTrailerEnd,
    kDone,
    kRefused
  };
  Parsed<std::string_view> refuse(std::string sentence);
  std::optional<std::string> framing_byte(char c);
  std::optional<std::string> end_of_trailer();

  Framing framing_;
  State state_ = State::kDone;
  std::uint64_t left_ = 0;      // of the body, or of this chunk
  unsigned digits_ = 0;         // of this chunk's size
  std::size_t extensions_ = 0;  // bytes of chunk extensions in the whole body
  std::size_t trailers_ = 0;    // bytes of trailers
  std::string line_;            // the trailer that is being read
};

// A head as bytes. Error: invalid_argument for what would be no head (a line break in a value, a
// name that is no token); nothing is repaired.
Result<std::string> encode(const RequestHead& head);
Result<std::string> encode(const ResponseHead& head);
// A piece of a chunked body (not empty), and its end.
std::string chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Whether a header that is a list of words ("Connection: keep-alive, Upgrade") has this one.
bool has_word(const Headers& headers, std::string_view name, std::string_view word);
// Removes what is meant for one connection alone: Connection and what it names, and its like. For
// who passes a message on; the framing stays.
void remove_hop_by_hop(Headers& headers);

}  // namespace caisson::http
