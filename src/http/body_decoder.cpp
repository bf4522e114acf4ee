#include <algorithm>

#include "http/codec.h"
#include "http/text.h"

namespace caisson::http {
namespace {

constexpr unsigned kMostChunkDigits = 15;
constexpr std::size_t kMostExtensions = 4096;
constexpr std::size_t kMostTrailers = 8192;

// 16 or more: no digit.
unsigned hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (lower(c) >= 'a' && lower(c) <= 'f') return lower(c) - 'a' + 10;
  return 16;
}

}  // namespace

BodyDecoder::BodyDecoder(Framing framing) : framing_(framing) {
  switch (framing.kind) {
    case Framing::Kind::kNone:
      state_ = State::kDone;
      break;
    case Framing::Kind::kLength:
      left_ = framing.length;
      state_ = left_ == 0 ? State::kDone : State::kData;
      break;
    case Framing::Kind::kChunked:
      state_ = State::kChunkSize;
      break;
    case Framing::Kind::kUntilClose:
      state_ = State::kData;
      break;
  }
}

Parsed<std::string_view> BodyDecoder::refuse(std::string sentence) {
  state_ = State::kRefused;
  return std::unexpected(Refusal{400, std::move(sentence)});
}

Parsed<std::string_view> BodyDecoder::take(std::string_view& input, std::size_t most) {
  VERIFY(most > 0);
  if (state_ == State::kRefused) return refuse("the body is malformed");
  while (!input.empty() && !done()) {
    if (state_ == State::kData || state_ == State::kChunkData) {
      const bool bounded = framing_.kind != Framing::Kind::kUntilClose;
      std::size_t size = std::min(input.size(), most);
      if (bounded) size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left_));
      const std::string_view piece = input.substr(0, size);
      input.remove_prefix(size);
      if (bounded) left_ -= size;
      if (bounded && left_ == 0) state_ = state_ == State::kData ? State::kDone : State::kChunkEnd;
      return piece;
    }
    const char c = input.front();
    input.remove_prefix(1);
    if (auto sentence = framing_byte(c); sentence.has_value()) return refuse(std::move(*sentence));
  }
  return std::string_view();
}

// One byte that is no data. Gives what is wrong with it.
std::optional<std::string> BodyDecoder::framing_byte(char c) {
  switch (state_) {
    case State::kChunkSize:
      if (const unsigned value = hex_value(c); value < 16) {
        if (++digits_ > kMostChunkDigits) return "a chunk's size of more than 15 digits";
        left_ = left_ * 16 + value;
        return std::nullopt;
      }
      if (digits_ == 0) return "a chunk without a size";
      if (c == '\r')
        state_ = State::kChunkLineEnd;
      else if (c == ';')
        state_ = State::kChunkExtension;
      else
        return "a chunk's size is not followed by its line's end";
      return std::nullopt;
    case State::kChunkExtension:
      if (c == '\r') {
        state_ = State::kChunkLineEnd;
        return std::nullopt;
      }
      if (!is_value(std::string_view(&c, 1))) return "a control character in a chunk's extension";
      if (++extensions_ > kMostExtensions) return "more than 4096 bytes of chunk extensions";
      return std::nullopt;
    case State::kChunkLineEnd:
      if (c != '\n') return "a chunk's size is not followed by its line's end";
      digits_ = 0;
      state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
      return std::nullopt;
    case State::kChunkEnd:
      if (c != '\r') return "a chunk is longer than its size";
      state_ = State::kChunkEndLine;
      return std::nullopt;
    case State::kChunkEndLine:
      if (c != '\n') return "a chunk is longer than its size";
      state_ = State::kChunkSize;
      return std::nullopt;
    case State::kTrailer:
      if (c == '\r') {
        state_ = State::kTrailerEnd;
        return std::nullopt;
      }
      if (c == '\n') return "a line feed without a carriage return in the trailers";
      line_ += c;
      if (trailers_ + line_.size() > kMostTrailers) return "more than 8192 bytes of trailers";
      return std::nullopt;
    case State::kTrailerEnd:
      if (c != '\n') return "a carriage return without a line feed in the trailers";
      return end_of_trailer();
    default:
      return "no byte belongs here";
  }
}

std::optional<std::string> BodyDecoder::end_of_trailer() {
  if (line_.empty()) {
    state_ = State::kDone;
    return std::nullopt;
  }
  // Dropped: nobody here has a use for them.
  if (!parse_header_line(line_).has_value())
    return "a trailer is not NAME: VALUE without control characters";
  trailers_ += line_.size() + 2;
  line_.clear();
  state_ = State::kTrailer;
  return std::nullopt;
}

bool BodyDecoder::end_of_input() {
  if (framing_.kind == Framing::Kind::kUntilClose && state_ == State::kData) state_ = State::kDone;
  return done();
}

}  // namespace caisson::http
