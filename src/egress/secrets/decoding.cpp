#include "egress/secrets/decoding.h"

namespace caisson::egress {
namespace {

// Line ends and what lines are folded with.
constexpr std::size_t kMostBlanks = 4;
// Of a text that was escaped five times.
constexpr std::size_t kMostBackslashes = 32;
// Between the letters of UTF-32.
constexpr std::size_t kMostZeros = 3;

int hex_value(unsigned char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_unreserved(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

// What a backslash and this stand for; 0: nothing.
unsigned char simple_escape(unsigned char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

bool is_first_surrogate(std::uint32_t code) {
  return code >= 0xd800 && code < 0xdc00;
}
bool is_second_surrogate(std::uint32_t code) {
  return code >= 0xdc00 && code < 0xe000;
}

}  // namespace

void Decoder::push(const DecodedByte& in, Output& out) {
  switch (decoding_) {
    case Decoding::kNone:
      out.add(in);
      return;
    case Decoding::kPercent:
    case Decoding::kJson:
    case Decoding::kJsonDeep:
      escape_byte(in, out);
      return;
    case Decoding::kBase64:
    case Decoding::kLower:
    case Decoding::kWide:
      break;
  }
  if (!is_left_away(in.byte)) {
    gap_ = 0;
    out.add({folded(in.byte), in.begin, in.end});
    return;
  }
  // More than that is no way to write one text.
  if (++gap_ > (decoding_ == Decoding::kWide ? kMostZeros : kMostBlanks)) out.add(in);
}

void Decoder::escape_byte(const DecodedByte& in, Output& out) {
  if (count_ == 0 && !opens(in.byte)) {
    out.add(in);
    return;
  }
  if (joins_run(in)) return;
  held_[count_++] = in;
  const Escape escape = decoding_ == Decoding::kPercent ? percent(out) : json(out);
  if (escape == Escape::kWhole) count_ = 0;
  if (escape == Escape::kNone) give_up(out);
}

// Whether it is one of several backslashes that are taken as one.
bool Decoder::joins_run(const DecodedByte& in) {
  if (decoding_ != Decoding::kJsonDeep || in.byte != '\\' || count_ == 0 ||
      held_[count_ - 1].byte != '\\') {
    gap_ = 0;
    return false;
  }
  if (++gap_ >= kMostBackslashes) return false;
  held_[count_ - 1].end = in.end;
  return true;
}

// The first byte stands for itself; another escape may begin behind it.
void Decoder::give_up(Output& out) {
  const std::array<DecodedByte, 12> held = held_;
  const std::size_t count = count_;
  count_ = 0;
  out.add(held[0]);
  for (std::size_t i = 1; i < count; ++i) escape_byte(held[i], out);
}

void Decoder::finish(Output& out) {
  while (count_ > 0) give_up(out);
}

Decoder::Escape Decoder::percent(Output& out) {
  if (count_ > 1 && hex_value(held_[count_ - 1].byte) < 0) return Escape::kNone;
  if (count_ < 3) return Escape::kMore;
  const int value = hex_value(held_[1].byte) << 4 | hex_value(held_[2].byte);
  out.add({static_cast<unsigned char>(value), held_[0].begin, held_[2].end});
  return Escape::kWhole;
}

Decoder::Escape Decoder::json(Output& out) {
  if (count_ == 1) return Escape::kMore;
  if (held_[1].byte == 'u') return code_point(out);
  const unsigned char meant = simple_escape(held_[1].byte);
  if (meant == 0) return Escape::kNone;
  out.add({meant, held_[0].begin, held_[1].end});
  return Escape::kWhole;
}

Decoder::Escape Decoder::code_point(Output& out) {
  std::array<std::uint32_t, 2> codes{};
  for (std::size_t i = 0; i < count_; ++i) {
    const unsigned char byte = held_[i].byte;
    const std::size_t place = i % 6;
    if (place == 0 && byte != '\\') return Escape::kNone;
    if (place == 1 && byte != 'u') return Escape::kNone;
    if (place < 2) continue;
    const int value = hex_value(byte);
    if (value < 0) return Escape::kNone;
    codes[i / 6] = codes[i / 6] << 4 | static_cast<std::uint32_t>(value);
  }
  if (count_ < 6) return Escape::kMore;
  if (!is_first_surrogate(codes[0])) {
    if (is_second_surrogate(codes[0])) return Escape::kNone;
    add_utf8(codes[0], out);
    return Escape::kWhole;
  }
  if (count_ < 12) return Escape::kMore;
  if (!is_second_surrogate(codes[1])) return Escape::kNone;
  add_utf8(0x10000 + ((codes[0] - 0xd800) << 10) + (codes[1] - 0xdc00), out);
  return Escape::kWhole;
}

void Decoder::add_utf8(std::uint32_t code, Output& out) {
  const std::uint64_t begin = held_[0].begin, end = held_[count_ - 1].end;
  const auto add = [&](std::uint32_t byte) {
    out.add({static_cast<unsigned char>(byte), begin, end});
  };
  const auto follow = [&](unsigned shift) { add(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    follow(0);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    follow(6);
    follow(0);
  } else {
    add(0xf0 | code >> 18);
    follow(12);
    follow(6);
    follow(0);
  }
}

DecodedText decode(std::string_view text, Decoding decoding) {
  DecodedText decoded;
  Decoder decoder(decoding);
  const auto take = [&](const Decoder::Output& out) {
    for (const DecodedByte& byte : out) {
      decoded.text += static_cast<char>(byte.byte);
      decoded.begins.push_back(byte.begin);
      decoded.ends.push_back(byte.end);
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    Decoder::Output out;
    decoder.push({static_cast<unsigned char>(text[i]), i, i + 1}, out);
    take(out);
  }
  Decoder::Output out;
  decoder.finish(out);
  take(out);
  return decoded;
}

std::string percent_encode(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_unreserved(byte)) {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

std::string json_escape(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace caisson::egress
