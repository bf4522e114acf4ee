#include "base/proto.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace caisson::proto {
namespace {

// Bytes that were taken are dropped from the front of the buffer only beyond this many, so that a
// run of small frames does not move the rest each time.
constexpr std::size_t kCompactAbove = 64 * 1024;
constexpr std::size_t kPieceSize = 60 * 1024;

template <typename Integer>
void append_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    out.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff));
}

std::uint64_t read_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = (value << 8) | static_cast<std::uint8_t>(bytes[i]);
  return value;
}

struct Versions {
  std::uint16_t ours = kVersion, our_least = kMinVersion;
};

// In the test build CAISSON_PROTOCOL ("2:1") makes this program one of another version.
Versions own_versions() {
  Versions versions;
#if defined(CAISSON_TEST_SWITCHES)
  if (const char* given = ::getenv("CAISSON_PROTOCOL"); given != nullptr)
    static_cast<void>(std::sscanf(given, "%hu:%hu", &versions.ours, &versions.our_least));
#endif
  return versions;
}

std::string number_text(std::uint64_t value) {
  return std::to_string(value);
}

Result<Header> parse_header(std::string_view bytes) {
  Header header;
  header.length = static_cast<std::uint32_t>(read_little_endian(bytes.substr(0, 4)));
  header.stream = static_cast<std::uint32_t>(read_little_endian(bytes.substr(4, 4)));
  const auto type = static_cast<std::uint8_t>(bytes[8]);
  header.detail = static_cast<std::uint8_t>(bytes[9]);
  header.reserved = static_cast<std::uint16_t>(read_little_endian(bytes.substr(10, 2)));
  if (header.length > kMaxPayload)
    return fail(Error::invalid("frame: payload of " + number_text(header.length) +
                               " bytes, at most " + number_text(kMaxPayload) + " are allowed"));
  if (type < static_cast<std::uint8_t>(FrameType::kHello) ||
      type > static_cast<std::uint8_t>(FrameType::kClose))
    return fail(Error::invalid("frame: type " + number_text(type) + ", allowed are 1 to 8"));
  if (header.reserved != 0)
    return fail(
        Error::invalid("frame: reserved bytes are " + number_text(header.reserved) + ", not zero"));
  header.type = static_cast<FrameType>(type);
  const bool has_channel = header.type == FrameType::kData || header.type == FrameType::kCredit ||
                           header.type == FrameType::kFinish;
  if (has_channel && header.detail > static_cast<std::uint8_t>(Channel::kErr))
    return fail(
        Error::invalid("frame: channel " + number_text(header.detail) + ", allowed are 0 to 2"));
  if (!has_channel && header.type != FrameType::kOpen && header.detail != 0)
    return fail(Error::invalid("frame: detail " + number_text(header.detail) + " of a type " +
                               number_text(type) + " frame, which has none"));
  return header;
}

}  // namespace

void encode_header(const Header& header, std::span<std::uint8_t, kHeaderSize> out) {
  for (std::size_t i = 0; i < 4; ++i) {
    out[i] = static_cast<std::uint8_t>(header.length >> (8 * i));
    out[4 + i] = static_cast<std::uint8_t>(header.stream >> (8 * i));
  }
  out[8] = static_cast<std::uint8_t>(header.type);
  out[9] = header.detail;
  out[10] = static_cast<std::uint8_t>(header.reserved & 0xff);
  out[11] = static_cast<std::uint8_t>(header.reserved >> 8);
}

namespace {

std::string encode_pieces(std::uint32_t stream, std::uint8_t detail, std::string_view payload) {
  VERIFY(payload.size() <= kMaxOpen);
  std::string out;
  for (std::size_t at = 0; at < payload.size(); at += kPieceSize) {
    Fields fields;
    if (at == 0) fields.put_u32(Tag::kWhole, static_cast<std::uint32_t>(payload.size()));
    fields.put(Tag::kPiece, payload.substr(at, kPieceSize));
    out += at == 0 ? encode_frame(stream, FrameType::kOpen, detail, fields.bytes())
                   : encode_frame(stream, FrameType::kControl, 0, fields.bytes());
  }
  return out;
}

}  // namespace

std::string encode_frame(std::uint32_t stream, FrameType type, std::uint8_t detail,
                         std::string_view payload) {
  if (type == FrameType::kOpen && payload.size() > kMaxPayload)
    return encode_pieces(stream, detail, payload);
  VERIFY(payload.size() <= kMaxPayload);
  std::uint8_t header[kHeaderSize];
  encode_header({static_cast<std::uint32_t>(payload.size()), stream, type, detail, 0}, header);
  std::string out;
  out.reserve(kHeaderSize + payload.size());
  out.append(reinterpret_cast<const char*>(header), kHeaderSize);
  out.append(payload);
  return out;
}

std::size_t encoded_size(std::string_view frames) {
  return kHeaderSize + static_cast<std::size_t>(read_little_endian(frames.substr(0, 4)));
}

