// libraries: http
// parser: src/http/gzip.cpp
//
// Bodies that are gzip, and what a client says that it takes. However the bytes are cut, the same
// comes out, or it is refused; what is compressed here is read as what it was.
#include "http/gzip.h"

#include "base/error.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::http;

// A small body can become a large one; here it is enough to see its beginning.
constexpr std::size_t kMost = 1 << 20;

struct Unpacked {
  std::string bytes;
  bool whole = false, refused = false;
};

Unpacked unpack(std::string_view bytes, std::size_t piece) {
  Gunzip gunzip;
  Unpacked out;
  for (std::size_t at = 0; at < bytes.size() && out.bytes.size() < kMost; at += piece) {
    gunzip.feed(std::string(bytes.substr(at, piece)));
    for (;;) {
      const auto next = gunzip.next();
      if (!next.has_value()) {
        VERIFY(next.error().code() == Code::kInvalidArgument && !gunzip.next().has_value());
        out.refused = true;
        return out;
      }
      if (!next->has_value()) break;
      VERIFY((*next)->size() <= kGzipPiece);
      out.bytes += **next;
      if (out.bytes.size() >= kMost) return out;
    }
  }
  out.whole = gunzip.finish().has_value();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Unpacked all = unpack(bytes, size + 1), pieces = unpack(bytes, 7);
  if (all.bytes.size() < kMost) {
    VERIFY(all.whole == pieces.whole && all.refused == pieces.refused);
    VERIFY(all.refused || all.bytes == pieces.bytes);
  }

  Gzip gzip;
  std::string packed = gzip.feed(bytes.substr(0, size / 2));
  packed += gzip.feed(bytes.substr(size / 2));
  packed += gzip.finish();
  const Unpacked again = unpack(packed, packed.size());
  VERIFY(size >= kMost || (again.whole && again.bytes == bytes));

  VERIFY(coding_for(std::nullopt) == Coding::kIdentity);
  (void)coding_for(bytes);
  // Naming what it takes already changes nothing about what it does not.
  if (coding_for(bytes) == Coding::kNone) VERIFY(bytes.contains('0'));
  return 0;
}
