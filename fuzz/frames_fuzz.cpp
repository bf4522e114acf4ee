// libraries: base
// parser: src/base/proto.h src/base/proto.cpp
//
// The framed protocol, as the supervisor reads it from a guest: bytes in pieces of any size give
// frames or one lasting error, what a decoder hands out encodes to the bytes that it took, and
// reading the fields of a payload stays inside it. The fields are written again as what is read as
// the same, and so are a HELLO, a CREDIT and the error of a CLOSE.
#include <cstdlib>

#include "base/proto.h"

using namespace caisson;

namespace {

void read_fields(std::string_view payload) {
  Result<proto::FieldReader> reader = proto::FieldReader::parse(payload);
  if (!reader.has_value()) return;
  proto::Fields written;
  for (std::uint16_t tag = 0; tag < 220; ++tag) {
    const auto name = static_cast<proto::Tag>(tag);
    if (reader->has(name) != reader->text(name).has_value()) std::abort();
    std::size_t size = 0;
    for (std::string_view value : reader->all(name)) size += value.size();
    if (size > payload.size()) std::abort();
    const Result<std::uint64_t> number = reader->number(name);
    if (number.has_value() && reader->text(name)->size() == 8) {
      written.put_u64(name, *number);
    } else {
      for (std::string_view value : reader->all(name)) written.put(name, value);
    }
  }
  const Result<proto::FieldReader> again = proto::FieldReader::parse(written.bytes());
  if (!again.has_value()) std::abort();
  for (std::uint16_t tag = 0; tag < 220; ++tag) {
    const auto name = static_cast<proto::Tag>(tag);
    // Of numbers only the first counts.
    if (reader->has(name) != again->has(name)) std::abort();
    if (reader->has(name) && *reader->text(name) != *again->text(name)) std::abort();
  }
  if (const std::optional<Error> error = reader->error()) {
    const std::string fields = proto::Fields().put_error(*error).bytes();
    const std::optional<Error> same = proto::FieldReader::parse(fields).value().error();
    if (!same.has_value() || same->code() != error->code()) std::abort();
    if (!error->message().starts_with(same->message())) std::abort();
  }
}

// An OPEN that is longer than a frame comes out of its pieces whole.
void read_long(const proto::Frame& frame) {
  std::string payload;
  while (payload.size() <= 2 * proto::kMaxPayload) payload += frame.payload;
  const std::string frames =
      proto::encode_frame(frame.header.stream, frame.header.type, frame.header.detail, payload);
  proto::Decoder decoder;
  for (std::string_view rest = frames; !rest.empty();) {
    const std::string_view piece = rest.substr(0, 125'000);
    rest.remove_prefix(piece.size());
    decoder.feed(piece);
    const Result<std::optional<proto::Frame>> whole = decoder.next();
    if (!whole.has_value() || whole->has_value() != rest.empty()) std::abort();
    if (rest.empty() && (*whole)->payload != payload) std::abort();
  }
}

void read_payload(const proto::Frame& frame) {
  if (frame.header.type == proto::FrameType::kHello) {
    const auto version = proto::check_hello(frame.payload);
    if (version.has_value() && (*version < proto::kMinVersion || *version > proto::kVersion))
      std::abort();
    if (!proto::check_hello(proto::hello_payload()).has_value()) std::abort();
  }
  if (frame.header.type == proto::FrameType::kCredit) {
    const auto bytes = proto::parse_credit(frame.payload);
    if (!bytes.has_value()) return;
    const auto channel = static_cast<proto::Channel>(frame.header.detail);
    if (proto::encode_credit(frame.header.stream, channel, *bytes) !=
        proto::encode_frame(frame.header.stream, frame.header.type, frame.header.detail,
                            frame.payload))
      std::abort();
  }
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
      read_payload(got);
      if (opens && got.payload.size() > 100) read_long(got);
      const std::string frame_again =
          proto::encode_frame(got.header.stream, got.header.type, got.header.detail, got.payload);
      if (proto::encoded_size(frame_again) > frame_again.size()) std::abort();
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