std::string encode_credit(std::uint32_t stream, Channel channel, std::uint32_t bytes) {
  std::string payload;
  append_little_endian(payload, bytes);
  return encode_frame(stream, FrameType::kCredit, static_cast<std::uint8_t>(channel), payload);
}

Result<std::uint32_t> parse_credit(std::string_view payload) {
  if (payload.size() != 4)
    return fail(
        Error::invalid("credit: payload of " + number_text(payload.size()) + " bytes, it has 4"));
  const auto bytes = static_cast<std::uint32_t>(read_little_endian(payload));
  if (bytes == 0) return fail(Error::invalid("credit: grants 0 bytes, at least 1 is allowed"));
  return bytes;
}

Result<std::uint16_t> common_version(std::uint64_t peer_version, std::uint64_t peer_min_version) {
  const auto [ours, our_least] = own_versions();
  const std::uint64_t version = std::min<std::uint64_t>(ours, peer_version);
  if (peer_min_version > peer_version)
    return fail(Error::invalid("hello: version " + number_text(peer_version) +
                               " is below the least version " + number_text(peer_min_version)));
  if (version < our_least || version < peer_min_version)
    return fail(Error(Code::kUnimplemented,
                      "hello: the peer speaks versions " + number_text(peer_min_version) + " to " +
                          number_text(peer_version) + ", this side " + number_text(our_least) +
                          " to " + number_text(ours)));
  return static_cast<std::uint16_t>(version);
}

std::string hello_payload() {
  const auto [ours, our_least] = own_versions();
  return Fields().put_u32(Tag::kVersion, ours).put_u32(Tag::kMinVersion, our_least).bytes();
}

Result<std::uint16_t> check_hello(std::string_view payload) {
  TRY_ASSIGN(const FieldReader fields, FieldReader::parse(payload));
  TRY_ASSIGN(const std::uint64_t version, fields.number(Tag::kVersion));
  TRY_ASSIGN(const std::uint64_t least, fields.number(Tag::kMinVersion));
  return common_version(version, least);
}

void Decoder::feed(std::string_view bytes) {
  if (broken_) return;
  if (offset_ == buffer_.size()) {
    buffer_.clear();
    offset_ = 0;
  } else if (offset_ > kCompactAbove) {
    buffer_.erase(0, offset_);
    offset_ = 0;
  }
  buffer_.append(bytes);
}

// Final: what is buffered is nothing any more.
Error Decoder::break_off(Error error) {
  broken_ = std::move(error);
  buffer_.clear();
  pieces_.reset();
  offset_ = 0;
  return *broken_;
}

Result<std::optional<Frame>> Decoder::next_frame() {
  if (broken_) return fail(*broken_);
  if (buffered() < kHeaderSize) return std::optional<Frame>();
  const std::string_view rest = std::string_view(buffer_).substr(offset_);
  Result<Header> header = parse_header(rest.substr(0, kHeaderSize));
  if (!header) return fail(break_off(std::move(header).error()));
  if (rest.size() < kHeaderSize + header->length) return std::optional<Frame>();
  Frame frame{*header, std::string(rest.substr(kHeaderSize, header->length))};
  offset_ += kHeaderSize + header->length;
  return std::optional<Frame>(std::move(frame));
}

Status Decoder::add_piece(const Frame& frame) {
  const bool first = frame.header.type == FrameType::kOpen;
  TRY_ASSIGN(const FieldReader fields,
             FieldReader::parse(frame.payload, FieldReader::Critical::kIgnore));
  TRY_ASSIGN(const std::string_view piece, fields.text(Tag::kPiece));
  if (first) {
    TRY_ASSIGN(const std::uint64_t whole, fields.number(Tag::kWhole));
    if (whole > kMaxOpen)
      return fail(Error::invalid("frame: an OPEN of " + number_text(whole) + " bytes, at most " +
                                 number_text(kMaxOpen) + " are allowed"));
    pieces_ = {.header = frame.header, .whole = static_cast<std::size_t>(whole), .payload = {}};
  } else if (frame.header.type != FrameType::kControl ||
             frame.header.stream != pieces_->header.stream) {
    return fail(Error::invalid("frame: another one between the pieces of an OPEN"));
  }
  if (piece.empty() || piece.size() > pieces_->whole - pieces_->payload.size())
    return fail(Error::invalid("frame: an OPEN whose pieces are not as long as it says"));
  pieces_->payload += piece;
  return {};
}

