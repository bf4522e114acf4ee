// The framed protocol, as the supervisor reads it from a guest: bytes in pieces of any size give
// frames or one lasting error, what a decoder hands out encodes to the bytes that it took, and
// reading the fields of a payload stays inside it.
// libraries: base
#include <cstdlib>

#include "base/proto.h"

using namespace caisson;

namespace {

void read_fields(std::string_view payload) {
  Result<proto::FieldReader> reader = proto::FieldReader::parse(payload);
  if (!reader.has_value()) return;
  for (std::uint16_t tag = 0; tag < 160; ++tag) {
    const auto name = static_cast<proto::Tag>(tag);
    (void)reader->text(name);
    (void)reader->number(name);
    std::size_t size = 0;
    for (std::string_view value : reader->all(name)) size += value.size();
    if (size > payload.size()) std::abort();
  }
  (void)reader->error();
}

}  // namespace

// The first byte says how large the pieces are in which the rest arrives.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] + 1u;
  std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  proto::Decoder decoder;
  std::string again;
  bool in_pieces = false;  // an OPEN was, which need not be cut where we would
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    decoder.feed(bytes.substr(at, piece));
    while (true) {
      Result<std::optional<proto::Frame>> frame = decoder.next();
      if (!frame.has_value()) {
        // Final: nothing that follows may be taken for a frame.
        decoder.feed("more");
        if (decoder.next().has_value()) std::abort();
        return 0;
      }
      if (!frame->has_value()) break;
      const proto::Frame& got = **frame;
      const bool opens = got.header.type == proto::FrameType::kOpen;
      if (got.payload.size() > (opens ? proto::kMaxOpen : proto::kMaxPayload)) std::abort();
      read_fields(got.payload);
      if (got.header.type == proto::FrameType::kCredit) (void)proto::parse_credit(got.payload);
      const std::string frame_again =
          proto::encode_frame(got.header.stream, got.header.type, got.header.detail, got.payload);
      const bool same = bytes.substr(again.size()).starts_with(frame_again);
      if (opens && !same) in_pieces = true;
      again += frame_again;
    }
  }
  if (in_pieces) return 0;
  if (bytes.substr(0, again.size()) != again) std::abort();
  if (again.size() + decoder.buffered() > bytes.size()) std::abort();
  return 0;
}
