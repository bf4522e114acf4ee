// multipart/form-data (RFC 7578, RFC 2046) as a stream: parts come out as their bytes come in.
// Pure.
//
// Nothing of a body is kept but what may yet be the beginning of a boundary, and one part's header
// lines, which are bounded. The first error is final.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::api::e2b {

// The boundary that a Content-Type names. Error: another type, or none of 1 to 70 characters.
Result<std::string> multipart_boundary(std::string_view content_type);

struct MultipartPart {
  std::string name;
  std::optional<std::string> file_name;  // as it came, whatever directories it names
};
// Of one Content-Disposition value. Error: not form-data, or malformed.
Result<MultipartPart> parse_disposition(std::string_view value);

class MultipartReader {
 public:
  static constexpr std::size_t kMaxPartHead = 8 * 1024;
  static constexpr std::size_t kMaxParts = 4096;

  explicit MultipartReader(std::string_view boundary);

  void feed(std::string_view bytes);

  struct Event {
    enum class Kind : std::uint8_t {
      kMore,     // feed() is wanted; where there is nothing more, the body is cut off
      kPart,     // a part begins
      kData,     // bytes of it
      kPartEnd,  // it is whole
      kEnd,      // the closing boundary has come; what follows is ignored
    };
    Kind kind = Kind::kMore;
    MultipartPart part;  // kPart
    std::string data;    // kData
  };
  Result<Event> next();

 private:
  enum class State : std::uint8_t { kPreamble, kBoundary, kHead, kBody, kEnd };

  Result<Event> after_boundary();
  Result<Event> head();
  Result<Event> body();

  std::string delimiter_;  // CR LF "--" boundary
  std::string buffer_;
  State state_ = State::kPreamble;
  std::size_t parts_ = 0;
};

}  // namespace caisson::api::e2b