Result<std::optional<Frame>> Decoder::next() {
  for (;;) {
    TRY_ASSIGN(std::optional<Frame> frame, next_frame());
    if (!frame) return frame;
    const bool begins = frame->header.type == FrameType::kOpen && frame->payload.size() >= 2 &&
                        read_little_endian(std::string_view(frame->payload).substr(0, 2)) ==
                            static_cast<std::uint16_t>(Tag::kWhole);
    if (!begins && !pieces_) return frame;
    if (begins && pieces_)
      return fail(break_off(Error::invalid("frame: another one between the pieces of an OPEN")));
    if (auto added = add_piece(*frame); !added) return fail(break_off(std::move(added).error()));
    if (pieces_->payload.size() < pieces_->whole) continue;
    Frame whole{pieces_->header, std::move(pieces_->payload)};
    pieces_.reset();
    whole.header.length = static_cast<std::uint32_t>(whole.payload.size());
    return std::optional<Frame>(std::move(whole));
  }
}

Fields& Fields::put(Tag tag, std::string_view value) {
  append_little_endian(bytes_, static_cast<std::uint16_t>(tag));
  append_little_endian(bytes_, static_cast<std::uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}

Fields& Fields::put_u8(Tag tag, std::uint8_t value) {
  return put(tag, std::string_view(reinterpret_cast<const char*>(&value), 1));
}

Fields& Fields::put_u32(Tag tag, std::uint32_t value) {
  std::string bytes;
  append_little_endian(bytes, value);
  return put(tag, bytes);
}

Fields& Fields::put_u64(Tag tag, std::uint64_t value) {
  std::string bytes;
  append_little_endian(bytes, value);
  return put(tag, bytes);
}

Fields& Fields::put_error(const Error& error) {
  put_u32(Tag::kErrorCode, static_cast<std::uint32_t>(error.code()));
  if (error.error_number() != 0)
    put_u32(Tag::kErrorErrno, static_cast<std::uint32_t>(error.error_number()));
  return put(Tag::kErrorMessage, std::string_view(error.message()).substr(0, 4096));
}

Result<FieldReader> FieldReader::parse(std::string_view payload, Critical critical) {
  FieldReader reader;
  std::size_t offset = 0;
  while (offset < payload.size()) {
    if (payload.size() - offset < 6)
      return fail(Error::invalid("fields: " + number_text(payload.size() - offset) +
                                 " bytes at the end, a field has at least 6"));
    const auto tag = static_cast<std::uint16_t>(read_little_endian(payload.substr(offset, 2)));
    const std::uint64_t length = read_little_endian(payload.substr(offset + 2, 4));
    offset += 6;
    if (length > payload.size() - offset)
      return fail(Error::invalid("fields: tag " + number_text(tag) + " has " + number_text(length) +
                                 " bytes, only " + number_text(payload.size() - offset) +
                                 " are left"));
    const bool known = tag == static_cast<std::uint16_t>(Tag::kBirthCgroup);
    if ((tag & kCritical) != 0 && !known && critical == Critical::kRefuse)
      return fail(Error(Code::kUnimplemented, "fields: tag " + number_text(tag & ~kCritical) +
                                                  " is marked critical and not known here"));
    reader.fields_.push_back({tag, payload.substr(offset, length)});
    offset += length;
  }
  return reader;
}

bool FieldReader::has(Tag tag) const {
  return std::ranges::any_of(
      fields_, [tag](const Field& field) { return field.tag == static_cast<std::uint16_t>(tag); });
}

Result<std::string_view> FieldReader::text(Tag tag) const {
  for (const Field& field : fields_)
    if (field.tag == static_cast<std::uint16_t>(tag)) return field.value;
  return fail(Error::invalid("fields: tag " + number_text(static_cast<std::uint16_t>(tag)) +
                             " is missing"));
}

Result<std::uint64_t> FieldReader::number(Tag tag) const {
  TRY_ASSIGN(const std::string_view value, text(tag));
  if (value.size() != 1 && value.size() != 2 && value.size() != 4 && value.size() != 8)
    return fail(Error::invalid("fields: tag " + number_text(static_cast<std::uint16_t>(tag)) +
                               " has " + number_text(value.size()) +
                               " bytes, a number has 1, 2, 4 or 8"));
  return read_little_endian(value);
}

std::optional<std::uint64_t> FieldReader::number_or_none(Tag tag) const {
  Result<std::uint64_t> value = number(tag);
  if (!value) return std::nullopt;
  return *value;
}

std::vector<std::string_view> FieldReader::all(Tag tag) const {
  std::vector<std::string_view> values;
  for (const Field& field : fields_)
    if (field.tag == static_cast<std::uint16_t>(tag)) values.push_back(field.value);
  return values;
}

std::optional<Error> FieldReader::error() const {
  const std::optional<std::uint64_t> code = number_or_none(Tag::kErrorCode);
  if (!code) return std::nullopt;
  const bool known = *code >= static_cast<std::uint64_t>(Code::kCancelled) &&
                     *code <= static_cast<std::uint64_t>(Code::kUnauthenticated);
  Result<std::string_view> message = text(Tag::kErrorMessage);
  return Error(known ? static_cast<Code>(*code) : Code::kUnknown,
               message ? std::string(*message) : std::string("the peer gave no reason"));
}

}  // namespace caisson::proto
