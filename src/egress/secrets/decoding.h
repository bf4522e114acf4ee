// Regular encodings taken back byte by byte, with the place of each byte in what came: how a text
// is found in whatever spelling (`%67hp_`, `gh\u0070_`), over pieces, and put in its place again
// without a change to what is around it.
//
// A decoder guesses nothing: what is no escape stands for itself. It keeps at most an escape's
// bytes. Pure; one object a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::egress {

enum class Decoding : std::uint8_t {
  kNone,     // every byte as it is
  kPercent,  // %67, in any case
  kJson,     // the escapes of JSON strings; a code point becomes UTF-8
  // The same, where up to 32 backslashes in a row are one: escaped any number of times, and also
  // where a strict reader takes an escape's backslash for the second of a pair.
  kJsonDeep,
  // Both alphabets of base64 as the standard one; a few blanks and line ends between are left away.
  kBase64,
  kLower,  // letters as small ones: hexadecimal digits in one spelling
  kWide,   // up to three zero bytes in a row are left away: ASCII in UTF-16 and UTF-32
};

struct DecodedByte {
  unsigned char byte = 0;
  std::uint64_t begin = 0, end = 0;  // what it stands for
};

class Decoder {
 public:
  // What one byte can complete.
  struct Output {
    std::array<DecodedByte, 16> bytes;
    std::size_t count = 0;
    void add(const DecodedByte& byte) { bytes[count++] = byte; }
    const DecodedByte* begin() const { return bytes.data(); }
    const DecodedByte* end() const { return bytes.data() + count; }
  };

  explicit Decoder(Decoding decoding) : decoding_(decoding) {}

  void push(const DecodedByte& in, Output& out);
  // Whether push() would pass this byte on at once and alone, which nearly every byte is; it is
  // what push() would give then.
  bool passes(unsigned char& byte) {
    if (count_ != 0 || opens(byte) || is_left_away(byte)) return false;
    gap_ = 0;
    byte = folded(byte);
    return true;
  }
  // The stream ends here: what looked like an escape was none.
  void finish(Output& out);
  // Where the escape begins that has not ended; nullopt: there is none.
  std::optional<std::uint64_t> pending() const {
    if (count_ == 0) return std::nullopt;
    return held_[0].begin;
  }
  void reset() { count_ = gap_ = 0; }
  // Whether an escape begins with this byte.
  bool opens(unsigned char byte) const {
    return (decoding_ == Decoding::kPercent && byte == '%') || (is_json() && byte == '\\');
  }
  // What a byte that is part of no escape is passed on as, if it is.
  unsigned char folded(unsigned char byte) const {
    if (decoding_ == Decoding::kBase64) return byte == '-' ? '+' : byte == '_' ? '/' : byte;
    if (decoding_ == Decoding::kLower && byte >= 'A' && byte <= 'Z') return byte | 0x20;
    return byte;
  }

 private:
  enum class Escape : std::uint8_t { kMore, kWhole, kNone };
  bool is_json() const { return decoding_ == Decoding::kJson || decoding_ == Decoding::kJsonDeep; }
  bool joins_run(const DecodedByte& in);
  // Unless too many of them are in a row.
  bool is_left_away(unsigned char byte) const {
    if (decoding_ == Decoding::kBase64)
      return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
    return decoding_ == Decoding::kWide && byte == 0;
  }
  Escape percent(Output& out);
  Escape json(Output& out);
  Escape code_point(Output& out);
  void add_utf8(std::uint32_t code, Output& out);
  void escape_byte(const DecodedByte& in, Output& out);
  void give_up(Output& out);

  Decoding decoding_;
  std::size_t gap_ = 0;  // bytes that were left away, or taken as one, in a row
  std::size_t count_ = 0;
  // The longest escape is a pair of surrogates: \ud83d\ude00.
  std::array<DecodedByte, 12> held_{};
};

// A text as a whole, decoded, with where each of its bytes stood: byte i from begins[i] to
// ends[i].
struct DecodedText {
  std::string text;
  std::vector<std::size_t> begins, ends;
};
DecodedText decode(std::string_view text, Decoding decoding);

// RFC 3986's unreserved characters as they are, every other byte as an escape.
std::string percent_encode(std::string_view bytes);
// What stands between the quotes of a JSON string; the bytes are UTF-8.
std::string json_escape(std::string_view bytes);

}  // namespace caisson::egress
