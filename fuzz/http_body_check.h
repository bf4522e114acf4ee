// What holds of every body, however it is framed and however it is cut: shared by the fuzz targets
// of the HTTP codec.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "http/codec.h"

struct DecodedBody {
  std::string bytes;
  std::size_t used = 0;
  bool done = false, refused = false;
  bool operator==(const DecodedBody&) const = default;
};

inline DecodedBody decode_body(caisson::http::Framing framing, std::string_view input,
                               std::size_t step, std::size_t most) {
  caisson::http::BodyDecoder decoder(framing);
  DecodedBody out;
  while (out.used < input.size() && !decoder.done()) {
    std::string_view part = input.substr(out.used, step);
    const std::size_t before = part.size();
    const auto piece = decoder.take(part, most);
    out.used += before - part.size();
    if (!piece.has_value()) {
      VERIFY(!decoder.done() && !decoder.take(part, most).has_value());
      out.refused = true;
      return out;
    }
    VERIFY(piece->size() <= most);
    VERIFY(!piece->empty() || part.empty() || decoder.done());
    out.bytes += *piece;
  }
  out.done = decoder.done();
  VERIFY(decoder.end_of_input() ==
         (out.done || framing.kind == caisson::http::Framing::Kind::kUntilClose));
  return out;
}

// The same body comes out whether it comes at once or byte by byte; and written as chunks again, it
// is read as the same.
inline void check_body(caisson::http::Framing framing, std::string_view input) {
  const DecodedBody whole = decode_body(framing, input, input.size() + 1, input.size() + 1);
  VERIFY(whole == decode_body(framing, input, 1, 1));
  VERIFY(whole == decode_body(framing, input, 7, 3));
  if (whole.bytes.empty()) return;
  const std::string chunked =
      caisson::http::chunk(whole.bytes) + std::string(caisson::http::kLastChunk);
  const DecodedBody again = decode_body({.kind = caisson::http::Framing::Kind::kChunked}, chunked,
                                        chunked.size(), chunked.size());
  VERIFY(again.done && again.bytes == whole.bytes && again.used == chunked.size());
}
